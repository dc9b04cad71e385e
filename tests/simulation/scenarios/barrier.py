"""Barrier: nobody passes before all have arrived, all pass or none, and all indices differ.

The barrier is judged by the server's tree: the data of a queued znode names its call.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.barrier_oracle import BarrierOracle
from simulation.scenarios.common import ROOT, Scenario, receipts, spawn, work

from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.steps import Wait
from distsync.errors import BrokenBarrierError, OutcomeUnknownError

PATH = f"{ROOT}/barrier/b"
ARRIVALS = f"{PATH}/arrivals"

#: Timeout of a patient party: others may have been killed, or may not come.
PATIENCE_S = 30.0


class Party:
    """A party at the barrier."""

    def __init__(self, world: Simulation, process: SimProcess, parties: int, acts: bool) -> None:
        self.world = world
        self.parties = parties
        self.acts = acts
        self.core = process.local(PATH, lambda: BarrierCore(PATH, parties, receipts(process)))

    async def meet(self, name: str, turns: int, patient: bool) -> None:
        """Wait at the barrier ``turns`` times."""
        world = self.world
        for turn in range(turns):
            await Run(work(world) if patient or world.rng.random() < 0.7 else a_long_while(world))
            call = f"{name}.{turn}"
            seconds = PATIENCE_S if patient else world.rng.choice((0.0, 0.02, 1.0, PATIENCE_S))
            until_ms, knows = world.now_ms + round(seconds * 1000), self.core.generation
            world.record("arrives", call=call, until_ms=until_ms, knows=knows)
            try:
                action = (lambda call=call: self.act(call)) if self.acts else None
                index = await Run(self.core.wait(json.dumps(call).encode(), action), seconds)
                world.record("passes", call=call, index=index)
            except BrokenBarrierError:
                world.record("broken", call=call)
            except LookupError:
                world.record("acted badly", call=call)

    def act(self, call: str) -> Coroutine[Any, Any, None]:
        """Run the action, which takes a while and may fail."""
        return self._act(call, self.world.rng.random() < 0.1)

    async def _act(self, call: str, badly: bool) -> None:
        self.world.record("acts", call=call, badly=badly)
        await work(self.world)
        if badly:
            raise LookupError(call)

    async def meddle(self, times: int) -> None:
        """Reset or abort the barrier ``times`` times."""
        world = self.world
        for _ in range(times):
            await Run(work(world))
            resets = world.rng.random() < 0.6
            world.record("resetting" if resets else "aborting")
            try:
                await Run(self.core.reset() if resets else self.core.abort())
            except OutcomeUnknownError:
                continue
            world.record("reset" if resets else "aborted")


async def a_long_while(world: Simulation) -> None:
    """Pause, possibly long enough for the others to notice a departure."""
    await Wait(limit=world.rng.randint(0, 20))


def run(world: Simulation) -> None:
    rng = world.rng
    parties, turns, acts = rng.randint(2, 4), rng.randint(1, 3), rng.random() < 0.4
    surplus, meddles = rng.choice((0, 0, 0, 1, 2, 3)), rng.choice((0, 0, 0, 1, 2, 3))
    world.checks += [BarrierOracle(PATH, parties, acts), NothingLeft(f"{PATH}/", lambda path: path == ARRIVALS)]
    made = [world.process(name) for name in "abcd"[: rng.randint(1, parties)]]
    for number in range(parties + surplus):
        process = made[number % len(made)]
        patient = number < parties and rng.random() < 0.9
        spawn(process, Party(world, process, parties, acts).meet(f"w{number}", turns, patient))
    if meddles:
        spawn(made[-1], Party(world, made[-1], parties, acts).meddle(meddles), name="meddler")
    world.run()
    world.close()


BARRIER = Scenario("barrier", run)
