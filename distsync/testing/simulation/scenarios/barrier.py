"""Barrier: nobody passes before all have arrived, all pass or none, and each has another index.

Rules for this file: threads use one core a process, as the faces do.
"""

from __future__ import annotations

from distsync.errors import BrokenBarrierError
from distsync.protocols.barrier import BarrierCore
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.checks import Check, NothingLeft
from distsync.testing.simulation.history import Record
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.base import (
    ROOT,
    Scenario,
    finish,
    receipts,
    spawn,
    work,
)
from distsync.testing.simulation.world import World

PATH = f"{ROOT}/barrier/b"

#: Who waits longer breaks the barrier: somebody has died before he came.
PATIENCE_SECONDS = 100.0


class Passing(Check):
    """Judges each passing."""

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.arrived: dict[int, set[str]] = {}
        self.passed: dict[int, dict[str, int]] = {}
        self.broken: list[Record] = []

    def see(self, world: World, record: Record) -> None:
        if record.event == "arrives":
            self.arrived.setdefault(record.turn, set()).add(record.task)
        elif record.event == "passes":
            self._passes(world, record)
        elif record.event == "broken":
            self.broken.append(record)

    def _passes(self, world: World, record: Record) -> None:
        arrived, passed = len(self.arrived[record.turn]), self.passed.setdefault(record.turn, {})
        if arrived < self.parties:
            world.fail(f"{record.task} passes the {record.turn}. time, and {arrived} of {self.parties} have arrived")
        if record.index in passed.values() or not 0 <= record.index < self.parties:
            world.fail(f"{record.task} passes with the index {record.index}, others with {passed}")
        passed[record.task] = record.index

    def end(self, world: World) -> None:
        struck = {each.process for each in world.faults.struck}
        for record in self.broken:
            if not struck:
                world.fail(f"{record.task} found the barrier broken, and nothing went wrong")
            if record.process not in struck and len(self.passed.get(record.turn, ())) > 0:
                world.fail(f"{record.task} found the barrier broken the {record.turn}. time, and others passed")


async def party(world: World, process: SimProcess, parties: int, turns: int) -> None:
    """Meets the others some times; stops when the barrier is broken."""
    core = process.local(PATH, lambda: BarrierCore(PATH, parties, receipts(process)))
    for turn in range(1, turns + 1):
        await Run(work(world))
        world.record("arrives", turn=turn)
        try:
            index = await Run(core.wait(b""), PATIENCE_SECONDS)
        except BrokenBarrierError:
            world.record("broken", turn=turn)
            return
        world.record("passes", turn=turn, index=index)


def play(world: World) -> None:
    parties, turns = world.rng.randint(2, 4), world.rng.randint(1, 3)
    world.checks += [Passing(parties), NothingLeft(f"{PATH}/")]
    made = [world.process(name) for name in "abcd"[: world.rng.randint(1, parties)]]
    for number in range(parties):
        process = made[number % len(made)]
        spawn(process, party(world, process, parties, turns))
    finish(world)


BARRIER = Scenario("barrier", play)
