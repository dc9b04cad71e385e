"""The first connection of a process has its time once in a call, however often it is cut before it stands."""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the servers go twice, and the first connection of a process breaks at its handshake.
SEED = 7001875


def test_call_whose_first_connection_is_cut_ends_in_time() -> None:
    scenario = SCENARIOS["cell"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert [placed.kind for placed in world.faults.injected] == ["outage", "outage"]
