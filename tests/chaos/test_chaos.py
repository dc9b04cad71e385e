"""A short selection of the runs of ``make chaos``, and that a run can fail. Those on an ensemble are in tests/ensemble,
where one runs already."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.history import read
from chaos.runs import Plan, run
from servers import need_zookeeper

pytestmark = [pytest.mark.xdist_group("ensemble"), pytest.mark.timeout(300)]

SECONDS = 3.0

SELECTION = [
    Plan("lock", "embedded", 1, SECONDS, ("kill", "stop", "server_killed")),
    Plan("queue", "zookeeper", 2, SECONDS, ("drop_reply", "interrupt", "expire")),
]


@pytest.mark.parametrize("plan", SELECTION, ids=lambda plan: f"{plan.primitive}-{plan.server}")
def test_primitive_keeps_its_promises_under_faults(plan: Plan, tmp_path: Path) -> None:
    if plan.server != "embedded":
        need_zookeeper()
    outcome = run(plan, tmp_path / "history")
    assert outcome.violations == [], str(outcome)
    assert outcome.faults
    assert outcome.calls


def test_what_is_no_lock_is_found_out_and_the_line_that_repeats_it_is_told(tmp_path: Path) -> None:
    plan = Plan("nothing", "embedded", 5, 0.5, ("clock",))
    outcome = run(plan, tmp_path / "history")
    assert any("2 hold at" in each for each in outcome.violations)
    assert "make chaos CHAOS_ARGS='nothing --server embedded --seed 5 --seconds 0.5 --faults clock'" in str(outcome)
    assert read(tmp_path / "history")
