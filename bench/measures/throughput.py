"""Throughput: items through a queue, from several processes to others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distsync
from bench.harness import Done, Measure, Place, Work, kazoo_client
from bench.measures.queues import ITEM
from bench.results import KAZOO, OURS, faster
from bench.role_processes import Crew

BATCHES = "distsync, 25 at a time"
BATCH = 25
LAST = b"the last one"
EMPTY_S = 0.001
"""Seconds that kazoo's getter, which does not wait, sleeps if the queue is empty."""

Ends = tuple[Callable[[list[bytes]], Any], Callable[[], list[bytes]]]
"""A function that puts several items, and one that gets several."""


@contextmanager
def ours(hosts: str, top: str) -> Iterator[Ends]:
    with distsync.connect(hosts, namespace=top, default=False) as client:
        queue: distsync.Queue[bytes] = distsync.Queue(name="stream", client=client)
        yield (lambda items: [queue.put(item) for item in items]), (lambda: [queue.get()])


@contextmanager
def batches(hosts: str, top: str) -> Iterator[Ends]:
    """Batches, as a program writes them that can wait a little."""
    with distsync.connect(hosts, namespace=top, default=False) as client:
        queue: distsync.Queue[bytes] = distsync.Queue(name="batches", client=client)

        def put(items: list[bytes]) -> None:
            for at in range(0, len(items), BATCH):
                queue.put_many(items[at : at + BATCH])

        yield put, (lambda: queue.get_many(BATCH))


@contextmanager
def theirs(hosts: str, top: str) -> Iterator[Ends]:
    with kazoo_client(hosts) as client:
        queue = client.Queue(f"{top}/kazoo")

        def get() -> list[bytes]:
            while (item := queue.get()) is None:
                time.sleep(EMPTY_S)
            return [item]

        yield (lambda items: [queue.put(item) for item in items]), get


MAKERS = {OURS: ours, KAZOO: theirs, BATCHES: batches}


@contextmanager
def producing(who: str, hosts: str, top: str) -> Iterator[Callable[[int], None]]:
    with MAKERS[who](hosts, top) as (put, _):

        def produce(items: int) -> None:
            put([ITEM] * items)

        yield produce


@contextmanager
def consuming(who: str, hosts: str, top: str) -> Iterator[Callable[[object], None]]:
    """Consume until there are no more items: each consumer finds a last one behind all others."""
    with MAKERS[who](hosts, top) as (put, get):

        def consume(_: object) -> None:
            while LAST not in (got := get()):
                pass
            put([LAST] * (got.count(LAST) - 1))

        yield consume


def stream(place: Place, _: int) -> Mapping[str, Work]:
    def of(who: str) -> Work:
        sides = place.pace.sides
        producers = place.stack.enter_context(Crew(producing, [(who, place.hosts, place.top)] * sides))
        consumers = place.stack.enter_context(Crew(consuming, [(who, place.hosts, place.top)] * sides))
        put, _ = place.stack.enter_context(MAKERS[who](place.observed, place.top))
        each = place.pace.items // sides

        def turn() -> Done:
            began = time.perf_counter()
            consumers.begin(None)
            producers.do(each)
            put([LAST] * sides)
            consumers.answers()
            return Done(each * sides, time.perf_counter() - began)

        return turn

    return {who: of(who) for who in MAKERS}


MEASURES = [
    Measure(
        "stream",
        "4 producers, 4 consumers in 8 processes, items per second end to end",
        stream,
        (faster(5), faster(5, of=BATCHES)),
        "put and get one by one, each a round trip; all the processes and the server share the machine's processors. "
        "Four getters want the same first item: three of them ask again",
        operation="item",
    )
]
