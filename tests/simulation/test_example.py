"""The example of docs/simulation.md runs, and finds the bug that the page describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_the_example_finds_two_holders(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})
    assert "2 hold 'lock', limit 1" in capsys.readouterr().out
