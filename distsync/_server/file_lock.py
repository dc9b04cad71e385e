"""File locks between processes. The files are readable by their owner only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

PRIVATE = 0o600


class LockedByAnotherError(Exception):
    """Another process holds the lock."""


def open_private(path: Path, flags: int) -> int:
    """Open a file, creating it if needed, and set its mode to 0600."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    os.fchmod(descriptor, PRIVATE)
    return descriptor


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock ``path`` during the block. ``timeout`` is in seconds.

    Raises LockedByAnotherError on timeout, and OSError if the file cannot be created.
    """
    os.close(open_private(path, os.O_RDWR))
    lock = filelock.FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LockedByAnotherError(path) from None
    try:
        path.chmod(PRIVATE)  # filelock may have changed it
        yield
    finally:
        lock.release()
