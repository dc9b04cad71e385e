"""Ctrl-C in a get while a counter is deleted: the item is restored, and no request is repeated
endlessly.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import receipts

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Delete, Multi, Pipeline

PATH = "/distsync/queue/q"


def core(process: SimProcess) -> QueueCore:
    return process.local(PATH, lambda: QueueCore(PATH, receipts(process)))


async def put(process: SimProcess) -> None:
    await Run(core(process).put(b"item"))


async def get(process: SimProcess) -> None:
    await Run(core(process).get(b""))


def has_reply_with_item(task: Task) -> bool:
    return task.has_work() and isinstance(task.at, Pipeline) and isinstance(task.at.requests[0], Multi)


@pytest.mark.parametrize("counter", ["puts", "dones"])
def test_item_of_an_interrupted_get_is_restored_without_a_counter(counter: str) -> None:
    with Simulation(1) as world:
        one = world.process("one")
        one.spawn(put(one))
        world.run()
        task = one.spawn(get(one), expected=(KeyboardInterrupt,))
        world.run(lambda: has_reply_with_item(task))
        world.external_client(Delete(f"{PATH}/{counter}"))
        task.interrupted = True
        task.throw(KeyboardInterrupt())
        world.run()
        assert [path for path in world.leftovers() if path.startswith(f"{PATH}/items/") and "/i_" in path]
