"""A short selection of the runs of ``make chaos`` on an ensemble."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.runs import Plan, run

from distsync.testing import Ensemble

SECONDS = 3.0

SELECTION = [
    Plan("election", "ensemble", 3, SECONDS, ("stop", "cut", "server_killed")),
    Plan("joinable", "ensemble", 4, SECONDS, ("kill", "fork", "server_paused")),
]


@pytest.mark.slow("an ensemble")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", SELECTION, ids=lambda plan: plan.primitive)
def test_primitive_keeps_its_promises_while_servers_break(plan: Plan, big: Ensemble, tmp_path: Path) -> None:
    outcome = run(plan, tmp_path / "history", big)
    assert outcome.violations == [], str(outcome)
    assert outcome.faults
    assert outcome.calls
