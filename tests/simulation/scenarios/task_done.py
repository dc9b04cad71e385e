"""Queue.task_done: exactly the surplus calls are rejected, and the counts agree at the end."""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    finish,
    processes,
    receipts,
    spawn,
    work,
)

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Exists

PATH = f"{ROOT}/queue/done"


def core_of(process: SimProcess) -> QueueCore:
    return process.local(PATH, lambda: QueueCore(PATH, receipts(process)))


async def put_all(world: Simulation, process: SimProcess, items: int) -> None:
    for number in range(items):
        await Run(core_of(process).put(b"%d" % number))
        world.record("put")


async def worker(world: Simulation, process: SimProcess, dones: int) -> None:
    """Make ``dones`` attempts to get an item, and call task_done after each, whether or not there was
    an item.
    """
    core = core_of(process)
    for _ in range(dones):
        if world.rng.random() < 0.7:
            await Run(core.get(b"", blocking=False))
        world.record("begun")
        due = await Run(core.task_done())
        world.record("due" if due else "surplus")
        if world.rng.random() < 0.3:
            await Run(work(world))


async def join(world: Simulation, process: SimProcess) -> None:
    await Run(core_of(process).join())
    world.record("joined")


def run(world: Simulation) -> None:
    observer, items = world.process(OBSERVER), world.rng.randint(1, 4)
    spawn(observer, put_all(world, observer, items))
    world.run(lambda: world.tasks_open == 0)
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 3)):
            spawn(process, worker(world, process, world.rng.randint(1, 2)))
    spawn(observer, join(world, observer), daemon=True)
    finish(world, lambda: compare(world, items))


def compare(world: Simulation, items: int) -> None:
    """Check the counts. Calls that were killed or interrupted may or may not have counted."""
    events = world.history.events
    begun, due, over = (len(events(name)) for name in ("begun", "due", "surplus"))
    puts, dones = (world.external_client(Exists(f"{PATH}/{name}")).version for name in ("puts", "dones"))
    unsure = begun - due - over
    if dones > puts and all(process.alive for process in world.processes.values()):
        world.fail(f"task_done counted {dones} times for {puts} puts")
    if not max(0, items - begun) <= puts - dones <= max(0, items - due):
        if dones <= puts:
            world.fail(f"{puts - dones} of {items} items are unfinished after {begun} calls, of which {due} were due")
    if not unsure and over != max(0, begun - items):
        world.fail(f"{over} of {begun} calls were rejected as surplus, but {items} items were put")
    if due >= items and not events("joined"):
        world.fail("join still waits although all items are done")


TASK_DONE = Scenario("task-done", run)
