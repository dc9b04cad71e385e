"""The environments of a tox run share a server, and one resource of which each needs all."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sysconfig
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from helpers.subprocesses import LIMIT, ROOT, Home

MATRIX = ROOT / "examples" / "tox_matrix"
ENVIRONMENTS = ("py", "a", "b")
TESTS = 3


@pytest.mark.slow("starts several programs")
def test_environments_that_run_beside_each_other_use_the_database_one_at_a_time(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "tox_matrix"
    shutil.copytree(MATRIX, folder)
    # nothing is fetched: the environments find what the running Python has
    home.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    home.environment.pop("PYTHONWARNINGS")
    tox = ("-m", "tox", "run-parallel", "--parallel", "3", "--parallel-live")
    nothing = ("--override", "testenv.deps=", "--override", "testenv.package=skip")
    process = home.start(*tox, *nothing, "--root", folder, "--workdir", tmp_path / "work", "-c", folder, "--", "-s")
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output + errors
    assert home.server_pid()
    with closing(sqlite3.connect(tmp_path / "work" / "shared.db")) as database:
        log = database.execute("SELECT token, who FROM log ORDER BY rowid").fetchall()
    assert Counter(who for _, who in log) == dict.fromkeys(ENVIRONMENTS, TESTS)
    tokens = [token for token, _ in log]
    assert tokens == sorted(tokens)
    assert len(set(log)) == len(set(tokens))  # one that is kept is always the same environment's
    assert sorted(re.findall(r": (run \d+)", output)) == ["run 1", "run 2", "run 3"]


def test_readme_leads_to_the_example() -> None:
    assert "examples/tox_matrix" in (ROOT / "docs" / "examples.md").read_text()
