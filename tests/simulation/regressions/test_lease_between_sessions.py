"""A lease in Curator's layout that was created in a later session than its turn, which is still alive,
is deleted.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the servers stop, one thread is stalled, and a leader fails that has just ended
#: a session.
SEED = 5000785


def test_lease_of_a_later_session_than_its_turn_does_not_stay() -> None:
    scenario = SCENARIOS["curator-semaphore"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {placed.kind for placed in world.faults.injected} == {"outage", "stall", "ghost"}
