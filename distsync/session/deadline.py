"""Deadlines: made once per call, carried through, never started anew at a wake.

Rules for this file: pure; times are passed in, in seconds of the wait clock.
"""

from __future__ import annotations

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
