"""Pools of programs that run at the same time, or one after another: which workers run whose tasks."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.subprocesses import LIMIT, Shells
from helpers.timing import eventually

LABELS = """
import sys, time
from distsync.multiprocessing import Pool

def begin(given):
    global LABEL
    LABEL = given

def label(_):
    time.sleep(0.02)
    return LABEL

pool = Pool(2, begin, (sys.argv[1],))
print(set(pool.map(label, range(60), chunksize=1)))
pool.close()
pool.join()
"""

LOGGED = """
import sys, time
from distsync.multiprocessing import Pool

def log(run):
    time.sleep(0.02)
    with open("log", "a") as file:
        print(run, file=file)

pool = Pool(2)
pool.map(log, [sys.argv[1]] * int(sys.argv[2]), chunksize=1)
pool.terminate()
pool.join()
"""


def write(shells: Shells, name: str, text: str) -> Path:
    path = shells.folder / name
    path.write_text(text)
    return path


def test_program_with_an_unnamed_pool_that_runs_twice_at_once_gets_results_of_its_own_workers(shells: Shells) -> None:
    program = write(shells, "labels.py", LABELS)
    assert shells.together((program, "a"), (program, "b")) == ["{'a'}\n", "{'b'}\n"]


@pytest.mark.own_state  # tasks of the killed program, which later pools remove
def test_program_with_an_unnamed_pool_that_was_killed_leaves_no_task_to_its_next_run(shells: Shells) -> None:
    shells.environment["DISTSYNC_SESSION_TIMEOUT"] = "2"
    program, log = write(shells, "logged.py", LOGGED), shells.folder / "log"
    killed = shells.start(program, "first", 2000)
    eventually(log.exists, limit=LIMIT)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    log.write_text("")
    shells.run(program, "second", 50)
    assert log.read_text().split() == ["second"] * 50


NAMED = """
import sys
from distsync.multiprocessing import Pool

def begin(given):
    global LABEL
    LABEL = given

def label(_):
    return LABEL + "{}"

if __name__ == "__main__":
    with Pool(int(sys.argv[1]), begin, (sys.argv[2],), name="p") as pool:
        print("begun", flush=True)
        input()
        print(set(pool.map(label, range(10), chunksize=1)))
"""


def start(shells: Shells, program: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a program that has created its pool, and waits for a line of input."""
    process = shells.start(program, *arguments)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_program_with_a_named_pool_of_another_initializer_is_refused(shells: Shells) -> None:
    program = write(shells, "named.py", NAMED.format("1"))
    first, same = start(shells, program, 1, "a"), start(shells, program, 0, "a")
    others = [(program, 1, "b"), (write(shells, "other.py", NAMED.format("1")), 1, "a")]
    write(shells, "named.py", NAMED.format("2"))
    for other in [*others, (program, 1, "a")]:
        process = shells.start(*other)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 1
        assert (
            f"MismatchError: the initializer of {shells.environment['DISTSYNC_NAMESPACE']}/pool/p is begin of {program}"
            in errors
        )
        assert f", not begin of {other[0]}" in errors
    assert [process.communicate("\n", timeout=LIMIT)[0] for process in (same, first)] == ["{'a1'}\n"] * 2


@pytest.mark.slow("starts several programs")
def test_worker_of_the_command_line_calls_the_initializer_of_each_version_of_a_program(shells: Shells) -> None:
    helping = shells.start("-m", "distsync", "worker", "p", "--processes", 1)
    for label, version in (("a", "1"), ("b", "1"), ("b", "2")):
        process = start(shells, write(shells, "named.py", NAMED.format(version)), 0, label)
        assert process.communicate("\n", timeout=LIMIT)[0] == f"{{'{label}{version}'}}\n"
    helping.send_signal(signal.SIGTERM)
    assert helping.wait(LIMIT) == 0
