"""Semaphore(0): a non-blocking acquire returns False only if there was no permit, despite concurrent
acquires and releases.
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


async def attempt(process: SimProcess, told: list[bool]) -> None:
    told.append(await Run(core(process).acquire(b"", False), 0.0))


async def release_and_attempt(process: SimProcess, told: list[bool]) -> None:
    await release(process)
    await attempt(process, told)


def test_attempt_gets_a_permit_if_one_is_there_all_the_time() -> None:
    for seed in range(SCHEDULES):
        with Simulation(seed) as world:
            one, two, told = world.process("one"), world.process("two"), list[bool]()
            two.spawn(release(two))
            world.run()
            two.spawn(release_and_attempt(two, told))
            one.spawn(attempt(one, told))
            world.run()
            assert told == [True, True], seed
