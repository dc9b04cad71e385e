"""The programs of the README do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.subprocesses import Shells, printed

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def names() -> list[str]:
    """The file of each block: what its first line says, or the text before the first of them."""
    (first,) = re.findall(r"^Save as `(\w+\.py)`", README, re.MULTILINE)
    return [first, *(re.findall(r"# (\w+\.py)$", block.splitlines()[0])[0] for block in BLOCKS[1:])]


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Path]:
    for name, block in zip(names(), BLOCKS, strict=True):
        (tmp_path / name).write_text(block.replace("time.sleep(5)", "time.sleep(0.1)"))
    return {name: tmp_path / name for name in names()}


def test_first_program_prints_what_the_readme_shows(shells: Shells, programs: dict[str, Path]) -> None:
    (shown,) = re.findall(r"^```\n\$ python turn.py\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    both = [shells.start(programs["turn.py"]) for _ in range(2)]
    assert [printed(one) for one in both] == [shown] * 2


def test_jobs_of_the_queue_are_done_once_each(shells: Shells, programs: dict[str, Path]) -> None:
    working = [shells.start(programs["work.py"]) for _ in range(2)]
    shells.run(programs["feed.py"])
    done = "".join(printed(one) for one in working)
    assert sorted(done.splitlines()) == ["job 0", "job 1", "job 2"]


@pytest.mark.slow_on("zookeeper")
def test_pool_prints_its_results(shells: Shells, programs: dict[str, Path]) -> None:
    assert shells.run(programs["squares.py"]) == "[1, 2, 3]\n"
