"""Ctrl-C at each step of an acquire: tokens that were not granted are available to others."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import ROOT

from distsync._protocols.receipts import Receipts
from distsync._protocols.state.token_bucket import RateCore

PATH = "/distsync/rate/r"
BURST = 2.0
STEPS = 24


@pytest.mark.parametrize("step", range(1, STEPS))
def test_tokens_of_an_interrupted_acquire_are_available_to_others(step: int) -> None:
    for seed in range(5):
        got: list[bool] = []

        async def take(core: RateCore) -> None:
            got.append(await Run(core.acquire(BURST, 0.0)))  # noqa: B023

        with Simulation(seed, faults=Faults(exactly=(Exactly("interrupt", "one", step),))) as world:
            for name in ("one", "other"):
                world.process(name).spawn(take(RateCore(PATH, 0.001, BURST, Receipts(f"{ROOT}/receipts"))))
                world.run()
        assert got.count(True) == 1, (step, seed)
