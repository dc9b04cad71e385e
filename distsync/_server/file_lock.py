"""File locks between processes. The files are readable by their owner only."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE = 0o600
#: Interval in seconds between attempts.
POLL_S = 0.05

#: The descriptors of the locks that this process holds, or waits for.
_descriptors: set[int] = set()


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

    Raises LockedByAnotherError on timeout, and OSError if the file cannot be created or locked.
    """
    descriptor = open_private(path, os.O_RDWR)
    _descriptors.add(descriptor)
    try:
        remaining = timeout
        while not _try_lock(descriptor):
            if remaining <= 0:
                raise LockedByAnotherError(path)
            time.sleep(POLL_S)
            remaining -= POLL_S
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor too
    finally:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _close_in_child() -> None:
    """Close the files of the parent's locks, which otherwise would be held until this child exits, too."""
    for descriptor in tuple(_descriptors):
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


# No hook before the fork: it would not run in a fork that waits for the import of this module.
os.register_at_fork(after_in_child=_close_in_child)
