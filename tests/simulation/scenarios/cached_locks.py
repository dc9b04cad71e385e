"""Cached locks: as the locks, with threads that cache, try, inspect, delete and revoke, and with
waiters behind a cache.

Where the lock is cached, some of the calls use the fast path around the driver, as the public
classes do.
"""

from __future__ import annotations

import json
from contextlib import suppress

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check, Exclusion, NothingLeft, holds
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    close_client,
    create_externally,
    finish,
    maybe_timeout,
    processes,
    separate_rng,
    spawn,
    take_from_holders,
)
from simulation.scenarios.lock import work_recursively

from distsync._protocols import steps, wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Wait
from distsync.errors import DeadlineError, LockLostError, NotHeldError

PATH = f"{ROOT}/lock/k"
KEEP = 0.1
#: Practically unlimited, but shorter than a schedule: a contender that was disconnected never asked
#: for the lock.
LONG = 15.0
#: Maximum time in seconds that a cached lock stays cached if nobody acquires it.
MAX_CACHED_S = 2 * KEEP + 0.1


def core_of(process: SimProcess) -> LockCore:
    return process.local(PATH, lambda: LockCore(PATH))


def data_of(linger: float) -> bytes:
    return json.dumps({"keep": linger} if linger else {}).encode()


async def take(world: Simulation, process: SimProcess, owner: object, linger: float, timeout: float | None) -> bool:
    """Acquire by the fast path if the lock is cached, otherwise by the protocol, as the public classes
    do.
    """
    core = core_of(process)
    cached = core.cached
    if (
        cached is not None
        and world.rng.random() < 0.6
        and process.is_proven(cached.entry.session_id)
        and core.acquire_from_cache(owner)
    ):
        return True
    brief = timeout is not None and timeout < 0.5
    return bool(
        await Run(core.acquire(owner, data_of(linger), timeout != 0.0, linger=linger, is_short_wait=brief), timeout)
    )


async def release(world: Simulation, process: SimProcess, owner: object, linger: float) -> None:
    """Release the lock; fail if a loss is reported without a fault."""
    core, grant = core_of(process), core_of(process).grant
    quick = grant is not None and core.owner is owner and world.rng.random() < 0.6
    if linger and quick and grant is not None and process.is_proven(grant.entry.session_id) and core.release_to_cache():
        return
    try:
        await Run(core.release(owner, linger > 0))
    except LockLostError as error:
        world.record("lost")
        if not world.faults.injected and not world.tampered and not world.revoked:
            world.fail(f"a loss without a fault: {error}")


async def hold(world: Simulation, process: SimProcess, owner: object, linger: float, depth: int) -> None:
    grant = core_of(process).grant
    if grant is not None:
        entry = grant.entry
        world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)
    try:
        await work_recursively(world, core_of(process), owner, depth)
    finally:
        world.record("released", what="lock")
        await release(world, process, owner, linger)


async def thread(world: Simulation, process: SimProcess, linger: float, depth: int) -> None:
    """Acquire the lock a few times, with pauses shorter or longer than it stays cached."""
    owner = object()
    for _ in range(world.rng.randint(1, 5)):
        if await take(world, process, owner, linger, maybe_timeout(world)):
            await hold(world, process, owner, linger, depth)
        await Run(pause(world))


async def pause(world: Simulation) -> None:
    await Wait(limit=world.rng.choice((0.0, 0.0, 0.003, 0.03, 0.15, 0.3)))


class HolderOracle(Check):
    """The holders according to the tasks' records."""

    def __init__(self) -> None:
        self.holding: dict[str, Record] = {}

    def see(self, world: Simulation, record: Record) -> None:
        if record.fields.get("what") == "lock" and record.event == "granted":
            self.holding[record.task] = record
        elif record.event in ("released", "lost"):
            self.holding.pop(record.task, None)


async def inspector(world: Simulation, process: SimProcess, oracle: HolderOracle) -> None:
    """Read a few times whether the lock is held, and sometimes delete the holder's znode, or revoke the
    lock. A read must find it held if one thread holds it from the start of the read to its end.
    """
    core = core_of(process)
    for _ in range(world.rng.randint(1, 4)):
        await Run(pause(world))
        what = world.rng.random()
        if what < 0.7:
            before = list(oracle.holding.values())
            with suppress(DeadlineError):  # no server is reachable
                locked = await Run(core.locked(), world.rng.choice((None, 0.0, 2.0)))
                same = [each for each in before if oracle.holding.get(each.task) is each and holds(world, each)]
                if same and not locked:
                    world.fail(f"{process.name} found the lock free, but {same[0].task} held it all the time")
        elif what < 0.85:
            delete_holder(world)
        else:
            await revoke(world)


