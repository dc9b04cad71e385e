"""A waiting getter gets a delayed item when it is due, whatever other threads of its process have
seen.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import receipts

from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.steps import GetData, Pipeline

PATH = "/distsync/queue/q"
DELAY_S, PROMPT_MS, TIMEOUT_S = 1.0, 5_000, 40.0


def core(process: SimProcess) -> JoinableCore:
    return process.local(PATH, lambda: JoinableCore(PATH, receipts(process)))


async def put(process: SimProcess) -> None:
    await Run(core(process).add(b"late", True, DELAY_S))


async def attempt(process: SimProcess) -> None:
    await Run(core(process).claim(b"tries", False), 0.0)


def is_listing_delayed_items(task: Task) -> bool:
    """Return whether the task is about to receive the list of delayed items."""
    asked = task.at.requests if isinstance(task.at, Pipeline) else ()
    return task.has_work() and any(request.path == f"{PATH}/delayed" for request in asked)


def is_reading_state(task: Task) -> bool:
    first = task.at.requests[0] if isinstance(task.at, Pipeline) else None
    return isinstance(first, GetData) and first.path == f"{PATH}/state"


def test_getter_wakes_when_a_delayed_item_is_due_although_another_thread_saw_none() -> None:
    for seed in range(20):
        with Simulation(seed) as world:
            one, two, waited = world.process("one"), world.process("two"), list[int]()

            async def wait() -> None:
                began_ms = world.now_ms
                assert await Run(core(one).claim(b"waits", True), TIMEOUT_S)  # noqa: B023
                waited.append(world.now_ms - began_ms)  # noqa: B023

            one.spawn(attempt(one))
            world.run()
            tries = one.spawn(attempt(one))
            world.run(lambda: is_listing_delayed_items(tries))  # noqa: B023
            tries.stall()  # the thread gets no CPU time for a while
            puts = two.spawn(put(two))
            world.run(lambda: puts.done)  # noqa: B023
            waits = one.spawn(wait())
            world.run(lambda: is_reading_state(waits))  # noqa: B023
            tries.unstall()
            world.run()
            assert waited[0] < PROMPT_MS, seed
