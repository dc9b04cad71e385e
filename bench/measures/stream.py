"""From end to end: items through a queue, from some processes to others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distsync
from bench.crew import Crew
from bench.harness import Done, Measure, Place, Work, kazoo_client
from bench.measures.queues import ITEM
from bench.results import KAZOO, OURS, faster

LAST = b"the last one"
EMPTY_SECONDS = 0.001
"""For so long kazoo's getter, who does not wait, rests when there is nothing."""


@contextmanager
def ours(hosts: str, top: str) -> Iterator[tuple[Callable[[bytes], Any], Callable[[], Any]]]:
    with distsync.connect(hosts, namespace=top, default=False) as client:
        queue: distsync.Queue[bytes] = distsync.Queue(name="stream", client=client)
        yield queue.put, queue.get


@contextmanager
def theirs(hosts: str, top: str) -> Iterator[tuple[Callable[[bytes], Any], Callable[[], Any]]]:
    with kazoo_client(hosts) as client:
        queue = client.Queue(f"{top}/kazoo")

        def get() -> Any:
            while (item := queue.get()) is None:
                time.sleep(EMPTY_SECONDS)
            return item

        yield queue.put, get


MAKERS = {OURS: ours, KAZOO: theirs}


@contextmanager
def producing(who: str, hosts: str, top: str) -> Iterator[Callable[[int], None]]:
    with MAKERS[who](hosts, top) as (put, _):

        def produce(items: int) -> None:
            for _ in range(items):
                put(ITEM)

        yield produce


@contextmanager
def consuming(who: str, hosts: str, top: str) -> Iterator[Callable[[object], None]]:
    with MAKERS[who](hosts, top) as (_, get):

        def consume(_: object) -> None:
            while get() != LAST:
                pass

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
            for _ in range(sides):
                put(LAST)
            consumers.answers()
            return Done(each * sides, time.perf_counter() - began)

        return turn

    return {who: of(who) for who in MAKERS}


MEASURES = [
    Measure(
        "stream",
        "4 producers, 4 consumers in 8 processes, items per second end to end",
        stream,
        (faster(5),),
        "put and get one by one, each a round trip; all the processes and the server share the machine's processors",
        operation="item",
    )
]
