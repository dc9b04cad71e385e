"""Event: setting it wakes all waiters, even if it is cleared immediately afterwards."""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    spawn,
    work,
)

from distsync._protocols.state.event import SET, EventCore
from distsync._protocols.steps import Wait
from distsync.errors import OutcomeUnknownError

PATH = f"{ROOT}/event/e"

#: Time within which a reader sees a change.
PROMPT_MS = 30
CHANGES = ("setting", "set", "clearing", "cleared")


def core_of(process: SimProcess) -> EventCore:
    return process.local(PATH, lambda: EventCore(PATH, receipts(process)))


async def waiter(world: Simulation, process: SimProcess) -> None:
    """Wait a few times; only a set may make the result True."""
    for _ in range(world.rng.randint(1, 3)):
        if await Run(core_of(process).wait(), maybe_timeout(world)) and not world.history.events("setting"):
            world.fail("wait returned True, but the event was never set")


async def reader(world: Simulation, process: SimProcess) -> None:
    """Read the flag a few times; a value that has not changed for a while must be seen."""
    for _ in range(world.rng.randint(1, 4)):
        await Run(work(world))
        since_ms = world.now_ms
        seen = await Run(core_of(process).is_set())
        marks = [record for record in world.history.records if record.event in CHANGES]
        last = marks[-1] if marks else None
        if last and (
            world.faults.injected or last.event in ("setting", "clearing") or last.at_ms + PROMPT_MS > since_ms
        ):
            continue  # the value is unknown, or too recent
        if seen != (last is not None and last.event == "set"):
            world.fail(f"is_set is {seen}, after {last.event if last else 'nothing'}")


async def pulser(world: Simulation, process: SimProcess, waiters: list[Task]) -> None:
    """Set and clear the event; threads that were waiting must wake."""
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
            world.record("clearing")
            try:
                await Run(core_of(process).clear())
            except OutcomeUnknownError:
                continue
            world.record("cleared")


async def background_changer(world: Simulation, process: SimProcess) -> None:
    """Change the flag in the background, as asyncio callers do; the last change wins."""
    core, begun = core_of(process), list[bool]()

    async def change(flag: bool) -> None:
        begun.append(flag)
        await core.change_in_background(flag)

    for number in range(world.rng.randint(1, 4)):
        flag = world.rng.random() < 0.5
        if flag:
            world.record("setting")
        process.background(change(flag))
        while len(begun) <= number:
            await Wait(limit=0.001)
        if world.rng.random() < 0.5:
            await Run(work(world))
        if flag and world.rng.random() < 0.5:
            await Run(core.wait_after_background_changes(), maybe_timeout(world))
    while core.changes_done is not None:
        await Run(work(world))
    node = world.server.engine.tree.node(PATH)
    if (node is not None and node.data == SET) != flag and not process.session.ended:
        world.fail(f"the last requested value is {flag}, but the znode is {node and node.data!r}")


def run(world: Simulation) -> None:
    in_background = separate_rng(world, "event").random() < 0.3
    waiters = [
        spawn(process, waiter(world, process), name=f"waiter{number}", daemon=True)
        for process in processes(world, 1, 3)
        for number in range(world.rng.randint(1, 2))
    ]
    for number, process in enumerate(list(world.processes.values())[: 0 if in_background else world.rng.randint(0, 2)]):
        spawn(process, reader(world, process), name=f"reader{number}")
    setter = world.process("setter")
    spawn(setter, background_changer(world, setter) if in_background else pulser(world, setter, waiters))
    world.run()
    for record in world.history.events("set"):
        for task, at in record.asleep:
            if task.at is at and not task.done and task.process.alive:
                world.fail(f"{task.name} still waits although the event was set at {record.at_ms} ms")
    world.close()


EVENT = Scenario("event", run)
