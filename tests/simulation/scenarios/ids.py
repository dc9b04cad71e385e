"""IdGenerator: no id is repeated, those of a thread increase, and without a fault no block is lost."""

from __future__ import annotations

from collections import Counter

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import ROOT, Scenario, finish, processes, receipts, spawn, work

from distsync._protocols.state.id_blocks import IdsCore

PATH = f"{ROOT}/ids/i"


class Unique(Check):
    """Check each id when it is taken."""

    def __init__(self) -> None:
        self.taken: dict[int, str] = {}
        self.by_process: Counter[str] = Counter()
        self.last: dict[str, int] = {}

    def see(self, world: Simulation, record: Record) -> None:
        for number in record.fields.get("ids", ()):
            if number in self.taken:
                world.fail(f"{record.task} got {number}, which {self.taken[number]} had got")
            if number <= self.last.get(record.task, 0):
                world.fail(f"{record.task} got {number} after {self.last[record.task]}")
            self.last[record.task] = number
            self.taken[number] = record.task
            self.by_process[record.process] += 1


async def taker(world: Simulation, process: SimProcess, block: int) -> None:
    """Take ids a few times."""
    core = process.local(PATH, lambda: IdsCore(PATH, block, 1, receipts(process)))
    for _ in range(world.rng.randint(1, 6)):
        world.record("taken", ids=await Run(core.take(world.rng.choice((1, 1, 1, 2, 5)))))
        if world.rng.random() < 0.2:
            await Run(work(world))


def run(world: Simulation) -> None:
    block = world.rng.choice((1, 2, 3, 10))
    unique = Unique()
    world.checks.append(unique)
    for process in processes(world, 1, 3):
        for _ in range(world.rng.randint(1, 3)):
            spawn(process, taker(world, process, block))
    finish(world, lambda: judge(world, unique, block))


def judge(world: Simulation, unique: Unique, block: int) -> None:
    """Check that, without a fault, no process began a block while it had ids left."""
    blocks = sum(-(-count // block) for count in unique.by_process.values())
    begun = -(-max(unique.taken, default=0) // block)
    if not world.faults.injected and begun > blocks:
        world.fail(f"{begun} blocks were begun, but {blocks} would have sufficed")


IDS = Scenario("ids", run)
