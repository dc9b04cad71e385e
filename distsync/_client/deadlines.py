"""Deadlines of calls, and the limit on reads inside predicates. Times are those of the wait clock.

A deadline is computed once per call, and never restarted at a wake-up.

``limit_reads`` bounds the reads of a predicate by the deadline of the call that evaluates it. A read
raises DeadlineError when no time is left. Other calls inside a predicate, such as an acquire or a
sleep, have their own timeouts only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distsync._client.clocks import wait_clock

#: How long, in seconds, an outstanding reply may arrive after the deadline, so that
#: acquire(timeout=1e-5) on a free lock can succeed. Three round trips over a slow line.
GRACE_S = 0.3

#: Grace period in seconds of a non-blocking call, which still needs replies of the server. A
#: timeout below NO_WAIT_S seconds is shorter than any round trip, and counts as non-blocking.
NONBLOCKING_GRACE_S, NO_WAIT_S = 2.0, 0.05

#: Time in seconds for the clean-up of an interrupted protocol. lease/cleanup.py does the rest.
CLEAN_UP_S = 1.0


def deadline_of(timeout: float | None, now: float) -> float | None:
    """Return when a call that was made at ``now`` must end; None for never."""
    return None if timeout is None else now + max(timeout, 0.0)


def grace_of(timeout: float | None) -> float:
    """Return how long, after its deadline, a call waits for outstanding replies."""
    return NONBLOCKING_GRACE_S if timeout is not None and timeout < NO_WAIT_S else GRACE_S


def earliest(*moments: float | None) -> float | None:
    """Return the first of the moments; None means never."""
    return min((moment for moment in moments if moment is not None), default=None)


def seconds_until(moment: float | None, now: float) -> float | None:
    """Return how long to wait until ``moment``, at least 0; None for forever."""
    return None if moment is None else max(moment - now, 0.0)


class _PredicateDeadline(threading.local):
    """When the reads of this thread must end; None for never."""

    deadline: float | None = None


_limit = _PredicateDeadline()


def deadline_in(seconds: float | None) -> float | None:
    """Return when ``seconds`` will have passed; None for never."""
    return deadline_of(seconds, wait_clock())


def remaining(deadline: float | None) -> float | None:
    """Return how many seconds are left, at least 0; None for no limit."""
    return seconds_until(deadline, wait_clock())


@contextmanager
def limit_reads(deadline: float | None) -> Iterator[None]:
    """Let reads of this thread in the ``with`` block raise DeadlineError at ``deadline``."""
    before = _limit.deadline
    _limit.deadline = earliest(before, deadline)
    try:
        yield
    finally:
        _limit.deadline = before


def read_timeout() -> float | None:
    """Return the timeout for a read, too long to count as non-blocking; None for no limit."""
    seconds = remaining(_limit.deadline)
    return None if seconds is None else max(seconds, NO_WAIT_S)
