"""Deadlines: computed once per call, passed on, never restarted at a wake-up; and the limit on a thread's reads.

Rules for this file: no znode and no protocol; times are in seconds of the wait clock. ``limit_reads`` bounds the reads
that a predicate makes by the deadline of the call that evaluates the predicate. It applies to reads only, which raise
DeadlineError when no time is left; an acquire or a sleep inside a predicate keeps its own time-out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distsync._client.clocks import wait_clock

#: A request that is under way when the deadline passes may still be answered for so long (seconds), so that
#: acquire(timeout=1e-5) on a free lock can succeed. Three round trips over a slow line.
GRACE_S = 0.3

#: A call that must not wait asks the server all the same: while the connection stands it gets its answer within so
#: long (seconds). A time-out shorter than NO_WAIT_S is shorter than any round trip, and so is no time to wait.
NONBLOCKING_GRACE_S, NO_WAIT_S = 2.0, 0.05

#: What a protocol gets for its clean-up (seconds) after it was interrupted; lease/cleanup.py does what is left over.
CLEAN_UP_S = 1.0


def deadline_of(timeout: float | None, now: float) -> float | None:
    """When a call that was made at ``now`` has to be over; None: never."""
    return None if timeout is None else now + max(timeout, 0.0)


def grace_of(timeout: float | None) -> float:
    """How long after its deadline a call with this time-out waits for answers that are under way."""
    return NONBLOCKING_GRACE_S if timeout is not None and timeout < NO_WAIT_S else GRACE_S


def earliest(*moments: float | None) -> float | None:
    """The first of the moments; None stands for never."""
    return min((moment for moment in moments if moment is not None), default=None)


def seconds_until(moment: float | None, now: float) -> float | None:
    """How long to wait until ``moment``, at least 0; None: for ever."""
    return None if moment is None else max(moment - now, 0.0)


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
    seconds = remaining(_limit.deadline)
    return None if seconds is None else max(seconds, NO_WAIT_S)
