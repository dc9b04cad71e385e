"""The program with a pool: the same in all versions, from two shells, and when a worker is killed."""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import children
from helpers.subprocesses import LIMIT, Shells
from helpers.timing import UNIT, eventually

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "worker_pool"
SHIPPED = ROOT / "distsync" / "cli" / "programs"
SHARED, ALONE = "worker_pool/worker_pool.py", "worker_pool/worker_pool_stdlib.py"
FILES = ("--files", 80)


def test_the_two_versions_differ_in_one_import_and_the_name_of_the_pool() -> None:
    versions = [(PROGRAMS / Path(name).name).read_text().splitlines() for name in (ALONE, SHARED)]
    changed = [line for line in difflib.ndiff(*versions) if line[:2] in ("- ", "+ ") and line[2:]]
    assert changed == [
        "- from multiprocessing import Pool",
        "+ from distsync.multiprocessing import Pool",
        "-     pool = Pool(options.processes)",
        '+     pool = Pool(options.processes, name="worker_pool")',
    ]


@pytest.mark.parametrize("name", [SHARED, ALONE])
def test_the_package_has_the_program_of_the_examples(name: str) -> None:
    assert (SHIPPED / Path(name).name).read_bytes() == (PROGRAMS / Path(name).name).read_bytes()


def result(shells: Shells, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shells.folder / name).read_text())
    return found


def alone(shells: Shells, *options: object) -> dict[str, Any]:
    shells.run(ALONE, "--result", "alone.json", *options)
    return result(shells, "alone.json")


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.slow_on("zookeeper")
def test_two_shells_share_their_workers_and_find_what_one_alone_finds(shells: Shells) -> None:
    first, second = (shells.start(SHARED, *FILES, "--part", f"{part}/2", "--result", f"{part}.json") for part in (1, 2))
    printed = [process.communicate(timeout=LIMIT) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), printed
    assert {**result(shells, "1.json"), **result(shells, "2.json")} == alone(shells, *FILES)


@pytest.mark.slow("starts several programs")
def test_unmodified_programs_under_distsync_run_have_a_pool_each(shells: Shells) -> None:
    run = ("-m", "distsync", "run", ALONE, *FILES, "--processes", 1)
    both = [shells.start(*run, "--part", f"{part}/2", "--result", f"{part}.json") for part in (1, 2)]
    printed = [process.communicate(timeout=LIMIT) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert {**result(shells, "1.json"), **result(shells, "2.json")} == alone(shells, *FILES)


@pytest.mark.slow("starts several programs")
def test_worker_that_is_killed_in_the_middle_loses_nothing(shells: Shells) -> None:
    shells.environment["DISTSYNC_SESSION_TIMEOUT"] = "2"
    process = shells.start(SHARED, *FILES, "--result", "together.json")
    assert first_line(process).startswith("1 of 10 batches")
    os.kill(min(children(process.pid)), signal.SIGKILL)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    assert result(shells, "together.json") == alone(shells, *FILES)


@pytest.mark.slow("starts several programs")
def test_workers_of_the_command_line_help_a_program(shells: Shells) -> None:
    name = "worker_pool"
    helping = shells.start("-m", "distsync", "worker", name, "--processes", 2)
    assert helping.stderr is not None
    assert helping.stderr.readline().startswith("2 workers for ")
    eventually(lambda: len(list(children(helping.pid))) >= 2, limit=LIMIT)
    printed = shells.run(SHARED, *FILES, "--processes", 1, "--result", "together.json")
    helping.send_signal(signal.SIGTERM)
    assert helping.wait(LIMIT) == 0
    assert result(shells, "together.json") == alone(shells, *FILES)
    assert sum(int(files) for files in re.findall(r"process \d+: (\d+) files", printed)) == 80


def worker(shells: Shells, name: str) -> subprocess.Popen[str]:
    """One of the command line, which hears signals."""
    process = shells.start("-m", "distsync", "worker", name, "--processes", 1)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("1 workers for ")
    return process


def test_worker_that_gets_repeated_signals_exits(shells: Shells) -> None:
    helping = worker(shells, "again")
    for _ in range(1000):
        os.kill(helping.pid, signal.SIGTERM)
    assert helping.wait(LIMIT) == 0


TASKS = """\
from pathlib import Path
from time import sleep

def wait(folder):
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        sleep(0.02)
    return "done"
"""
CALLER = """\
import tasks
from distsync.multiprocessing import Pool

if __name__ == "__main__":
    with Pool(0, name="slow") as pool:
        print(pool.apply(tasks.wait, (".",)))
"""


@pytest.mark.slow("starts several programs")
def test_worker_that_gets_two_signals_finishes_its_task(shells: Shells) -> None:
    """As ``timeout`` and service managers tell it: the process, and its group."""
    (shells.folder / "tasks.py").write_text(TASKS)
    (shells.folder / "caller.py").write_text(CALLER)
    helping, calling = worker(shells, "slow"), shells.start(shells.folder / "caller.py")
    eventually((shells.folder / "begun").exists, limit=LIMIT)
    for _ in range(2):
        helping.send_signal(signal.SIGTERM)
        time.sleep(4 * UNIT)
    (shells.folder / "go").touch()
    assert calling.communicate(timeout=LIMIT)[0] == "done\n"
    assert helping.wait(LIMIT) == 0
