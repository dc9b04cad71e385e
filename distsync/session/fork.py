"""What happens at a fork and at the end of the process.

Rules for this file: it knows only that there are things to be told; nothing is started here.

A forked child has one thread, locks in whatever state they were, and copies of the parent's sockets. So it forgets:
every client has in the child neither a session nor anything held, and gets a session of its own at its first use.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Living(Protocol):
    """A client, as seen from here."""

    def forget(self) -> None:
        """In a forked child: nothing of the parent's is ours."""

    def close(self) -> None:
        """At exit."""


_living: weakref.WeakSet[Living] = weakref.WeakSet()
_forks: list[None] = []
_generations: list[None] = []


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


def _after_fork_in_child() -> None:
    _generations.append(None)
    for one in list(_living):
        one.forget()


def _at_exit() -> None:
    for one in list(_living):
        one.close()


os.register_at_fork(before=lambda: _forks.append(None), after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
