"""Semaphore(0): a non-blocking acquire returns False only if there was no permit, whatever others
acquire and release at the same time.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.semaphores.consumable import SignalCore

PATH = "/distsync/semaphore/s"
SCHEDULES = 400


def core(process: SimProcess) -> SignalCore:
    return process.local(PATH, lambda: SignalCore(PATH, receipts(process)))


async def release(process: SimProcess) -> None:
    await Run(core(process).release())


async def attempt(process: SimProcess, results: list[bool]) -> None:
    results.append(await Run(core(process).acquire(b"", False), 0.0))


async def release_and_attempt(process: SimProcess, results: list[bool]) -> None:
    await release(process)
    await attempt(process, results)


def test_attempt_succeeds_if_a_permit_is_available_throughout() -> None:
    for seed in range(SCHEDULES):
        with Simulation(seed) as world:
            one, two, results = world.process("one"), world.process("two"), list[bool]()
            two.spawn(release(two))
            world.run()
            two.spawn(release_and_attempt(two, results))
            one.spawn(attempt(one, results))
            world.run()
            assert results == [True, True], seed
