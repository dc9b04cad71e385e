"""A waiter takes over when the holder is killed: not before its session has expired, and soon after."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.takeover import IN_AN_OUTAGE, takeovers
from chaos.workloads import STAYING, WORKLOADS

pytestmark = pytest.mark.timeout(300)

SESSION_S = 2.0
SOONEST, LATEST = 0.5, 1.25
"""Of the session time-out: a third of it may have gone since the holder was heard; half a second is promised."""


@pytest.mark.slow("chaos")
@pytest.mark.parametrize("kind", STAYING)
def test_next_one_holds_when_the_session_of_the_dead_one_is_over(kind: str, tmp_path: Path) -> None:
    taken = list(takeovers(kind, "embedded", 2, SESSION_S, 1, tmp_path))
    assert len(taken) == 2
    assert min(each.seconds / SESSION_S for each in taken) > SOONEST
    assert max((each.seconds - each.control) / SESSION_S for each in taken) < LATEST


def test_each_kind_has_a_workload_for_the_outage() -> None:
    assert set(IN_AN_OUTAGE) == set(STAYING)
    assert set(IN_AN_OUTAGE.values()) <= set(WORKLOADS)
