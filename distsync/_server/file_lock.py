"""Locks between processes, as files that only their user can read.

Rules for this file: the one file of the server that knows filelock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

PRIVATE = 0o600


class LockedByAnotherError(Exception):
    """It was not to be had in time."""


def open_private(path: Path, flags: int) -> int:
    """A descriptor of the file, which is made if need be; its mode is 0600, whatever the umask and whatever it was."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    os.fchmod(descriptor, PRIVATE)
    return descriptor


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """No other process has the lock meanwhile. Units: ``timeout`` in seconds.

    Raises LockedByAnotherError; OSError when the file cannot be made."""
    os.close(open_private(path, os.O_RDWR))
    lock = filelock.FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LockedByAnotherError(path) from None
    try:
        path.chmod(PRIVATE)  # filelock may have set another
        yield
    finally:
        lock.release()
