"""Pools of programs that run at the same time, or one after another: which workers run whose tasks."""

from __future__ import annotations

import os
import signal
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
