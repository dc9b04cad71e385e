"""A pool's caller that ends while others repeatedly presume it dead leaves no znodes."""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the znode that shows that the caller is alive is deleted, and the caller takes
#: long to end.
SEED = 9002210


def test_caller_presumed_dead_while_it_ends_leaves_nothing() -> None:
    scenario = SCENARIOS["pool-sweep"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {"intruder", "expire_away", "pause"} <= {placed.kind for placed in world.faults.injected}
