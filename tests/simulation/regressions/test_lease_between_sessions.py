"""A lease in Curator's layout that is created in a later session than its lock entry, which still
exists, is deleted.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the servers are unreachable, a thread gets no CPU time, and a leader fails that
#: has just ended a session.
SEED = 5000785


def test_lease_created_in_a_later_session_than_its_lock_entry_is_deleted() -> None:
    scenario = SCENARIOS["curator-semaphore"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {placed.kind for placed in world.faults.injected} == {"outage", "stall", "ghost"}
