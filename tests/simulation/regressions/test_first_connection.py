"""The first connection of a process gets its grace period once per call, however often it is cut
before it is established.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the servers are unreachable twice, and the first connection of a process breaks
#: during its handshake.
SEED = 7001875


def test_call_whose_first_connection_is_cut_ends_in_time() -> None:
    scenario = SCENARIOS["atomic-bytes"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert [placed.kind for placed in world.faults.injected] == ["outage", "outage"]
