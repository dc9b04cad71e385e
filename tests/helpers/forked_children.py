"""Work in a forked child, and what came of it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT

Fork = Callable[[], int]


def fork_by_libc() -> int:
    """Fork as uWSGI and C extensions do: none of Python's hooks runs.

    If another thread waited for the GIL and had asked for it, the child could hang in CPython itself. So let all
    threads become idle before, and keep them from asking.
    """
    time.sleep(4 * UNIT)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    try:
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(interval)


FORKS: dict[str, Fork] = {"os.fork": os.fork, "libc's fork": fork_by_libc}
"""Ways to fork."""


def in_child(work: Callable[[], object], *, fork: Fork = os.fork, leave_by: Callable[[int], object] = os._exit) -> int:
    """The exit status of a forked child that does ``work``; 0 if that went well. Killed if it hangs."""
    child = fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            leave_by(status)
    return reaped(child)


def reaped(child: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(UNIT / 5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def check(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


@contextmanager
def forked(function: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """A forked child calls ``function``; its result is asked for in the block."""
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        theirs.send(remote.catch(function))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12 a fork beside threads is one
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()

    def result() -> Any:
        assert ours.poll(PATIENCE), "the child has not answered"
        return ours.recv()

    try:
        yield result
    finally:
        process.join(PATIENCE)
        process.kill()
        process.join()
        process.close()
        ours.close()
        theirs.close()
