"""A join whose deadline passes while it waits, or while no server answers, returns False."""

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
def test_join_returns_false_if_its_deadline_comes_first(away: float) -> None:
    told: list[bool] = []
    with Simulation(1) as world:
        one = world.process("one")
        one.spawn(put_and_join(one, away, told))
        world.run()
    assert told == [False]
