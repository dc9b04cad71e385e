"""A transaction that is forgotten because it was mistaken for the previous one is aborted, so that
nobody waits forever.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS
from simulation.scenarios.external_deletes import PATH

#: In this schedule everything is deleted, and recreated up to the same version, between a site's
#: read and its request.
SEED = 2002400


def test_transaction_forgotten_in_place_of_the_previous_one_is_aborted() -> None:
    scenario = SCENARIOS["external-deletes"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    left = world.server.engine.tree.node(PATH)
    assert left is not None
    assert b"this one forgotten in its place" in (left.data or b"")
