"""Queue.join returns False at its deadline, both while it waits and while no server replies."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.fifo import QueueCore

PATH = "/distsync/queue/q"


async def put_and_join(process: SimProcess, away: float, results: list[bool]) -> None:
    core = process.local(PATH, lambda: QueueCore(PATH, receipts(process)))
    await Run(core.put(b"item"))
    if away:
        process.cut(away=away)
    results.append(await Run(core.join(), 1.0))


@pytest.mark.parametrize("away", [0.0, 5.0])
def test_join_returns_false_at_its_deadline(away: float) -> None:
    results: list[bool] = []
    with Simulation(1) as world:
        one = world.process("one")
        one.spawn(put_and_join(one, away, results))
        world.run()
    assert results == [False]
