"""Cached locks: as the locks, with processes that cache, try, look, delete and request revocation; and
one that others wait for.

A third of the calls bypasses the driver, as the fast path does for a cached lock.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check, Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    apart,
    close_client,
    finish,
    made_by_others,
    maybe_timeout,
    processes,
    spawn,
    work,
)

from distsync._protocols import steps, wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Wait
from distsync.errors import DeadlineError, LockLostError, NotHeldError

PATH = f"{ROOT}/lock/k"
KEEP = 0.1
#: Practically infinite, but over before a schedule ends: a contender that was cut off never asked.
LONG = 15.0
#: Seconds after which a cached lock is released at the latest if no other process asks.
MAX_CACHED_S = 2 * KEEP + 0.1


def core_of(process: SimProcess) -> LockCore:
    return process.local(PATH, lambda: LockCore(PATH))


def data_of(linger: float) -> bytes:
    return json.dumps({"keep": linger} if linger else {}).encode()


async def take(world: Simulation, process: SimProcess, owner: object, linger: float, timeout: float | None) -> bool:
    """Acquire as the public objects do: at once from the cache, otherwise by the protocol."""
    core = core_of(process)
    kept = core.cached
    if (
        kept is not None
        and world.rng.random() < 0.6
        and process.is_proven(kept.place.session_id)
        and core.acquire_from_cache(owner)
    ):
        return True
    brief = timeout is not None and timeout < 0.5
    return bool(
        await Run(core.acquire(owner, data_of(linger), timeout != 0.0, linger=linger, is_short_wait=brief), timeout)
    )


async def let_go(world: Simulation, process: SimProcess, owner: object, linger: float) -> None:
    """A loss is reported at the release, and always with a reason."""
    core, grant = core_of(process), core_of(process).grant
    quick = grant is not None and core.owner is owner and world.rng.random() < 0.6
    if linger and quick and grant is not None and process.is_proven(grant.place.session_id) and core.release_to_cache():
        return
    try:
        await Run(core.release(owner, linger > 0))
    except LockLostError as error:
        world.record("lost")
        if not world.faults.injected and not world.tampered:
            world.fail(f"a loss without a fault: {error}")


async def hold(world: Simulation, process: SimProcess, owner: object, linger: float, depth: int) -> None:
    grant = core_of(process).grant
    if grant is not None:
        place = grant.place
        world.record("granted", what="lock", session_id=place.session_id, token=place.token, loss=grant.loss)
    try:
        for _ in range(depth):
            await Run(work(world))
            world.record("working", what="lock")
    finally:
        world.record("released", what="lock")
        await let_go(world, process, owner, linger)


async def thread(world: Simulation, process: SimProcess, linger: float, depth: int) -> None:
    """Take the lock several times, mostly soon again, at times after its eviction."""
    owner = object()
    for _ in range(world.rng.randint(1, 5)):
        if await take(world, process, owner, linger, maybe_timeout(world)):
            await hold(world, process, owner, linger, depth)
        await Run(pause(world))


async def pause(world: Simulation) -> None:
    await Wait(limit=world.rng.choice((0.0, 0.0, 0.003, 0.03, 0.15, 0.3)))


class HolderOracle(Check):
    """The holder according to the tasks, for those that look."""

    def __init__(self) -> None:
        self.holding: set[str] = set()
        self.changes = 0

    def see(self, world: Simulation, record: Any) -> None:
        if record.fields.get("what") == "lock" and record.event in ("granted", "released"):
            self.changes += 1
            (self.holding.add if record.event == "granted" else self.holding.discard)(record.task)


async def looker(world: Simulation, process: SimProcess) -> None:
    """Look whether the lock is held; at times delete its znode, or request it."""
    core = core_of(process)
    for _ in range(world.rng.randint(1, 4)):
        await Run(pause(world))
        what = world.rng.random()
        if what < 0.7:
            with suppress(DeadlineError):  # no server is available
                await Run(core.locked(), world.rng.choice((None, 0.0, 2.0)))
        elif what < 0.85:
            break_it(world)
        else:
            await ask(world)


def break_it(world: Simulation) -> None:
    """Delete the znode of the process that holds or caches the lock."""
    names = [path.rpartition("/")[2] for path in world.leftovers() if path.startswith(f"{PATH}/")]
    for first in wait_queue.in_order(names)[:1]:
        stat = world.external_client(steps.Exists(f"{PATH}/{first.name}"))
        if stat is not None:
            world.tampered.add(stat.ephemeral_owner)
            world.external_client(steps.Delete(f"{PATH}/{first.name}"))


async def ask(world: Simulation) -> None:
    """Request revocation, and revoke after a while."""
    try:
        asked = await Run(revocation.request_revocation(PATH))
        left = await Run(revocation.still_held(asked), 0.4)
    except NotHeldError:
        return
    if left:
        world.tampered.update(process.session.session_id or 0 for process in world.processes.values())
        await Run(revocation.delete(left))


def run(world: Simulation, depth: int) -> None:
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/")]
    for process in processes(world, 2, 3):
        linger = world.rng.choice((KEEP, KEEP, KEEP, 1.0, 0.0))
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, thread(world, process, linger, depth))
    if world.rng.random() < 0.4:
        spawn(world.process(OBSERVER), looker(world, world.processes[OBSERVER]), name="looker")
    rng = apart(world, "kept")
    if rng.random() < 0.15:
        spawn(process, looker(world, process), name="looker of its own")
    if rng.random() < 0.15:
        made_by_others(world, PATH, b"of a client that writes there")
    if rng.random() < 0.15:
        core = core_of(process)
        spawn(process, close_client(world, process, lambda: core.cached is not None), name="closer")
    finish(world)


# What other processes see while one process caches the lock


async def keeper(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """Acquire again and again, as long as the others try."""
    owner = object()
    while not over:
        if await take(world, process, owner, KEEP, None):
            await hold(world, process, owner, KEEP, 1)
        await Run(gap(world))


async def gap(world: Simulation) -> None:
    await Wait(limit=world.rng.choice((0.0, 0.001, 0.005, 0.02)))


async def waiter(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """A waiter is served, however often the other process acquires again."""
    await Run(pause(world))
    owner = object()
    try:
        for _ in range(2):
            if await Run(core_of(process).acquire(owner, b"{}")):
                await hold(world, process, owner, 0.0, 1)
    finally:
        over.append(True)


async def trier(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """A non-blocking attempt succeeds eventually, because the lock is free most of the time."""
    owner = object()
    try:
        while not await Run(core_of(process).acquire(owner, b"{}", False), 0.0):
            await Run(gap(world))
        await hold(world, process, owner, 0.0, 1)
    finally:
        over.append(True)


def play_fair(world: Simulation) -> None:
    """One process acquires and caches the lock repeatedly; another one waits, or tries: neither
    starves.
    """
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/")]
    over: list[bool] = []
    others = waiter if world.rng.random() < 0.5 else trier
    process = world.process("a")
    for _ in range(world.rng.randint(1, 2)):
        spawn(process, keeper(world, process, over), daemon=False)
    spawn(world.process("b"), others(world, world.processes["b"], over))
    finish(world)


# An idle cached lock is free: for an attempt, and for a look


async def once(world: Simulation, process: SimProcess, kept: list[bool]) -> None:
    owner = object()
    for _ in range(world.rng.randint(1, 3)):
        if await take(world, process, owner, LONG, None):
            await hold(world, process, owner, LONG, 1)
    kept.append(True)


async def finder(world: Simulation, process: SimProcess, kept: list[bool], how: str, found: list[bool]) -> None:
    """Look, or try, after the last release. Whether it was free is appended to ``found``."""
    owner, core = object(), core_of(process)
    while not kept:
        await Run(pause(world))
    if how == "locked":
        free = not await Run(core.locked())
    else:
        timeout = {"try": 0.0, "brief": 0.01, "wait": None}[how]
        free = await Run(core.acquire(owner, b"{}", how != "try", is_short_wait=how == "brief"), timeout)
    found.append(free)
    if free and how != "locked":
        await hold(world, process, owner, 0.0, 1)


def play_idle(world: Simulation) -> None:
    """An attempt succeeds and a look sees it free; of several concurrent attempts one succeeds."""
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/")]
    kept: list[bool] = []
    found: list[bool] = []
    several = world.rng.random() < 0.5
    how = world.rng.choice(("try", "locked") if several else ("try", "brief", "locked", "wait"))
    process = world.process("a")
    spawn(process, once(world, process, kept))
    for name in "bcd"[: world.rng.randint(2, 3) if several else 1]:
        other = world.process(name)
        spawn(other, finder(world, other, kept, how, found))
    world.run()
    free = all(found) if how == "locked" else any(found)
    if not free and not world.faults.injected:
        world.fail(f"nobody holds it, and it was refused ({how}): {found}")
    world.close()


KEPT_LOCK = Scenario("kept-lock", lambda world: run(world, 1))
KEPT_RLOCK = Scenario("kept-rlock", lambda world: run(world, 2))
KEPT_FAIR = Scenario("kept-fair", play_fair, ("lost_request", "lost_reply", "cut", "slow", "late_event", "pause"))
KEPT_IDLE = Scenario("kept-idle", play_idle, ("lost_request", "lost_reply", "cut", "slow", "late_event", "pause"))
