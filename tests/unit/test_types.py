"""A type checker accepts a SharedLock in place of an RLock and an Election in place of a Condition."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]

THREADS = """
from threading import Thread

from distsync import acquire_all, synchronized
from distsync.threading import Condition, Election, RLock, SharedLock


class Table:
    lock: RLock

    def __init__(self, lock: RLock) -> None:
        self.lock = lock
        self.changed = Condition(lock)


table = Table(SharedLock(name="table"))
with table.lock, acquire_all(SharedLock(), table.lock):
    acquired: bool = table.lock.acquire(blocking=False, timeout=-1)
thread = Thread(target=synchronized(SharedLock())(print))
reading: bool = SharedLock().reader.acquire()


def waits(changed: Condition) -> bool:
    with changed:
        changed.notify_all()
        return changed.wait(timeout=1)


waits(Election("host", name="leader"))
"""

PROCESSES = """
import distsync.multiprocessing as multiprocessing
from distsync.multiprocessing.synchronize import Condition, RLock


def changed(lock: RLock) -> Condition:
    with lock:
        return Condition(lock)


lock = multiprocessing.SharedLock(name="table")
waited: bool = changed(multiprocessing.get_context("spawn").SharedLock()).wait(1)
acquired: bool = lock.acquire(block=False, timeout=None)
reading: bool = lock.reader.acquire(False)
election: Condition = multiprocessing.Election("host", name="leader")
"""

TASKS = """
from distsync.asyncio import Condition, Election, Lock, SharedLock


async def main(lock: Lock) -> bool:
    changed = Condition(lock)
    async with changed, SharedLock().reader:
        return await changed.wait()


table = SharedLock(name="table")
waiting = main(table)
election: Condition = Election("host", name="leader")
"""

WRONG = """
from distsync.threading import SharedLock

SharedLock("table")
SharedLock().reader.write()
"""


def checked(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(program)
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", [THREADS, PROCESSES, TASKS], ids=["threads", "processes", "tasks"])
def test_program_with_shared_locks_in_place_of_rlocks_is_accepted(program: str, tmp_path: Path) -> None:
    run = checked(program, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_wrong_use_of_a_shared_lock_is_refused(tmp_path: Path) -> None:
    run = checked(WRONG, tmp_path)
    assert "Found 2 errors" in run.stdout, run.stdout + run.stderr
