"""Event: who waits when it is set goes on, however soon it is cleared.

Rules for this file: threads use one core a process, as the faces do.
"""

from __future__ import annotations

from distsync.errors import OutcomeUnknownError
from distsync.protocols.event import EventCore
from distsync.session.steps import Wait
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.base import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    spawn,
    work,
)
from distsync.testing.simulation.task import Task
from distsync.testing.simulation.world import World

PATH = f"{ROOT}/event/e"


def core_of(process: SimProcess) -> EventCore:
    return process.local(PATH, lambda: EventCore(PATH, receipts(process)))


async def waiter(world: World, process: SimProcess) -> None:
    """Waits some times; True only if it was set."""
    for _ in range(world.rng.randint(1, 3)):
        if await Run(core_of(process).wait(), maybe_timeout(world)) and not world.history.events("setting"):
            world.fail("wait returned True, and nobody has set the event")


async def pulser(world: World, process: SimProcess, waiters: list[Task]) -> None:
    """Sets it and clears it; who waited before must go on."""
    for _ in range(world.rng.randint(1, 3)):
        await Run(work(world))
        asleep = [(task, task.at) for task in waiters if not task.done and isinstance(task.at, Wait)]
        world.record("setting")
        try:
            await Run(core_of(process).set())
        except OutcomeUnknownError:
            continue
        world.record("set", asleep=asleep)
        if world.rng.random() < 0.7:
            try:
                await Run(core_of(process).clear())
            except OutcomeUnknownError:
                continue


def play(world: World) -> None:
    waiters = [
        spawn(process, waiter(world, process), name=f"waiter{number}", daemon=True)
        for process in processes(world, 1, 3)
        for number in range(world.rng.randint(1, 2))
    ]
    setter = world.process("setter")
    spawn(setter, pulser(world, setter, waiters))
    world.run()
    for record in world.history.events("set"):
        for task, at in record.asleep:
            if task.at is at and not task.done and task.process.alive:
                world.fail(f"{task.name} still sleeps, although the event was set at {record.at_ms} ms")
    world.close()


EVENT = Scenario("event", play)
