"""Puts and gets of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

from kazoo.client import KazooClient

import distsync
import distsync.multiprocessing
from bench import rivals
from bench.harness import Done, Measure, Place, Work, at_once, so_often
from bench.results import KAZOO, OURS, faster

ITEM = b"an item of thirty-two bytes, say"
THREADS = 8
ONE_THREAD = "kazoo, 1 thread"
SLICE = 100


def fill_kazoo(kazoo: KazooClient, path: str, items: int) -> None:
    """Put this many items into kazoo's queue, in transactions."""
    kazoo.ensure_path(path)
    for start in range(0, items, 500):
        transaction = kazoo.transaction()
        for _ in range(min(500, items - start)):
            transaction.create(f"{path}/entry-100-", ITEM, sequence=True)
        transaction.commit()


def in_threads(put: Callable[[bytes], object], items: int) -> Done:
    each = items // THREADS
    return at_once([lambda: so_often(lambda: put(ITEM), each)] * THREADS, each * THREADS)


def putters(place: Place, redis: Any) -> dict[str, Callable[[bytes], object]]:
    return {
        OURS: distsync.Queue(name="q", client=place.client()).put,
        KAZOO: place.kazoo().Queue(f"{place.top}/kazoo").put,
        rivals.MANAGER: rivals.manager(place).Queue().put,
        **({rivals.REDIS: lambda item: redis.rpush("list", item)} if redis else {}),
    }


def put(place: Place, _: int) -> Mapping[str, Work]:
    def of(one: Callable[[bytes], object]) -> Work:
        return lambda: so_often(lambda: one(ITEM), place.pace.items)

    return {who: of(one) for who, one in putters(place, rivals.redis(place)).items()}


def put_threads(place: Place, _: int) -> Mapping[str, Work]:
    ours, theirs = distsync.Queue(name="q", client=place.client()), place.kazoo().Queue(f"{place.top}/kazoo")
    return {
        OURS: lambda: in_threads(ours.put, place.pace.items),
        KAZOO: lambda: in_threads(theirs.put, place.pace.items),
        ONE_THREAD: lambda: so_often(lambda: theirs.put(ITEM), place.pace.items),
    }


def put_many(place: Place, _: int) -> Mapping[str, Work]:
    ours, theirs = distsync.Queue(name="q", client=place.client()), place.kazoo().Queue(f"{place.top}/kazoo")
    many = place.pace.items * 10
    return {
        OURS: lambda: so_often(lambda: ours.put_many([ITEM] * many), 1, many),
        KAZOO: lambda: so_often(lambda: theirs.put(ITEM), place.pace.items),
    }


def put_fed(place: Place, _: int) -> Mapping[str, Work]:
    """Put by a feeder thread, until the server has answered all requests."""
    ours = distsync.multiprocessing.Queue(name="q", client=place.client())
    theirs = place.kazoo().Queue(f"{place.top}/kazoo")
    many = place.pace.items * 10

    def fed() -> Done:
        def all_of_them() -> None:
            for item in repeat(ITEM, many):
                ours.put(item)
            ours.qsize()

        return so_often(all_of_them, 1, many)

    return {OURS: fed, KAZOO: lambda: so_often(lambda: theirs.put(ITEM), place.pace.items)}


def get(place: Place, _: int) -> Mapping[str, Work]:
    ours, redis, shared = distsync.Queue(name="q", client=place.client()), rivals.redis(place), rivals.manager(place)
    theirs, filler, local = place.kazoo().Queue(f"{place.top}/kazoo"), place.kazoo(place.observed), shared.Queue()
    items = place.pace.items

    def of(fill: Callable[[Iterable[bytes]], object], one: Callable[[], object]) -> Work:
        def turn() -> Done:
            fill([ITEM] * items)
            return so_often(one, items)

        return turn

    return {
        OURS: of(past(place).put_many, ours.get),
        KAZOO: of(lambda _: fill_kazoo(filler, f"{place.top}/kazoo", items), theirs.get),
        rivals.MANAGER: of(lambda many: [local.put(item) for item in many], local.get),
        **({rivals.REDIS: of(lambda many: redis.rpush("list", *many), lambda: redis.blpop("list"))} if redis else {}),
    }


def past(place: Place) -> distsync.Queue[bytes]:
    """The same queue through another client, for filling it uncounted."""
    client = place.stack.enter_context(distsync.connect(place.observed, namespace=place.top, default=False))
    return distsync.Queue(name="q", client=client)


def get_many(place: Place, _: int) -> Mapping[str, Work]:
    ours, fill = distsync.Queue(name="q", client=place.client()), past(place).put_many
    theirs, filler = place.kazoo().Queue(f"{place.top}/kazoo"), place.kazoo(place.observed)
    items = place.pace.items

    def all_of_ours() -> None:
        left = items * 4
        while left:
            left -= len(ours.get_many(min(SLICE, left)))

    def turn() -> Done:
        fill([ITEM] * items * 4)
        return so_often(all_of_ours, 1, items * 4)

    def kazoos() -> Done:
        fill_kazoo(filler, f"{place.top}/kazoo", items)
        return so_often(theirs.get, items)

    return {OURS: turn, KAZOO: kazoos}


MEASURES = [
    Measure(
        "put",
        "Queue.put, 1 thread",
        put,
        (faster(1.0), faster(than=rivals.MANAGER), faster(than=rivals.REDIS)),
        "one round trip and one request, as kazoo's; but that is a plain create, and this a transaction that also "
        "checks the segment, counts and leaves a receipt, which takes more of the server's time and of Python's",
        operation="put",
    ),
    Measure(
        "put-threads",
        "Queue.put, 8 threads",
        put_threads,
        (faster(5), faster(5, than=ONE_THREAD)),
        "Python's own lock: each put runs its protocol in its own thread, and is woken there. A quarter of a request "
        "each",
        operation="put",
    ),
    Measure(
        "put-many",
        "Queue.put_many",
        put_many,
        (faster(30),),
        "the server's time for each create, and Python's to encode it",
        operation="item",
    ),
    Measure(
        "put-fed",
        "multiprocessing.Queue.put, through its feeder",
        put_fed,
        (faster(),),
        "as put_many",
        operation="item",
    ),
    Measure(
        "get",
        "Queue.get",
        get,
        (faster(1.5), faster(than=rivals.MANAGER), faster(than=rivals.REDIS)),
        "2 requests in one round trip, where kazoo's are one after the other; the taking is a transaction, which "
        "counts and leaves a receipt",
        operation="get",
    ),
    Measure(
        "get-many",
        "Queue.get_many",
        get_many,
        (faster(30),),
        "up to 100 items are read with one request before one transaction takes them, a delete for each",
        operation="item",
    ),
]
