"""A transaction that is forgotten in place of the previous one is aborted, and no client waits for it
forever.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS
from simulation.scenarios.external_deletes import PATH

#: In this schedule all is deleted, and created again up to the same version, between a site's read
#: and its request.
SEED = 2002400


def test_transaction_forgotten_in_place_of_the_previous_one_ends() -> None:
    scenario = SCENARIOS["deleted"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    left = world.server.engine.tree.node(PATH)
    assert left is not None
    assert b"this one forgotten in its place" in (left.data or b"")
