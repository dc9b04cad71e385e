"""The fixture ``distsync_ensemble``, in a project that only installs distsync and pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.servers import need_zookeeper

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def distsync_ensemble_size():
    return 1, 0
"""

TESTS = """
def test_server_is_killed(distsync_ensemble):
    distsync_ensemble.participants[0].kill()

def test_all_is_well_again(distsync_ensemble):
    assert len(distsync_ensemble.servers) == 1
    assert all(server.serving() for server in distsync_ensemble.servers)
"""


@pytest.mark.slow("an ensemble")
def test_ensemble_has_the_size_asked_for_and_is_well_again_after_each_test(tmp_path: Path) -> None:
    need_zookeeper()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow("an ensemble")
def test_example_of_the_documentation_works() -> None:
    need_zookeeper()
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (program,) = (example for example in examples if "Ensemble(" in example)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
