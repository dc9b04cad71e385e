"""Shared memory: concurrent changes do not overwrite each other, and a read sees all earlier changes.

Each process has a place of its own in the data, like an element of an Array or a key of a dict.
"""

from __future__ import annotations

import json
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    finish,
    maybe_timeout,
    processes,
    receipts,
    spawn,
    work,
)

from distsync._protocols.state.atomic_bytes import CellCore
from distsync.errors import OutcomeUnknownError

#: Maximum of each place; a change of a place that has reached it changes nothing.
MAX_VALUE = 3

PATH = f"{ROOT}/shared/c"


def core_of(process: SimProcess) -> CellCore:
    return process.local(PATH, lambda: CellCore(PATH, b"{}", receipts(process)))


def increment_of(place: str) -> Any:
    """Return a change that adds one to a place, up to MAX_VALUE."""

    def change(data: bytes) -> bytes | None:
        values = json.loads(data)
        if values.get(place, 0) >= MAX_VALUE:
            return None
        return json.dumps({**values, place: values.get(place, 0) + 1}).encode()

    return change


def count(world: Simulation, place: str) -> int:
    """Return how many changes of a place were acknowledged."""
    return len([record for record in world.history.events("changed") if record.place == place])


async def changer(world: Simulation, process: SimProcess, place: str) -> None:
    core = core_of(process)
    for _ in range(world.rng.randint(1, 3)):
        world.record("changing", place=place)
        try:
            await Run(core.change(increment_of(place)), maybe_timeout(world))
        except (OutcomeUnknownError, TimeoutError):
            continue
        world.record("changed", place=place)
        await Run(work(world))


async def reader(world: Simulation, process: SimProcess) -> None:
    """Read, or ask for a change and then make none. The data must be no older than the call."""
    core = core_of(process)
    for _ in range(world.rng.randint(1, 4)):
        least, seen = min(MAX_VALUE, count(world, "shared")), list[bytes]()
        try:
            if world.rng.random() < 0.5:
                await Run(core.change(seen.append), maybe_timeout(world))
            else:
                seen.append((await Run(core.read(), maybe_timeout(world))).data)
        except TimeoutError:
            continue
        if json.loads(seen[-1]).get("shared", 0) < least:
            world.fail(f"changed {least} times before, but {process.name} reads {seen[-1]!r}")
        await Run(work(world))


def check_final_state(world: Simulation) -> None:
    node = world.server.engine.tree.node(PATH)
    truth = json.loads(node.data or b"{}") if node else {}
    for place in {record.place for record in world.history.events("changing")}:
        done = count(world, place)
        begun = len([record for record in world.history.events("changing") if record.place == place])
        if not min(done, MAX_VALUE) <= truth.get(place, 0) <= min(begun, MAX_VALUE):
            world.fail(f"{done} of {begun} changes of {place} were acknowledged, but the data is {truth}")


def run(world: Simulation) -> None:
    for process in processes(world, 2, 3):
        for number in range(world.rng.randint(1, 2)):
            place = process.name if number == 0 else "shared"
            spawn(process, changer(world, process, place))
        spawn(process, reader(world, process))
    finish(world, lambda: check_final_state(world))


CELL = Scenario("atomic-bytes", run)
