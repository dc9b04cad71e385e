"""A caller of a pool that ends while others doubt it repeatedly leaves nothing."""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the caller's ``alive`` is deleted, and its end takes long.
SEED = 9002210


def test_caller_that_is_doubted_as_it_ends_leaves_nothing() -> None:
    scenario = SCENARIOS["swept-pool"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {"intruder", "expire_away", "pause"} <= {placed.kind for placed in world.faults.injected}
