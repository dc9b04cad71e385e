"""Ctrl-C in a put that is part of a batch: if it was not sent yet, or was lost, it is not sent again;
the others are.
"""

from __future__ import annotations

import json

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import GetData, Pipeline

PATH = "/distsync/queue/q"

#: For how long the connection is broken.
AWAY_S = 2.0


async def put(process: SimProcess, item: int) -> None:
    core = process.local(PATH, lambda: QueueCore(PATH, receipts(process)))
    await Run(core.put(json.dumps(item).encode(), coalesce=True))


def is_batch_requested(process: SimProcess) -> bool:
    """Return whether a batch of several puts was requested."""
    return any(task.background and isinstance(task.at, Pipeline) for task in process.tasks)


def present(world: Simulation) -> list[int]:
    paths = [path for path in world.leftovers() if path.startswith(f"{PATH}/items/") and "/i_" in path]
    return sorted(json.loads(world.external_client(GetData(path)).data) for path in paths)


def test_put_interrupted_while_its_batch_was_lost_is_not_sent_again() -> None:
    lost = 0
    for seed in range(30):
        with Simulation(seed) as world:
            one = world.process("one")
            one.spawn(put(one, 0))
            world.run()
            tasks = [one.spawn(put(one, number)) for number in (1, 2, 3)]
            world.run(lambda: world.tasks_open == 0 or is_batch_requested(one))  # noqa: B023
            if world.tasks_open == 0:
                continue
            one.cut(away=AWAY_S)
            cut_ms = world.now_ms
            world.clockwork.after(round(AWAY_S * 500), lambda: None)
            world.run(lambda: world.now_ms >= cut_ms + AWAY_S * 500)  # noqa: B023
            there = present(world)
            interrupted_put = next((task for task in tasks[1:] if not task.done), None)
            if interrupted_put is None or tasks.index(interrupted_put) + 1 in there:
                continue
            lost += 1
            interrupted_put.interrupted = True
            interrupted_put.throw(KeyboardInterrupt())
            world.run()
            interrupted_item = tasks.index(interrupted_put) + 1
            assert present(world) == [number for number in range(4) if number != interrupted_item], seed
    assert lost
