"""Giving up or releasing a permit of multiprocessing that others have released ends in time and
without an error, even if the connection breaks at that moment, and releases another permit instead.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.runner import faults_of, run_seed
from simulation.engine.simulation import Simulation
from simulation.scenarios import SCENARIOS
from simulation.scenarios.common import receipts

from distsync._protocols.semaphores import multiprocessing_semaphore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import Delete, Exists, Wait
from distsync._protocols.wait_queue import QueueEntry

PATH = "/distsync/semaphore/s"

#: In these schedules the queue entry of a thread is deleted as it gives up, and its process was paused.
SEEDS = (7003780, 7004003, 7004024, 7004026)

#: When the call ends (seconds), and how long the outage lasts: longer than that, but shorter than a
#: session.
TIMEOUT_S, AWAY_S = 1.0, 5.0


def core_of(process: SimProcess, permits: int) -> SemaphoreCore:
    return process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))


async def take(process: SimProcess, permits: int, timeout: float) -> None:
    await Run(multiprocessing_semaphore.acquire_permit(core_of(process, permits), b"", True, None, permits), timeout)


async def try_to_take(process: SimProcess, permits: int) -> None:
    await Wait(limit=0.1)
    await take(process, permits, TIMEOUT_S - 0.1)


async def take_and_release(process: SimProcess, permits: int) -> None:
    await take(process, permits, TIMEOUT_S)
    await Wait(limit=TIMEOUT_S)
    await Run(
        multiprocessing_semaphore.release_permits(core_of(process, permits), 1, permits, [False], None), TIMEOUT_S
    )


def contenders(world: Simulation) -> dict[str, int]:
    """Return the znodes of holders and waiters, with their sessions."""
    node = world.server.engine.tree.node(PATH)
    paths = [f"{PATH}/{name}" for name in sorted(node.children)] if node else []
    return {path: world.external_client(Exists(path)).ephemeral_owner for path in paths}


async def delete_and_disconnect(process: SimProcess) -> None:
    """Delete the znode of ``process``, which is notified late, and break the connection just as its
    call cleans up.
    """
    world = process.world
    await Wait(limit=TIMEOUT_S - 0.1)
    process.dispatcher.stall()
    (mine,) = (path for path, owner in contenders(world).items() if owner == process.session.session_id)
    world.external_client(Delete(mine))
    await Wait(limit=0.1 + world.rng.randint(0, 20) / 1000)
    process.cut(away=AWAY_S)
    process.dispatcher.unstall()


def play_all(work: Callable[[SimProcess, int], Coroutine[Any, Any, None]], permits: int, left: int) -> None:
    """Let two other processes acquire a permit too, or wait for it, and check how many permits are
    taken at the end.
    """
    for seed in range(400):
        with Simulation(seed) as world:
            for name in ("two", "three"):
                other = world.process(name)
                other.spawn(take(other, permits, 60.0))
            process = world.process("one")
            process.spawn(work(process, permits))
            world.process("release").spawn(delete_and_disconnect(process))
            world.run()
            assert len(contenders(world)) == left, seed


@pytest.mark.slow
def test_acquire_whose_entry_was_released_gives_up_in_time_in_an_outage() -> None:
    play_all(try_to_take, 1, 1)


@pytest.mark.slow
def test_release_of_a_permit_that_others_released_ends_in_time_in_an_outage() -> None:
    play_all(take_and_release, 3, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_acquire_of_a_paused_process_whose_entry_was_deleted_gives_up(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, found_deleted = multiprocessing_semaphore._cancel, []

    async def watched(release: multiprocessing_semaphore.PermitRelease, entry: QueueEntry) -> bool:
        is_cancelled = await cancel(release, entry)
        found_deleted.append(not is_cancelled)
        return is_cancelled

    monkeypatch.setattr(multiprocessing_semaphore, "_cancel", watched)
    scenario = SCENARIOS["cross-process-permits"]
    world = run_seed(scenario, seed, faults_of(scenario, seed))
    assert {"intruder", "pause"} <= {placed.kind for placed in world.faults.injected}
    assert any(found_deleted)
