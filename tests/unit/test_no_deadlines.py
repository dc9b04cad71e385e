"""No test fails because of an absolute time, including hypothesis's default of 200 ms per example."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parents[1]


def test_no_example_has_a_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_no_test_sets_a_deadline() -> None:
    calls = [
        node
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "settings"
    ]
    assert len(calls) > 2
    assert [call for call in calls if any(each.arg == "deadline" for each in call.keywords)] == []
