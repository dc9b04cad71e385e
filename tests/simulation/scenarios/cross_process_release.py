"""Locks and semaphores of processes: as those of threads; and permits that another process releases."""

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


# A lock that its holder releases: as for threads


async def locker(world: Simulation, process: SimProcess) -> None:
    """Take the lock several times, as a ``with`` block does."""
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
    """Without a fault there is neither a loss nor a release by another process."""
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


# Permits that other processes release

#: Faults after which each permit is still released by the process that was asked to. After any
#: other a holder may have lost its permit, or exited: a release meant for it hits another holder's,
#: and one may stay taken.
MILD = ("lost_reply", "lost_request", "cut", "lag", "late_event", "slow", "interrupt", "deadline", "stall")
is_upset = partial(upset, MILD)


class NoneAdded(Check):
    """With a bound, a permit released by another process is the one that was taken, not an additional
    one.
    """

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is not None and json.loads(node.data or b"")["extra"]:
            world.fail("a permit was added")


async def passer(world: Simulation, process: SimProcess, givers: list[SimProcess], permits: int) -> None:
    """Take a permit several times; this or another thread releases it, even if interrupted."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    for _ in range(world.rng.randint(1, 3)):
        timeout = maybe_timeout(world)
        taking = cross_process_semaphores.acquire_permit(core, b"", timeout != 0.0, None, permits)
        grant = await Run(taking, timeout)
        if grant is None:
            continue
        if world.rng.random() < 0.1:  # an interrupt, as soon as it has the permit
            process.background(cross_process_semaphores.drop_permit(core, grant, permits))
            continue
        count = 1
        try:
            if permits > 1 and world.rng.random() < 0.2:
                another = cross_process_semaphores.acquire_permit(core, b"", False, None, permits)
                count += await Run(another, 0.0) is not None
            await Run(work(world))
        finally:
            if not world.muted:  # a process that has exited releases nothing
                giver = world.rng.choice([giver for giver in givers if giver.alive])
                if giver is process:
                    await give_back(world, process, permits, count)
                else:
                    spawn(giver, give_back(world, giver, permits, count))


async def give_back(world: Simulation, process: SimProcess, permits: int, count: int) -> None:
    """Release as the public object does, which completes a release that was interrupted before it
    started.
    """
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
    """Release one, if any is taken."""
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
    """Write the current data of the semaphore again."""
    for _ in range(4):
        await Wait(limit=world.rng.randint(0, 20) / 1000)
        node = world.server.engine.tree.node(PATH)
        if node is not None:
            world.external_client(SetData(PATH, node.data or b""))


def count_free_at_last(world: Simulation, permits: int) -> None:
    """Check that a permit that may have stayed taken can be released by any process."""
    if is_upset(world):
        observer = world.processes[OBSERVER]
        for _ in range(permits):
            spawn(observer, give_one(observer, permits))
        world.run()
    count_free(world, permits, permits, ours)


#: A client that deletes a holder's znode has released the lock, as far as others can know: the
#: holder's own release is then one too many, and may hit another holder's.
LOCK_KINDS = tuple(kind for kind in KINDS if kind != "intruder")

HANDED_LOCK = Scenario("handed-lock", play_lock, LOCK_KINDS)
HANDED_PERMITS = Scenario("handed-permits", play_permits)
