"""Locks and semaphores of processes: as those of threads; and what one process took, another gives back.

Rules for this file: threads use one core a process, as the faces do.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS
from simulation.engine.invariants import Check, Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    LastNumbers,
    Scenario,
    finish,
    maybe_timeout,
    processes,
    receipts,
    rescue,
    spawn,
    upset,
    work,
)
from simulation.scenarios.semaphore import PATH, count_free, ours

from distsync._protocols.locks import cross_process as cross_process_locks
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.semaphores import cross_process as cross_process_semaphores
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import SetData, Wait
from distsync.errors import LockLostError, OverReleaseError, ReleasedTooOftenError

LOCK_PATH = f"{ROOT}/lock/l"


# A lock that each gives back himself: nothing is changed for him


async def locker(world: Simulation, process: SimProcess) -> None:
    """Takes the lock some times, as a ``with`` block does."""
    owner, core = object(), process.local(LOCK_PATH, lambda: LockCore(LOCK_PATH))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        if not await Run(cross_process_locks.acquire(core, owner, b"", timeout != 0.0), timeout):
            continue
        grant = core.grant
        if grant is not None:
            place = grant.place
            world.record("granted", what="lock", session_id=place.session_id, token=place.token, loss=grant.loss)
        try:
            await Run(work(world))
        finally:
            world.record("released", what="lock")
            await Run(unlock(world, core, owner))


async def unlock(world: Simulation, core: LockCore, owner: object) -> None:
    """Neither a loss nor a release by somebody else without a fault."""
    try:
        await cross_process_locks.release(core, owner)
    except (LockLostError, ReleasedTooOftenError) as error:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")


def play_lock(world: Simulation) -> None:
    world.checks += [Exclusion("lock"), NothingLeft(f"{LOCK_PATH}/")]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, locker(world, process))
    finish(world)


# Permits that others give back

#: Faults after which each permit is given back by who was told to. After any other a holder may have lost his, or died:
#: a release that is meant for it meets somebody else's, and one may stay taken.
MILD = ("lost_reply", "lost_request", "cut", "lag", "late_event", "slow", "interrupt", "deadline", "stall")
is_upset = partial(upset, MILD)


class NoneAdded(Check):
    """Where there is a bound, a permit that somebody else gives back is the one that was taken, and no further one."""

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is not None and json.loads(node.data or b"")["extra"]:
            world.fail("a permit was added")


async def passer(world: Simulation, process: SimProcess, givers: list[SimProcess], permits: int) -> None:
    """Takes a permit some times; he or somebody else gives it back, and does so though he is interrupted."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    for _ in range(world.rng.randint(1, 3)):
        timeout = maybe_timeout(world)
        taking = cross_process_semaphores.acquire_permit(core, b"", timeout != 0.0, None, permits)
        grant = await Run(taking, timeout)
        if grant is None:
            continue
        if world.rng.random() < 0.1:  # an interrupt, as soon as he has it
            process.background(cross_process_semaphores.drop_permit(core, grant, permits))
            continue
        count = 1
        try:
            if permits > 1 and world.rng.random() < 0.2:
                another = cross_process_semaphores.acquire_permit(core, b"", False, None, permits)
                count += await Run(another, 0.0) is not None
            await Run(work(world))
        finally:
            if not world.muted:  # who is dead gives nothing back
                giver = world.rng.choice([giver for giver in givers if giver.alive])
                if giver is process:
                    await give_back(world, process, permits, count)
                else:
                    spawn(giver, give_back(world, giver, permits, count))


async def give_back(world: Simulation, process: SimProcess, permits: int, count: int) -> None:
    """As the face does, who sees to a release that was interrupted before it had begun."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    begun = [False]

    def releasing() -> Coroutine[Any, Any, None]:
        return cross_process_semaphores.release_permits(core, count, permits, begun, None)

    while True:
        try:
            await Run(releasing())
            return
        except (LockLostError, OverReleaseError) as error:
            if not world.faults.injected:
                world.fail(f"a permit was taken, and cannot be given back: {error}")
            if count > 1:
                world.record("unsure")
            if isinstance(error, OverReleaseError):
                return
        except KeyboardInterrupt:
            if not begun[0]:
                process.background(cross_process_semaphores._release_rest(core, count, permits, None))
            raise


async def give_one(process: SimProcess, permits: int) -> None:
    """If any is taken."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    await Run(cross_process_semaphores._release_another(core, permits))


def play_permits(world: Simulation) -> None:
    permits = world.rng.randint(1, 3)
    world.checks += [NoneAdded(), NothingLeft(f"{PATH}/", lambda path: is_upset(world)), LastNumbers(world, PATH)]
    givers = list(processes(world, 2, 3))
    for process in givers:
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, passer(world, process, givers, permits))
    if world.rng.random() < 0.2:
        spawn(world.process("stranger"), rewrite(world))
    rescue(world, is_upset, partial(give_one, permits=permits))
    finish(world, lambda: count_free_at_last(world, permits))


async def rewrite(world: Simulation) -> None:
    """Somebody writes into the semaphore what stands there."""
    for _ in range(4):
        await Wait(limit=world.rng.randint(0, 20) / 1000)
        node = world.server.engine.tree.node(PATH)
        if node is not None:
            world.external_client(SetData(PATH, node.data or b""))


def count_free_at_last(world: Simulation, permits: int) -> None:
    """Where a permit may have stayed taken, it can be given back by anybody."""
    if is_upset(world):
        observer = world.processes[OBSERVER]
        for _ in range(permits):
            spawn(observer, give_one(observer, permits))
        world.run()
    count_free(world, permits, permits, ours)


#: Who deletes the znode of a holder by hand has given the lock back, as far as anybody can know: the holder's own
#: release is one too many then, and may meet somebody else's.
LOCK_KINDS = tuple(kind for kind in KINDS if kind != "intruder")

HANDED_LOCK = Scenario("handed-lock", play_lock, LOCK_KINDS)
HANDED_PERMITS = Scenario("handed-permits", play_permits)
