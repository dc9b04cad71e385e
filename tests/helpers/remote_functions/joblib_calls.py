"""What workers do in tests of the joblib backend: functions that travel by name. They require joblib."""

from __future__ import annotations

import os
import time
from pathlib import Path

import joblib

import distsync.joblib
from helpers.remote_functions import pool as remote_pool


def nested_pids(backend: str | None, name: str | None) -> tuple[int, list[int]]:
    """Return the process of this task, and those of calls inside of it; these use ``backend`` if it is given."""
    distsync.joblib.register()
    options = {} if backend is None else {"backend": backend, "name": name}
    with joblib.parallel_config(**options):
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(remote_pool.pid)() for _ in range(4))
    return os.getpid(), found


def note(folder: Path, number: int, seconds: float = 0.0) -> None:
    """Create a file that tells that this call was made."""
    (folder / str(number)).touch()
    time.sleep(seconds)


def note_and_sleep(folder: Path, seconds: float) -> None:
    (folder / f"{os.getpid()}").touch()
    time.sleep(seconds)
