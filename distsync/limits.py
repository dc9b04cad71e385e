"""How long the looks of a thread may take: what a predicate looks at, in the time of the call that asks the predicate.

Rules for this file: no znode and no protocol; session/deadline.py says what a deadline is. It is for looks alone, which
raise an error where there is no time left: who acquires in a predicate, or sleeps, has all the time that he asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distsync.session.clock import wait_clock
from distsync.session.deadline import NO_WAIT_S, deadline_of, earliest, seconds_until


class _PredicateDeadline(threading.local):
    """When the looks of this thread have to end."""

    deadline: float | None = None


_limit = _PredicateDeadline()


def deadline_in(seconds: float | None) -> float | None:
    """When so many seconds will have passed; None: never."""
    return deadline_of(seconds, wait_clock())


def remaining(deadline: float | None) -> float | None:
    """How many seconds are left, at least 0; None: without end."""
    return seconds_until(deadline, wait_clock())


@contextmanager
def limit_reads(deadline: float | None) -> Iterator[None]:
    """Looks of this thread that would take longer raise DeadlineError then."""
    before = _limit.deadline
    _limit.deadline = earliest(before, deadline)
    try:
        yield
    finally:
        _limit.deadline = before


def read_timeout() -> float | None:
    """How many seconds are left for it, never so few that it would count as not waiting; None: without end."""
    left = remaining(_limit.deadline)
    return None if left is None else max(left, NO_WAIT_S)
