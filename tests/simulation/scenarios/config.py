"""Config: no change is lost, repeated or seen in part, and a writer sees its own change."""

from __future__ import annotations

import json
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    check_final_reads,
    finish,
    maybe_timeout,
    processes,
    receipts,
    spawn,
    work,
)

from distsync._protocols.state.config import ConfigCore, ConfigSnapshot
from distsync._protocols.steps import Wait
from distsync.errors import OutcomeUnknownError

PATH = f"{ROOT}/config/c"


def encode(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode()


def core_of(process: SimProcess) -> ConfigCore:
    return process.local(PATH, lambda: ConfigCore(PATH, receipts(process), encode, json.loads))


def add(values: dict[str, Any]) -> dict[str, Any]:
    """Increment two settings that are always changed together."""
    return {"a": values.get("a", 0) + 1, "b": values.get("b", 0) + 1}


async def changer(world: Simulation, process: SimProcess) -> None:
    """Increment both settings a few times."""
    core = core_of(process)
    for _ in range(world.rng.randint(1, 3)):
        world.record("changing")
        try:
            before = (await Run(core.view.get())).values.get("a", 0)
            await Run(core.change(add), maybe_timeout(world))
        except (OutcomeUnknownError, TimeoutError):
            continue
        world.record("changed")
        seen = (await Run(core.view.get())).values.get("a", 0)
        if seen <= before:
            world.fail(f"{process.name} incremented {before}, but reads {seen}")
        await Run(work(world))


class ListenerLog:
    """The changes reported to a listener: each must start where the previous one ended."""

    def __init__(self, world: Simulation, process: SimProcess) -> None:
        self.world = world
        self.process = process
        self.last: ConfigSnapshot | None = None

    def __call__(self, before: ConfigSnapshot, now: ConfigSnapshot) -> None:
        if self.last is not None and before != self.last:
            self.world.fail(f"change from {before}, but the previous one led to {self.last}")
        if now.values.get("a") != now.values.get("b"):
            self.world.fail(f"partial change: {now}")
        if self.last is not None and now.values.get("a", 0) < self.last.values.get("a", 0):
            self.world.fail(f"went back from {self.last} to {now}")
        self.last = now


async def listen(log: ListenerLog, logs: list[ListenerLog]) -> None:
    await Run(core_of(log.process).view.add_listener(log, None))
    logs.append(log)
    await Run(_a_while())


async def _a_while() -> None:
    await Wait(limit=0.1)


def settings(world: Simulation) -> dict[str, Any]:
    node = world.server.engine.tree.node(PATH)
    values: dict[str, Any] = json.loads(node.data or b"{}") if node else {}
    return values


async def seen_by(process: SimProcess) -> dict[str, Any]:
    return (await core_of(process).view.get()).values


def check_final_state(world: Simulation, logs: list[ListenerLog]) -> None:
    check_final_reads(world, "settings", seen_by, lambda: settings(world))
    truth = settings(world)
    for log in logs:
        if log.process.alive and (log.last is None or log.last.values != truth):
            world.fail(f"{log.process.name} was last notified of {log.last}, but the settings are {truth}")
    done, begun = len(world.history.events("changed")), len(world.history.events("changing"))
    if not done <= truth.get("a", 0) <= begun:
        world.fail(f"{done} of {begun} changes were acknowledged, but the settings are {truth}")


def run(world: Simulation) -> None:
    logs: list[ListenerLog] = []
    observer = world.process(OBSERVER)
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, changer(world, process))
        if world.rng.random() < 0.5:
            spawn(process, listen(ListenerLog(world, process), logs))
    spawn(observer, listen(ListenerLog(world, observer), logs))
    finish(world, lambda: check_final_state(world, logs))


CONFIG = Scenario("config", run)
