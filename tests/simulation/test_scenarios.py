"""distsync's own primitives violate nothing under the interleavings and faults of the first seeds.

DISTSYNC_TEST_SIMULATIONS is the number of schedules of each scenario: 50 by default, 100 in ``make
test-all``.
"""

from __future__ import annotations

import os

import pytest
from simulation.engine.runner import run
from simulation.scenarios import SCENARIOS

SCHEDULES = int(os.environ.get("DISTSYNC_TEST_SIMULATIONS", "50"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_finds_no_violation(name: str) -> None:
    report = run(SCENARIOS[name], range(SCHEDULES), most_failures=1)
    assert not report.failures, str(report.failures[0])
    assert report.schedules == SCHEDULES
