"""A process of its own: outlives whoever started it, is nobody's child, and holds none of his files.

Rules for this file: called before any thread or loop exists; it knows nothing of servers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

READY = b"\0"


def daemonize(work: Callable[[Callable[[], None]], None]) -> int:
    """``work(ready)`` runs in a detached process; the caller's process goes on when it has called ``ready`` or ended.

    Returns the exit status for the caller's own process: 0 when ready. What ``work`` raised is printed, as its text,
    on the caller's standard output. The detached process has standard error in the place of standard output."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return _await(reading)
    os.close(reading)
    os.setsid()
    os.dup2(2, 1)
    try:
        work(lambda: _report(writing, READY))
    except BaseException as error:
        _report(writing, str(error).encode())
        raise
    return 0


def _report(pipe: int, message: bytes) -> None:
    """Once; whoever waited may be gone."""
    try:
        os.write(pipe, message)
        os.close(pipe)
    except OSError:
        pass


def _await(pipe: int) -> int:
    with open(pipe, "rb") as stream:
        message = stream.read()
    if message == READY:
        return 0
    print(message.decode(errors="replace") or "the process ended without a word")
    sys.stdout.flush()
    return 1
