"""The deadline of a join comes while it waits, or while nobody answers: not all is done, and that is what it says."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.fifo import QueueCore

PATH = "/distsync/queue/q"


async def put_and_join(process: SimProcess, away: float, told: list[bool]) -> None:
    core = process.local(PATH, lambda: QueueCore(PATH, receipts(process)))
    await Run(core.put(b"item"))
    if away:
        process.cut(away=away)
    told.append(await Run(core.join(), 1.0))


@pytest.mark.parametrize("away", [0.0, 5.0])
def test_join_whose_deadline_comes_first_is_false(away: float) -> None:
    told: list[bool] = []
    with Simulation(1) as world:
        one = world.process("one")
        one.spawn(put_and_join(one, away, told))
        world.run()
    assert told == [False]
