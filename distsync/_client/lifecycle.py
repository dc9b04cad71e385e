"""What happens at a fork and at the end of the process.

Rules for this file: it knows only that there are things to be told; nothing is started here.

A forked child has one thread, locks in whatever state they were, and copies of the parent's sockets. So it forgets:
every client has in the child neither a session nor anything held, and gets a session of its own at its first use.

A child of the standard library's multiprocessing that was forked ends by ``os._exit``, and calls nothing that atexit
knows. What it keeps would be its own until its session has timed out: so its end is heard of from multiprocessing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar

Thing = TypeVar("Thing")


class ForkAware(Protocol):
    """A client, as seen from here."""

    def after_fork_in_child(self) -> None:
        """In a forked child: nothing of the parent's is ours."""

    def close(self) -> None:
        """At exit."""


class ForkShared(Protocol):
    """Something that was made here, and that nobody else knows yet."""

    def mark_shared(self) -> None:
        """Another process will know it too."""


_living: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_ours: weakref.WeakSet[ForkShared] = weakref.WeakSet()
_forks: list[None] = []
_generations: list[None] = []
_first: list[Callable[[], object]] = []
#: In which generation multiprocessing was told what to do at the end of the process.
_registered_depth: list[int] = []

#: What the command line of a child that was spawned has.
SPAWNED = "--multiprocessing-fork"
#: Of what multiprocessing does at the end of a child, this comes last.
LAST = -(1 << 30)


def fork_count() -> int:
    """How often this process, and those that it was forked from, have forked: what was made before the last time is
    perhaps known to another process too."""
    return len(_forks)


def fork_depth() -> int:
    """How many forks there are between this process and the first one: the same as long as it lives."""
    return len(_generations)


def register(one: ForkAware) -> None:
    """``one`` is told of forks, and closed at exit."""
    _living.add(one)


def register_before_fork(one: ForkShared) -> None:
    """``one`` is told before the next fork."""
    _ours.add(one)


def _before_fork() -> None:
    global _ours
    _forks.append(None)
    ours, _ours = _ours, weakref.WeakSet()
    for one in _all(ours):
        one.mark_shared()


def _all(things: weakref.WeakSet[Thing]) -> list[Thing]:
    """What is in there now; other threads may be adding to it."""
    while True:
        with suppress(RuntimeError):  # "Set changed size during iteration"
            return list(things)


def _after_fork_in_child() -> None:
    _generations.append(None)
    for one in _all(_living):
        one.after_fork_in_child()


def before_end(callback: Callable[[], object]) -> None:
    """At the end of the process ``callback`` is done first, while there are clients."""
    _first.append(callback)


def close_all() -> None:
    """At the end of the process: every client is closed, whatever else goes wrong."""
    try:
        for work in _first:
            work()
    finally:
        close_clients()


def in_use() -> None:
    """A client is used here. In a forked child of multiprocessing's all of them are closed at its end."""
    processes, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if processes is None or util is None or processes.parent_process() is None or _registered_depth == [fork_depth()]:
        return
    if _generations or SPAWNED not in sys.orig_argv:  # who was spawned ends as every program does
        _registered_depth[:] = [fork_depth()]
        util.Finalize(None, _close_if_alone, exitpriority=LAST)


def _close_if_alone() -> None:
    """At the end of such a child, but for its other threads: where there are any they are waited for after this."""
    here = threading.current_thread()
    if all(thread is here or thread.daemon for thread in threading.enumerate()):
        close_clients()


def close_clients() -> None:
    """Every client is closed, also where closing another one fails."""
    with ExitStack() as each:
        for one in _all(_living):
            each.callback(one.close)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
atexit.register(close_all)
