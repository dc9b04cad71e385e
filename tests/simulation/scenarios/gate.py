"""Gate: nobody passes while it is closed, and opening it wakes all waiters, even if it is closed
immediately afterwards.

Whether the gate is closed is judged by the server's tree.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    spawn,
    work,
)

from distsync._protocols.state.gate import GateCore
from distsync._protocols.steps import Wait
from distsync.errors import OutcomeUnknownError

PATH = f"{ROOT}/gate/g"


class Closed(Check):
    """Check that a task passes only if ``path`` did not exist at some moment of its call.

    A task records ``waiting`` before the call and ``passed`` after it.
    """

    def __init__(self, path: str, closed_at_first: bool = False) -> None:
        self.path = path
        self.closed = closed_at_first
        self.openings = 0
        self.begun: dict[str, tuple[bool, int]] = {}

    def changed(self, world: Simulation) -> None:
        there = world.server.engine.tree.node(self.path) is not None
        self.openings += self.closed and not there
        self.closed = there

    def see(self, world: Simulation, record: Record) -> None:
        if record.event == "waiting":
            self.begun[record.task] = (self.closed, self.openings)
        elif record.event == "passed" and self.begun[record.task] == (True, self.openings):
            world.fail(f"{record.task} passed although it was closed throughout")


def core_of(process: SimProcess) -> GateCore:
    return process.local(PATH, lambda: GateCore(PATH, receipts(process)))


async def waiter(world: Simulation, process: SimProcess) -> None:
    """Wait a few times."""
    for _ in range(world.rng.randint(1, 4)):
        world.record("waiting")
        passed = await Run(core_of(process).wait(), maybe_timeout(world))
        world.record("passed" if passed else "gave up")
        await Run(work(world))


def calls_of(world: Simulation, task: Task) -> tuple[int, int]:
    """Return how many calls of wait the task began, and how many ended."""
    events = [record.event for record in world.history.records if record.task == task.name]
    return events.count("waiting"), events.count("passed") + events.count("gave up")


async def keeper(world: Simulation, process: SimProcess, waiters: list[Task], alone: bool) -> None:
    """Close and open the gate; threads that were waiting must wake."""
    for _ in range(world.rng.randint(1, 4)):
        if world.rng.random() < 0.5:
            await Run(work(world))
        try:
            await Run(core_of(process).close())
            if alone and world.server.engine.tree.node(PATH) is None:
                world.fail("close has returned, but the gate is open")
            await Run(work(world))
            asleep = [(task, calls_of(world, task)) for task in waiters if not task.done and isinstance(task.at, Wait)]
            await Run(core_of(process).open())
            if alone and world.server.engine.tree.node(PATH) is not None:
                world.fail("open has returned, but the gate is closed")
        except OutcomeUnknownError:
            continue
        if alone:
            world.record("opened", asleep=asleep)


def run(world: Simulation) -> None:
    world.checks.append(Closed(PATH))
    waiters = [
        spawn(process, waiter(world, process), name=f"waiter{number}{process.name}", daemon=True)
        for process in processes(world, 1, 3)
        for number in range(world.rng.randint(1, 2))
    ]
    keepers = world.rng.choice((1, 1, 2))
    for number in range(keepers):
        process = world.process(f"keeper{number}")
        spawn(process, keeper(world, process, waiters, keepers == 1))
    world.run()
    for record in world.history.events("opened"):
        for task, calls in record.asleep:
            if not task.done and task.process.alive and calls_of(world, task) == calls and isinstance(task.at, Wait):
                world.fail(f"{task.name} still waits although the gate was opened at {record.at_ms} ms")
    world.close()


GATE = Scenario("gate", run)
