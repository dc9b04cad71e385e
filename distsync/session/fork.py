"""What happens at a fork and at the end of the process.

Rules for this file: it knows only that there are things to be told; nothing is started here.

A forked child has one thread, locks in whatever state they were, and copies of the parent's sockets. So it forgets:
every client has in the child neither a session nor anything held, and gets a session of its own at its first use.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Living(Protocol):
    """A client, as seen from here."""

    def forget(self) -> None:
        """In a forked child: nothing of the parent's is ours."""

    def close(self) -> None:
        """At exit."""


class Ours(Protocol):
    """Something that was made here, and that nobody else knows yet."""

    def others_may_know(self) -> None:
        """Another process will know it too."""


_living: weakref.WeakSet[Living] = weakref.WeakSet()
_ours: weakref.WeakSet[Ours] = weakref.WeakSet()
_forks: list[None] = []
_generations: list[None] = []
_first: list[Callable[[], object]] = []


def forks() -> int:
    """How often this process, and those that it was forked from, have forked: what was made before the last time is
    perhaps known to another process too."""
    return len(_forks)


def generation() -> int:
    """How many forks there are between this process and the first one: the same as long as it lives."""
    return len(_generations)


def watch_over(one: Living) -> None:
    """``one`` is told of forks, and closed at exit."""
    _living.add(one)


def made_here(one: Ours) -> None:
    """``one`` is told before the next fork."""
    _ours.add(one)


def _before_fork() -> None:
    _forks.append(None)
    for one in list(_ours):
        one.others_may_know()
    _ours.clear()


def _after_fork_in_child() -> None:
    _generations.append(None)
    for one in list(_living):
        one.forget()


def before_end(work: Callable[[], object]) -> None:
    """At the end of the process ``work`` is done first, while there are clients."""
    _first.append(work)


def close_all() -> None:
    """At the end of the process: every client is closed, whatever else goes wrong."""
    try:
        for work in _first:
            work()
    finally:
        close_clients()


def close_clients() -> None:
    """Every client is closed."""
    for one in list(_living):
        one.close()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
atexit.register(close_all)
