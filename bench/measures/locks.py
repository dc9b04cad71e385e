"""Locks and permits in one process: cached, not cached, and between threads."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import distsync
from bench import rivals
from bench.harness import Done, Measure, Place, Work, at_once, for_seconds
from bench.results import KAZOO, OURS, faster, slower
from distsync._protocols.steps import Create, Delete

THREADS = 8
BATCH = 20
PAIR = "create + delete"


def cycles(lock: Any, seconds: float) -> Done:
    """``with lock: pass``, without a call around it."""
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        for _ in range(BATCH):
            with lock:
                pass
        done += BATCH
    return Done(done, spent)


def cycles_of_threads(locks: list[Any], seconds: float) -> Done:
    turns: list[Done] = []
    whole = at_once([lambda lock=lock: turns.append(cycles(lock, seconds)) for lock in locks])
    return Done(sum(turn.operations for turn in turns), whole.seconds)


def kept(place: Place, _: int) -> Mapping[str, Work]:
    redis = rivals.redis(place)
    locks = {
        OURS: distsync.Lock(name="kept", client=place.client()),
        KAZOO: place.kazoo().Lock(f"{place.top}/kazoo"),
        rivals.LOCAL: multiprocessing.Lock(),
        rivals.MANAGER: rivals.manager(place).Lock(),
        **({rivals.REDIS: redis.lock("lock", timeout=10)} if redis else {}),
    }
    return {who: partial(cycles, lock, place.pace.seconds) for who, lock in locks.items()}


def kept_rlock(place: Place, _: int) -> Mapping[str, Work]:
    """kazoo's RLock does not cache: it is compared with kazoo's Lock."""
    locks = {
        OURS: distsync.RLock(name="kept", client=place.client()),
        KAZOO: place.kazoo().Lock(f"{place.top}/kazoo"),
        rivals.LOCAL_RLOCK: multiprocessing.RLock(),
    }
    return {who: partial(cycles, lock, place.pace.seconds) for who, lock in locks.items()}


def reader(place: Place, _: int) -> Mapping[str, Work]:
    locks = {
        OURS: distsync.SharedLock(name="s", client=place.client()).reader,
        KAZOO: place.kazoo().ReadLock(f"{place.top}/kazoo"),
    }
    return {who: partial(cycles, lock, place.pace.seconds) for who, lock in locks.items()}


def not_kept(place: Place, _: int) -> Mapping[str, Work]:
    client, kazoo = place.client(), place.kazoo()

    async def pair() -> None:
        await Delete((await Create(f"{place.top}/n-", ephemeral=True, sequence=True)).path)

    lock, theirs = distsync.Lock(name="own", client=client, linger=0), kazoo.Lock(f"{place.top}/kazoo")
    return {
        OURS: lambda: cycles(lock, place.pace.seconds),
        KAZOO: lambda: cycles(theirs, place.pace.seconds),
        PAIR: lambda: for_seconds(lambda: client.run(pair()), place.pace.seconds),
    }


def threads(place: Place, _: int) -> Mapping[str, Work]:
    lock, kazoo = distsync.Lock(name="shared", client=place.client()), place.kazoo()
    theirs = [kazoo.Lock(f"{place.top}/kazoo") for _ in range(THREADS)]
    return {
        OURS: lambda: cycles_of_threads([lock] * THREADS, place.pace.seconds),
        KAZOO: lambda: cycles_of_threads(theirs, place.pace.seconds),
    }


def semaphore(place: Place, _: int) -> Mapping[str, Work]:
    ours = distsync.Semaphore(2, name="permits", client=place.client())
    theirs = place.kazoo().Semaphore(f"{place.top}/kazoo", max_leases=2)
    return {who: partial(cycles, each, place.pace.seconds) for who, each in ((OURS, ours), (KAZOO, theirs))}


MEASURES = [
    Measure(
        "lock-kept",
        "Lock cycle while kept, one thread",
        kept,
        (faster(500), slower(15, than=rivals.LOCAL), faster(than=rivals.MANAGER), faster(than=rivals.REDIS)),
        "no request at all: Python's own time for two calls, the lease clock's reading of the time, and the client's "
        "mutex. On the embedded server kazoo itself is faster, and so the ratio lower",
        operation="cycle",
    ),
    Measure(
        "rlock-kept",
        "RLock cycle while kept, one thread",
        kept_rlock,
        (faster(), slower(1e9, than=rivals.LOCAL_RLOCK)),
        "as Lock; kazoo has no RLock, it is compared with its Lock",
        operation="cycle",
    ),
    Measure(
        "reader",
        "SharedLock.reader cycle, one thread",
        reader,
        (faster(),),
        "no request while it is kept, but a protocol for each of two calls: unlike a Lock's they do not go past the "
        "driver",
        operation="cycle",
    ),
    Measure(
        "lock-not-kept",
        "Lock cycle not kept (`linger=0`)",
        not_kept,
        (slower(1.15, than=PAIR), faster(1.4)),
        "a create and a delete, one after the other; beside them a list, sent together with the create, and Python's "
        "time for that",
        operation="cycle",
    ),
    Measure(
        "lock-threads",
        "8 threads of one process, one lock",
        threads,
        (faster(100),),
        "what one thread pays to wake another: each hand-over is a switch of threads under Python's own lock",
        operation="cycle",
    ),
    Measure(
        "semaphore",
        "Semaphore cycle",
        semaphore,
        (faster(2.5),),
        "4 requests in 2 round trips beside kazoo's 9, one after the other",
        operation="cycle",
    ),
]
