"""``make bench``, a little of everything: it measures, counts, and writes what it has found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measures import MEASURES

ROOT = Path(__file__).parents[2]
NAMES = list(MEASURES)
HALVES = [NAMES[::2], NAMES[1::2]]


@pytest.mark.slow("starts several programs")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", HALVES, ids=["one half", "the other half"])
def test_quick_run_measures_each_and_writes_table_and_results(names: list[str], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--server",
        "embedded",
        "--out",
        str(tmp_path),
        "--only",
        *names,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {one["measure"] for one in results} == set(names)
    assert all(rate > 0 for one in results for rates in one["rates"].values() for rate in rates)
    sent = {one["measure"]: one["counts"] for one in results}
    assert sent.get("put", {}).get("kazoo", {}).get("requests", 1.0) == 1.0
    table = (tmp_path / "table.md").read_text()
    assert [MEASURES[name].title for name in names if f"| {MEASURES[name].title} | " not in table] == []
