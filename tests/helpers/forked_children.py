"""Work in a forked child, and what came of it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
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

FORKS_AT_MOST = 3


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
    child = running_child(fork)
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


def running_child(fork: Fork) -> int:
    """Fork a child that can release the GIL; 0 in the child.

    A fork without Python's hooks may come while another thread is about to wait for the GIL. CPython hangs
    in such a child as soon as it releases the GIL, before any other code runs. It is killed, and another one forked.
    """
    for _ in range(FORKS_AT_MOST):
        reader, writer = os.pipe()
        child = fork()
        if child == 0:
            os.write(writer, b".")  # releases the GIL
            os.close(reader)
            os.close(writer)
            return 0
        os.close(writer)
        runs = bool(select.select([reader], [], [], PATIENCE / 2)[0]) and os.read(reader, 1) == b"."
        os.close(reader)
        if runs:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise AssertionError(f"none of {FORKS_AT_MOST} children could release the GIL")


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
