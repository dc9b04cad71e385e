"""Ctrl-C in shutdown(immediate=True): each discarded item counts as done once, and the others stay
unfinished.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import receipts

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import GetData, Multi, Pipeline

PATH = "/distsync/queue/q"
ITEMS = 3


def core(process: SimProcess) -> QueueCore:
    return process.local(PATH, lambda: QueueCore(PATH, receipts(process)))


async def put(process: SimProcess) -> None:
    for number in range(ITEMS):
        await Run(core(process).put(b"%d" % number))


async def shut_down(process: SimProcess) -> None:
    await Run(core(process).shutdown(True))


def discarded_item(task: Task) -> str | None:
    """Return the path of the item that the task is discarding, if any."""
    first = task.at.requests[0] if isinstance(task.at, Pipeline) else None
    path = first.operations[0].path if isinstance(first, Multi) else ""
    return path if path.startswith(f"{PATH}/items/") else None


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("discarded", range(ITEMS))
def test_interrupted_shutdown_counts_exactly_what_it_discarded(discarded: int, seed: int) -> None:
    with Simulation(seed) as world:
        one = world.process("one")
        one.spawn(put(one))
        world.run()
        task = one.spawn(shut_down(one), expected=(KeyboardInterrupt,))
        seen: list[str] = []

        def has_discarded() -> bool:
            path = discarded_item(task)
            if path is not None and path not in seen:
                seen.append(path)
            return len(seen) > discarded

        world.run(has_discarded)
        task.interrupted = True
        task.throw(KeyboardInterrupt())
        world.run()
        left = [path for path in world.leftovers() if path.startswith(f"{PATH}/items/") and "/i_" in path]
        puts, gets, dones = (
            world.external_client(GetData(f"{PATH}/{name}")).stat.version for name in ("puts", "gets", "dones")
        )
        assert (puts - gets, puts - dones) == (len(left), len(left))
        assert len(left) in (ITEMS - discarded - 1, ITEMS - discarded)
