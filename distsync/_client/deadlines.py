"""Deadlines: made once per call, carried through, never started anew at a wake.

Rules for this file: pure; times are passed in, in seconds of the wait clock.

How long the looks of a thread may take: what a predicate looks at, in the time of the call that asks the predicate.

Rules for this file: no znode and no protocol; _client/deadlines.py says what a deadline is. It is for looks alone,
which raise an error where there is no time left: who acquires in a predicate, or sleeps, has all the time that he asked
for.
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

#: What a protocol gets for its clean-up (seconds) after it was interrupted; the janitor does what is left over.
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
    left = remaining(_limit.deadline)
    return None if left is None else max(left, NO_WAIT_S)
