"""Cancelled parties: one that leaves a barrier on purpose breaks it for nobody, and may return.

The oracle of the barriers judges it. Only a fault gives a cause to break the barrier.
"""

from __future__ import annotations

import json

from simulation.engine.call_frames import Run
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.barrier import ARRIVALS, PATH, PATIENCE_S
from simulation.scenarios.barrier_oracle import BarrierOracle
from simulation.scenarios.common import Scenario, finish, receipts, spawn, work

from distsync._protocols.barriers.cyclic import BarrierCore
from distsync.errors import BrokenBarrierError


async def meet(world: Simulation, process: SimProcess, oracle: BarrierOracle, name: str, turns: int) -> None:
    """Meet the others ``turns`` times, returning after each cancelled wait."""
    core = process.local(PATH, lambda: BarrierCore(PATH, oracle.parties, receipts(process)))
    for turn in range(turns):
        await Run(work(world))
        times = 0
        while not await has_met(world, core, oracle, f"{name}.{turn}.{times}"):
            times += 1


async def has_met(world: Simulation, core: BarrierCore, oracle: BarrierOracle, call: str) -> bool:
    """Wait once. Return whether the party need not return."""
    world.record("arrives", call=call, until_ms=world.now_ms + PATIENCE_S * 1000, knows=core.generation)
    try:
        index = await Run(core.wait(json.dumps(call).encode(), on_cancel_leave=True), PATIENCE_S)
        world.record("passes", call=call, index=index)
    except BrokenBarrierError:
        world.record("broken", call=call)
    except KeyboardInterrupt:
        world.record("leaves", call=call)
        return call in oracle.passed
    return True


async def cancel_some(world: Simulation, tasks: list[Task], times: int) -> None:
    """Make some parties leave, wherever they are in their call."""
    for _ in range(times):
        await Run(work(world))
        task = world.rng.choice(tasks)
        inside = len(task.stack) > 1 and task.stack[-1].deadline_ms is not None
        if inside and not task.stack[-1].cleaning and not task.interrupted:
            task.throw(KeyboardInterrupt())


def run(world: Simulation) -> None:
    rng = world.rng
    parties, turns = rng.randint(2, 4), rng.randint(1, 3)
    oracle = BarrierOracle(PATH, parties, acts=False, leaves=True)
    world.checks += [oracle, NothingLeft(f"{PATH}/", lambda path: path == ARRIVALS)]
    made = [world.process(name) for name in "abcd"[: rng.randint(1, parties)]]
    tasks = []
    groups = rng.choice((1, 2, 3)) if turns == 1 else 1  # more parties than that pass at a time
    for number in range(parties * groups):
        process = made[number % len(made)]
        tasks.append(spawn(process, meet(world, process, oracle, f"w{number}", turns)))
    spawn(world.process("observer"), cancel_some(world, tasks, rng.randint(1, 8)), name="canceller")
    finish(world)


BARRIER_CANCELLATION = Scenario("barrier-cancellation", run)
