"""Pools of two local workers, beside those of the standard library."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import distsync.multiprocessing
from bench.harness import Done, Measure, Place, Work, for_seconds, so_often
from bench.results import OURS, Goal, faster, slower
from distsync.futures import Executor

POOL, EXECUTOR, NAMED = "multiprocessing.Pool", "ProcessPoolExecutor", "distsync, with a name"
WORKERS = 2
FEW, MANY = 2_000, 10_000


def square(number: int) -> int:
    return number * number


def work(number: int) -> int:
    """Compute for a millisecond."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return number


def rivals(place: Place, use: Callable[[Any], Done]) -> Mapping[str, Work]:
    """Return the same use of each pool."""
    pools = {
        OURS: distsync.multiprocessing.Pool(WORKERS, client=place.client()),
        NAMED: distsync.multiprocessing.Pool(WORKERS, name="p", client=place.client()),
        POOL: multiprocessing.Pool(WORKERS),
    }
    return {who: partial(use, place.stack.enter_context(pool)) for who, pool in pools.items()}


def apply(place: Place, _: int) -> Mapping[str, Work]:
    return rivals(place, lambda pool: for_seconds(lambda: pool.apply(square, (3,)), place.pace.seconds))


def imap_unordered(place: Place, count: int) -> Mapping[str, Work]:
    count = min(count, place.pace.largest)

    def use(pool: Any) -> Done:
        return so_often(lambda: sum(pool.imap_unordered(square, range(count))), 1, count)

    return rivals(place, use)


def imap(place: Place, count: int) -> Mapping[str, Work]:
    count = min(count, place.pace.largest)
    return rivals(place, lambda pool: so_often(lambda: sum(pool.imap(square, range(count))), 1, count))


def mapped(place: Place, count: int) -> Mapping[str, Work]:
    count = min(count, place.pace.largest)
    return rivals(place, lambda pool: so_often(lambda: pool.map(square, range(count)), 1, count))


def submit(place: Place, count: int) -> Mapping[str, Work]:
    count = min(count, place.pace.largest)

    def use(executor: Any) -> Done:
        def once() -> None:
            for future in [executor.submit(square, 3) for _ in range(count)]:
                future.result()

        return so_often(once, 1, count)

    ours, theirs = Executor(WORKERS, client=place.client()), ProcessPoolExecutor(WORKERS)
    for each in (ours, theirs):
        place.stack.enter_context(each)
    return {OURS: partial(use, ours), EXECUTOR: partial(use, theirs)}


def from_start_to_join(place: Place, count: int) -> Mapping[str, Work]:
    client, count = place.client(), min(count, place.pace.largest)

    def use(make: Callable[[], Any]) -> Done:
        began = time.perf_counter()
        with make() as pool:
            assert len(pool.map(work, range(count))) == count
            pool.close()
            pool.join()
        return Done(count, time.perf_counter() - began)

    return {
        OURS: partial(use, lambda: distsync.multiprocessing.Pool(WORKERS, client=client)),
        NAMED: partial(use, lambda: distsync.multiprocessing.Pool(WORKERS, name="p", client=client)),
        POOL: partial(use, lambda: multiprocessing.Pool(WORKERS)),
    }


def both(kind: Callable[..., Goal], ratio: float) -> tuple[Goal, Goal]:
    """Return a goal for the pool without a name, and the same for that with one."""
    return kind(ratio, than=POOL), kind(ratio, than=POOL, of=NAMED)


BOUND = "two pipes to each worker, and the pickles of the task and the result"
LOCAL: dict[str, Any] = {"bound": BOUND, "counted": False, "of_what": "tasks"}
MEASURES = [
    Measure("pool-apply", "Pool.apply, 2 local workers", apply, both(slower, 3), BOUND, counted=False),
    Measure(
        "pool-imap-unordered", "imap_unordered of 10,000 tiny tasks", imap_unordered, both(faster, 0.8),
        sizes=(MANY,), **LOCAL,
    ),
    Measure("pool-imap", "imap of 2,000 tiny tasks", imap, both(slower, 1.5), sizes=(FEW,), **LOCAL),
    Measure("pool-map", "map of 10,000 tiny tasks", mapped, both(faster, 0.9), sizes=(MANY,), **LOCAL),
    Measure(
        "executor", "Executor.submit of 2,000 tiny tasks", submit, (faster(1, than=EXECUTOR),), sizes=(FEW,), **LOCAL
    ),
    Measure(
        "pool-start-to-join", "map of 2,000 tasks of 1 ms, from the start of the pool to its end", from_start_to_join,
        both(slower, 1.5), sizes=(FEW,), **LOCAL,
    ),
]  # fmt: skip
