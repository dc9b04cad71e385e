"""A call waits for the first connection of its process only once, however often that is cut before it
is established.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the servers stop twice, and the first connection of a process breaks during its
#: handshake.
SEED = 7001875


def test_call_whose_first_connection_is_cut_ends_in_time() -> None:
    scenario = SCENARIOS["cell"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert [placed.kind for placed in world.faults.injected] == ["outage", "outage"]
