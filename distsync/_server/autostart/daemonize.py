"""Run a function in a daemon process, which outlives the process that started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

READY = b"\0"


def daemonize(work: Callable[[Callable[[], None]], None]) -> int:
    """Run ``work(ready)`` in a detached process, and wait until it calls ``ready`` or ends.

    Must be called before any thread or event loop is started. The standard output of the detached
    process is redirected to standard error. If ``work`` raises before it is ready, the text of the
    error is printed to the caller's standard output.

    Args:
        work: Called with a function that reports that it is ready.

    Returns:
        The exit status for the calling process: 0 if ``work`` called ``ready``.
    """
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
    """Report to the waiting process, which may have exited. Later reports have no effect."""
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
    print(message.decode(errors="replace") or "the process exited without a message")
    sys.stdout.flush()
    return 1
