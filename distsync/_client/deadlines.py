"""Deadlines of calls, of blocks of calls, and of predicates. Times are those of the wait clock.

A deadline is computed once per call, and never restarted at a wake-up.

Two kinds of calls wait. A call that asks the server needs replies only: a read, a write, a release.
Its timeout is `ask_timeout`, which knows the deadlines below. A call that waits for another process,
such as an acquire or a get, has its own timeout only.

``limit_calls`` bounds the calls of a block that ask the server. ``limit_predicate`` does so for the
calls of a predicate, by the deadline of the call that evaluates it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distsync._client.clocks import wait_clock
from distsync._client.lifecycle import importing
from distsync.errors import DeadlineError

if TYPE_CHECKING:
    from contextvars import ContextVar

#: The greatest timeout of a lock, in seconds.
TIMEOUT_MAX = threading.TIMEOUT_MAX

#: How long, in seconds, an outstanding reply may arrive after the deadline, so that
#: acquire(timeout=1e-5) on a free lock can succeed. Three round trips over a slow line.
GRACE_S = 0.3

#: Grace period in seconds of a non-blocking call, which still needs replies of the server. A
#: timeout below NO_WAIT_S seconds is shorter than any round trip, and counts as non-blocking.
NONBLOCKING_GRACE_S, NO_WAIT_S = 2.0, 0.05

#: Time in seconds for the clean-up of an interrupted protocol. lease/cleanup.py does the rest.
CLEAN_UP_S = 1.0


def timeout_too_large(timeout: float) -> OverflowError:
    """Return the error for a timeout above TIMEOUT_MAX."""
    return OverflowError(f"timeout value is too large: {timeout} exceeds the maximum of {TIMEOUT_MAX:.0f} seconds")


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


#: Contains, once there is a block, the variable of when the calls of the current one must end; None for never.
_block: list[ContextVar[float | None]] = []


class _Predicate(threading.local):
    """The predicate that this thread evaluates.

    Attributes:
        is_evaluated: Whether there is one.
        deadline: When its calls must end; None for never.
    """

    is_evaluated = False
    deadline: float | None = None


_predicate = _Predicate()


def deadline_in(seconds: float | None) -> float | None:
    """Return when ``seconds`` will have passed; None for never."""
    return deadline_of(seconds, wait_clock())


def remaining(deadline: float | None) -> float | None:
    """Return how many seconds are left, at least 0; None for no limit."""
    return seconds_until(deadline, wait_clock())


@contextmanager
def limit_calls(seconds: float | None) -> Iterator[None]:
    """Let calls in the ``with`` block that ask the server raise DeadlineError when ``seconds`` have passed.

    None adds no limit. The limit applies to the current thread or asyncio task. If ``seconds`` count as
    non-blocking, the block has the grace period of such a call.
    """
    if seconds is not None and seconds < NO_WAIT_S:
        seconds = NONBLOCKING_GRACE_S
    if not _block:
        with importing():
            from contextvars import ContextVar  # deferred: most programs have no such block

            _block.append(ContextVar("distsync_timeout", default=None))
    block = _block[0]
    before = block.get()
    block.set(earliest(before, deadline_in(seconds)))
    try:
        yield
    finally:
        block.set(before)


@contextmanager
def limit_predicate(deadline: float | None) -> Iterator[None]:
    """Let calls of this thread in the ``with`` block that ask the server raise DeadlineError at ``deadline``."""
    before = _predicate.is_evaluated, _predicate.deadline
    _predicate.is_evaluated, _predicate.deadline = True, earliest(before[1], deadline)
    try:
        yield
    finally:
        _predicate.is_evaluated, _predicate.deadline = before


def ask_timeout(seconds: float | None, default: float | None) -> float | None:
    """Return the timeout of a call that asks the server; None for no limit.

    Args:
        seconds: The timeout that the call was given; None if it was given none, or is to wait forever.
        default: The timeout of a call outside of blocks and predicates that was given none.

    Returns:
        Seconds. The rest of a block or predicate is too long to count as non-blocking.

    Raises:
        DeadlineError: The time of the block has passed. Its ``sent`` is False.
    """
    block = remaining(_block[0].get()) if _block else None
    if block == 0:
        late = DeadlineError("no time is left for this call, which has sent nothing")
        late.sent = False
        raise late
    limit = earliest(block, remaining(_predicate.deadline))
    if limit is None:
        return earliest(seconds, None if _predicate.is_evaluated else default)
    return earliest(seconds, max(limit, NO_WAIT_S))
