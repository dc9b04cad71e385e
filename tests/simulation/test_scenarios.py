"""distsync's own primitives stand every interleaving and fault that the seeds hold.

DISTSYNC_SIMULATIONS is the number of schedules of each: 50 unless it is set, 100 in ``make test-all``.
"""

from __future__ import annotations

import os

import pytest
from simulation.engine.runner import run
from simulation.scenarios import SCENARIOS

SCHEDULES = int(os.environ.get("DISTSYNC_SIMULATIONS", "50"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_promised_is_broken(name: str) -> None:
    report = run(SCENARIOS[name], range(SCHEDULES), most_failures=1)
    assert not report.failures, str(report.failures[0])
    assert report.schedules == SCHEDULES
