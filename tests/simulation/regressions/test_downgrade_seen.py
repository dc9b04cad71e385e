"""Who looks at a SharedLock while its writer becomes a reader sees one of them, though the look takes two requests."""

from __future__ import annotations

from simulation.engine.runner import faults_of, run_seed
from simulation.scenarios import SCENARIOS

#: In this schedule the writer's znode is listed, and gone when it is read; the reader's came at the same moment.
SEED = 7001888


def test_writer_that_reads_now_is_not_missed() -> None:
    scenario = SCENARIOS["kept-readers"]
    world = run_seed(scenario, SEED, faults_of(scenario, SEED))
    assert {placed.kind for placed in world.faults.injected} == {"lag", "expire_live"}
