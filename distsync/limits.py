"""How long the calls of a thread may take: what a predicate asks, in the time of the call that asks the predicate.

Rules for this file: no znode and no protocol; session/deadline.py says what a deadline is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distsync.session.clock import wait_clock
from distsync.session.deadline import NO_WAIT_S, deadline_of, earliest, seconds_until


class _Limit(threading.local):
    """When the calls of this thread have to end."""

    deadline: float | None = None


_limit = _Limit()


def deadline_in(seconds: float | None) -> float | None:
    """When so many seconds will have passed; None: never."""
    return deadline_of(seconds, wait_clock())


def remaining(deadline: float | None) -> float | None:
    """How many seconds are left, at least 0; None: without end."""
    return seconds_until(deadline, wait_clock())


@contextmanager
def within(deadline: float | None) -> Iterator[None]:
    """Calls of this thread that would wait for longer end as at their own deadline."""
    before = _limit.deadline
    _limit.deadline = earliest(before, deadline)
    try:
        yield
    finally:
        _limit.deadline = before


def limited(timeout: float | None) -> float | None:
    """The time-out of a call in seconds, no longer than is left; never so short that it would count as not waiting."""
    left = remaining(_limit.deadline)
    return timeout if left is None else earliest(timeout, max(left, NO_WAIT_S))
