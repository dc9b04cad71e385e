"""Tasks of one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distsync.asyncio
from bench.harness import Done, Measure, Place, Work
from bench.measures.queues import ITEM, in_threads
from bench.results import KAZOO, OURS, counted, faster

TASKS = 8
BATCH = 20
THREADED = "distsync, 8 threads"


@contextmanager
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield a loop that is closed again, with the threads that it has started."""
    made = asyncio.new_event_loop()
    try:
        yield made
    finally:
        made.run_until_complete(made.shutdown_default_executor())
        made.close()


async def cycles(cycle: Callable[[], Awaitable[object]], seconds: float) -> Done:
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        for _ in range(BATCH):
            await cycle()
        done += BATCH
    return Done(done, spent)


def lock(place: Place, _: int) -> Mapping[str, Work]:
    """kazoo's Lock, used in a loop: blocking calls run in a thread."""
    running = place.stack.enter_context(loop())
    ours = distsync.asyncio.Lock(name="kept", client=place.client())
    theirs: Any = place.kazoo().Lock(f"{place.top}/kazoo")

    async def cycle() -> None:
        async with ours:
            pass

    async def in_a_thread() -> None:
        await asyncio.to_thread(theirs.acquire)
        await asyncio.to_thread(theirs.release)

    def of(one: Callable[[], Awaitable[object]]) -> Work:
        return lambda: running.run_until_complete(cycles(one, place.pace.seconds))

    return {OURS: of(cycle), KAZOO: of(in_a_thread)}


def put_tasks(place: Place, _: int) -> Mapping[str, Work]:
    running, client = place.stack.enter_context(loop()), place.client()
    ours: distsync.asyncio.Queue[bytes] = distsync.asyncio.Queue(name="q", client=client)
    threaded: distsync.Queue[bytes] = distsync.Queue(name="threads", client=client)
    theirs = place.kazoo().Queue(f"{place.top}/kazoo")
    each = place.pace.items // TASKS

    async def at_once(put: Callable[[bytes], Coroutine[Any, Any, object]]) -> Done:
        async def some() -> None:
            for _ in range(each):
                await put(ITEM)

        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(TASKS)))
        return Done(each * TASKS, time.perf_counter() - began)

    async def in_a_thread(item: bytes) -> None:
        await asyncio.to_thread(theirs.put, item)

    return {
        OURS: lambda: running.run_until_complete(at_once(ours.put)),
        KAZOO: lambda: running.run_until_complete(at_once(in_a_thread)),
        THREADED: lambda: in_threads(threaded.put, place.pace.items),
    }


MEASURES = [
    Measure(
        "asyncio-lock",
        "asyncio.Lock cycle while kept, one task",
        lock,
        (faster(20), counted("requests", "cycle", 0.1)),
        "no request at all: Python's own time to step two protocols on the loop. kazoo's Lock is called in a thread, "
        "as one takes it to a loop",
        operation="cycle",
    ),
    Measure(
        "asyncio-put",
        "asyncio.Queue.put, 8 tasks at once",
        put_tasks,
        (faster(1), faster(than=THREADED), counted("requests", "put", 0.3)),
        "Python's time for each put's protocol; what is put while one is under way goes together, and nobody is woken "
        "in another thread",
        operation="put",
    ),
]
