"""Releases by another process: of several permits of which one was lost, interrupted ones, and of a
lock whose session then ends.
"""

from __future__ import annotations

import json

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.semaphores import multiprocessing_semaphore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import GetData, Wait
from distsync.errors import LockLostError, OverReleaseError, ReleasedTooOftenError

PATH = "/distsync/semaphore/s"
LOCK_PATH = "/distsync/lock/l"

#: Longer than a session.
AWAY_S = 30.0


def core_of(process: SimProcess) -> SemaphoreCore:
    return process.local(PATH, lambda: SemaphoreCore(PATH, 3, receipts(process)))


def taken(world: Simulation) -> int:
    return sum(path.startswith(f"{PATH}/_c_") for path in world.leftovers())


async def acquire(process: SimProcess) -> None:
    await Run(multiprocessing_semaphore.acquire_permit(core_of(process), b"", True, None, 3))


async def release(process: SimProcess, count: int = 1) -> None:
    await Run(multiprocessing_semaphore.release_permits(core_of(process), count, 3, [False], None))


async def release_after_a_loss(process: SimProcess) -> None:
    await acquire(process)
    process.cut(away=AWAY_S)
    await Wait(limit=2 * AWAY_S)
    for _ in range(2):
        await acquire(process)
    with pytest.raises(LockLostError):
        await release(process, 3)


def test_release_of_several_permits_of_which_one_was_lost_releases_the_others() -> None:
    with Simulation(1) as world:
        one = world.process("one")
        one.spawn(release_after_a_loss(one))
        world.run()
        assert taken(world) == 0


def test_interrupted_release_releases_exactly_one_permit() -> None:
    """Both in the process that acquired it and in another one."""
    struck = 0
    for step in range(1, 40):
        for releaser in ("one", "two"):
            with Simulation(step, faults=Faults(exactly=(Exactly("interrupt", releaser, step),))) as world:
                one, _ = world.process("one"), world.process("two")
                for _ in range(2):
                    one.spawn(acquire(one))
                world.run()
                before = taken(world)
                releasing = world.processes[releaser].spawn(release(world.processes[releaser]))
                world.run()
                if releasing.interrupted:
                    struck += 1
                    assert (before, taken(world)) == (2, 1), (step, releaser)
    assert struck


async def acquire_and_be_interrupted_late(process: SimProcess) -> None:
    """Let a release that is meant for another process's permit hit this one before it is dropped."""
    core = core_of(process)
    grant = await Run(multiprocessing_semaphore.acquire_permit(core, b"", True, None, 3))
    await Wait(limit=1.0)
    await release(process)
    process.background(multiprocessing_semaphore.drop_permit(core, grant, 3))


def test_interrupted_acquire_whose_permit_was_released_frees_another_permit_instead() -> None:
    with Simulation(1) as world:
        one, two = world.process("one"), world.process("two")
        one.spawn(acquire_and_be_interrupted_late(one))
        two.spawn(acquire(two))
        world.run()
        assert taken(world) == 0


def test_release_before_any_acquire_adds_no_permit() -> None:
    """Even if another process acquires at the same time."""
    refused = 0
    for seed in range(300):
        with Simulation(seed) as world:
            one, two = world.process("one"), world.process("two")
            releasing = one.spawn(release(one), expected=(OverReleaseError,))
            two.spawn(acquire(two))
            world.run()
            refused += releasing.error is not None
            permits = json.loads(world.external_client(GetData(PATH)).data)
            assert permits["extra"] == 0, seed
    assert refused


async def take_and_release_late(process: SimProcess) -> None:
    core = process.local(LOCK_PATH, lambda: LockCore(LOCK_PATH))
    await Run(multiprocessing_lock.acquire(core, process, b""))
    await Wait(limit=5.0)
    process.cut(away=AWAY_S)
    await Wait(limit=2 * AWAY_S)
    with pytest.raises(ReleasedTooOftenError):
        await Run(multiprocessing_lock.release(core, process))


async def release_soon(process: SimProcess) -> None:
    core = process.local(LOCK_PATH, lambda: LockCore(LOCK_PATH))
    await Wait(limit=2.0)
    await Run(multiprocessing_lock.release(core, process))


def test_lock_released_by_another_process_before_its_session_ended_is_not_reported_lost() -> None:
    with Simulation(1) as world:
        one, two = world.process("one"), world.process("two")
        one.spawn(take_and_release_late(one))
        two.spawn(release_soon(two))
        world.run()
