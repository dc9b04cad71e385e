"""Locks and semaphores of multiprocessing: used like those of threads, and released by another
process.
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
    is_disturbed_beyond,
    maybe_timeout,
    processes,
    receipts,
    rescue,
    spawn,
    work,
)
from simulation.scenarios.semaphore import PATH, count_free, distsync_core

from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.semaphores import multiprocessing_semaphore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import SetData, Wait
from distsync.errors import LockLostError, OverReleaseError, ReleasedTooOftenError

LOCK_PATH = f"{ROOT}/lock/l"


# Locks that their holder releases itself


async def locker(world: Simulation, process: SimProcess) -> None:
    """Acquire the lock once or twice, as a ``with`` block does."""
    owner, core = object(), process.local(LOCK_PATH, lambda: LockCore(LOCK_PATH))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        if not await Run(multiprocessing_lock.acquire(core, owner, b"", timeout != 0.0), timeout):
            continue
        grant = core.grant
        if grant is not None:
            entry = grant.entry
            world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)
        try:
            await Run(work(world))
        finally:
            world.record("released", what="lock")
            await Run(unlock(world, core, owner))


async def unlock(world: Simulation, core: LockCore, owner: object) -> None:
    """Release the lock; fail on a loss, or a release by another process, without a fault."""
    try:
        await multiprocessing_lock.release(core, owner)
    except (LockLostError, ReleasedTooOftenError) as error:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")


def play_lock(world: Simulation) -> None:
    world.checks += [Exclusion("lock"), NothingLeft(f"{LOCK_PATH}/")]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, locker(world, process))
    finish(world)


# Permits that another process releases

#: Faults after which each permit is still released by the process that was asked to. After any
#: other a holder may have lost its permit, or was killed: a release meant for it hits that of
#: another holder, and one permit may stay taken.
MILD = ("lost_reply", "lost_request", "cut", "lag", "late_event", "slow", "interrupt", "deadline", "stall")
is_disturbed = partial(is_disturbed_beyond, MILD)


class NoneAdded(Check):
    """Check that, with a bound, a release by another process frees the permit that was taken, and adds
    none.
    """

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is not None and json.loads(node.data or b"")["extra"]:
            world.fail("a permit was added")


async def passer(world: Simulation, process: SimProcess, releasers: list[SimProcess], permits: int) -> None:
    """Acquire a permit a few times; this or another process releases it, even after an interrupt."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    for _ in range(world.rng.randint(1, 3)):
        timeout = maybe_timeout(world)
        taking = multiprocessing_semaphore.acquire_permit(core, b"", timeout != 0.0, None, permits)
        grant = await Run(taking, timeout)
        if grant is None:
            continue
        if world.rng.random() < 0.1:  # as if interrupted right after the acquisition
            process.background(multiprocessing_semaphore.drop_permit(core, grant, permits))
            continue
        count = 1
        try:
            if permits > 1 and world.rng.random() < 0.2:
                another = multiprocessing_semaphore.acquire_permit(core, b"", False, None, permits)
                count += await Run(another, 0.0) is not None
            await Run(work(world))
        finally:
            if not world.muted:  # a killed process releases nothing
                releaser = world.rng.choice([releaser for releaser in releasers if releaser.alive])
                if releaser is process:
                    await release(world, process, permits, count)
                else:
                    spawn(releaser, release(world, releaser, permits, count))


async def release(world: Simulation, process: SimProcess, permits: int, count: int) -> None:
    """Release as the public class does, which completes a release that was interrupted before it
    began.
    """
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    begun = [False]

    def releasing() -> Coroutine[Any, Any, None]:
        return multiprocessing_semaphore.release_permits(core, count, permits, begun, None)

    while True:
        try:
            await Run(releasing())
            return
        except (LockLostError, OverReleaseError) as error:
            if not world.faults.injected:
                world.fail(f"a permit was taken, but its release failed: {error}")
            if count > 1:
                world.record("unsure")
            if isinstance(error, OverReleaseError):
                return
        except KeyboardInterrupt:
            if not begun[0]:
                process.background(multiprocessing_semaphore._release_rest(core, count, permits, None))
            raise


async def release_one(process: SimProcess, permits: int) -> None:
    """Release a permit if one is taken."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    await Run(multiprocessing_semaphore._release_another(core, permits))


def play_permits(world: Simulation) -> None:
    permits = world.rng.randint(1, 3)
    world.checks += [NoneAdded(), NothingLeft(f"{PATH}/", lambda path: is_disturbed(world)), LastNumbers(world, PATH)]
    releasers = list(processes(world, 2, 3))
    for process in releasers:
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, passer(world, process, releasers, permits))
    if world.rng.random() < 0.2:
        spawn(world.process("stranger"), rewrite(world))
    rescue(world, is_disturbed, partial(release_one, permits=permits))
    finish(world, lambda: check_free(world, permits))


async def rewrite(world: Simulation) -> None:
    """Write the semaphore's data back unchanged, as an external client."""
    for _ in range(4):
        await Wait(limit=world.rng.randint(0, 20) / 1000)
        node = world.server.engine.tree.node(PATH)
        if node is not None:
            world.external_client(SetData(PATH, node.data or b""))


def check_free(world: Simulation, permits: int) -> None:
    """Check the permits, after releasing from outside those that may have stayed taken."""
    if is_disturbed(world):
        observer = world.processes[OBSERVER]
        for _ in range(permits):
            spawn(observer, release_one(observer, permits))
        world.run()
    count_free(world, permits, permits, distsync_core)


#: No ``intruder``: deleting a holder's znode counts as a release of the lock, so that the holder's
#: own release is one too many, and may hit another holder.
LOCK_KINDS = tuple(kind for kind in KINDS if kind != "intruder")

CROSS_PROCESS_LOCK = Scenario("cross-process-lock", play_lock, LOCK_KINDS)
CROSS_PROCESS_PERMITS = Scenario("cross-process-permits", play_permits)
