"""A transaction that who forgets the one before takes for that one is aborted, and nobody waits for it for ever."""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS
from simulation.scenarios.external_deletes import PATH

#: In this schedule all is deleted, and made anew up to the same version, between a site's look and its request.
SEED = 2002400


def test_transaction_that_is_forgotten_for_the_one_before_ends() -> None:
    scenario = SCENARIOS["deleted"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    left = world.server.engine.tree.node(PATH)
    assert left is not None
    assert b"this one forgotten in its place" in (left.data or b"")
