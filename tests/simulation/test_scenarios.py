"""distsync's own primitives withstand every interleaving and fault of the seeds.

DISTSYNC_SIMULATIONS is the number of schedules of each: 50 by default, 100 in ``make test-all``.
"""

from __future__ import annotations

import os

import pytest
from simulation.engine.runner import run
from simulation.scenarios import SCENARIOS

SCHEDULES = int(os.environ.get("DISTSYNC_SIMULATIONS", "50"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_holds_in_all_schedules(name: str) -> None:
    report = run(SCENARIOS[name], range(SCHEDULES), most_failures=1)
    assert not report.failures, str(report.failures[0])
    assert report.schedules == SCHEDULES
