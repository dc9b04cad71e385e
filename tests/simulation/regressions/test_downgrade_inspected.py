"""An inspection of a SharedLock during a downgrade sees the writer or the reader, although it takes
two requests.
"""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the writer's znode is listed, but deleted when it is read; the reader's was
#: created at the same moment.
SEED = 7001888


def test_holder_is_seen_during_its_downgrade() -> None:
    scenario = SCENARIOS["cached-readers"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {placed.kind for placed in world.faults.injected} == {"lag", "expire_live"}