def delete_holder(world: Simulation) -> None:
    """Delete the znode of a contender that holds or caches the lock, as an external client."""
    names = [path.rpartition("/")[2] for path in world.leftovers() if path.startswith(f"{PATH}/")]
    for first in wait_queue.in_order(names)[:1]:
        stat = world.external_client(steps.Exists(f"{PATH}/{first.name}"))
        if stat is not None:
            world.tampered.add(stat.ephemeral_owner)
            world.external_client(steps.Delete(f"{PATH}/{first.name}"))


async def revoke(world: Simulation) -> None:
    """Ask the holder, and after a while take the lock from it."""
    try:
        asked = await Run(revocation.request_revocation(PATH))
        left = await Run(revocation.still_held(asked), 0.4)
    except NotHeldError:
        return
    await take_from_holders(world, left)


def run(world: Simulation, depth: int) -> None:
    oracle = HolderOracle()
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/"), oracle]
    for process in processes(world, 2, 3):
        linger = world.rng.choice((KEEP, KEEP, KEEP, 1.0, 0.0))
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, thread(world, process, linger, depth))
    if world.rng.random() < 0.4:
        spawn(world.process(OBSERVER), inspector(world, world.processes[OBSERVER], oracle), name="inspector")
    rng = separate_rng(world, "kept")
    if rng.random() < 0.15:
        spawn(process, inspector(world, process, oracle), name="inspector of its own")
    if rng.random() < 0.15:
        create_externally(world, PATH, b"of a client that writes there")
    if rng.random() < 0.15:
        core = core_of(process)
        spawn(process, close_client(world, process, lambda: core.cached is not None), name="closer")
    finish(world)


# Contenders of a process that re-acquires a cached lock


async def reacquirer(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """Hold the lock again and again while others try to acquire it."""
    owner = object()
    while not over:
        if await take(world, process, owner, KEEP, None):
            await hold(world, process, owner, KEEP, 1)
        await Run(gap(world))


async def gap(world: Simulation) -> None:
    await Wait(limit=world.rng.choice((0.0, 0.001, 0.005, 0.02)))


async def waiter(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """Acquire the lock twice; the re-acquiring process must not starve this one."""
    await Run(pause(world))
    owner = object()
    try:
        for _ in range(2):
            if await Run(core_of(process).acquire(owner, b"{}")):
                await hold(world, process, owner, 0.0, 1)
    finally:
        over.append(True)


async def non_blocking_acquirer(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    """Try until it succeeds without waiting: the lock is free most of the time."""
    owner = object()
    try:
        while not await Run(core_of(process).acquire(owner, b"{}", False), 0.0):
            await Run(gap(world))
        await hold(world, process, owner, 0.0, 1)
    finally:
        over.append(True)


def play_fair(world: Simulation) -> None:
    """Check that a process that re-acquires and caches the lock starves neither a waiter nor a
    non-blocking caller.
    """
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/")]
    over: list[bool] = []
    others = waiter if world.rng.random() < 0.5 else non_blocking_acquirer
    process = world.process("a")
    for _ in range(world.rng.randint(1, 2)):
        spawn(process, reacquirer(world, process, over), daemon=False)
    spawn(world.process("b"), others(world, world.processes["b"], over))
    finish(world)


# An idle cache refuses nobody


async def once(world: Simulation, process: SimProcess, released: list[bool]) -> None:
    owner = object()
    for _ in range(world.rng.randint(1, 3)):
        if await take(world, process, owner, LONG, None):
            await hold(world, process, owner, LONG, 1)
    released.append(True)


async def prober(world: Simulation, process: SimProcess, released: list[bool], how: str, found: list[bool]) -> None:
    """Read or try to acquire once the lock was released for the last time. Append to ``found`` whether
    it was free.
    """
    owner, core = object(), core_of(process)
    while not released:
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
    """Check that an idle cache refuses nobody: at least one attempt succeeds, and every reader sees a
    free lock.
    """
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/")]
    released: list[bool] = []
    found: list[bool] = []
    several = world.rng.random() < 0.5
    how = world.rng.choice(("try", "locked") if several else ("try", "brief", "locked", "wait"))
    process = world.process("a")
    spawn(process, once(world, process, released))
    for name in "bcd"[: world.rng.randint(2, 3) if several else 1]:
        other = world.process(name)
        spawn(other, prober(world, other, released, how, found))
    world.run()
    free = all(found) if how == "locked" else any(found)
    if not free and not world.faults.injected:
        world.fail(f"the lock is idle, but was refused ({how}): {found}")
    world.close()


CACHED_LOCK = Scenario("cached-lock", lambda world: run(world, 1))
CACHED_RLOCK = Scenario("cached-rlock", lambda world: run(world, 2))
CACHED_FAIR = Scenario("cached-fair", play_fair, ("lost_request", "lost_reply", "cut", "slow", "late_event", "pause"))
CACHED_IDLE = Scenario("cached-idle", play_idle, ("lost_request", "lost_reply", "cut", "slow", "late_event", "pause"))
