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
from typing import TYPE_CHECKING, Any

from distsync._client.clocks import wait_clock
from distsync._import_gate import importing
from distsync._signal_handlers import interruptible_at_entry
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


def finite_seconds(timeout: Any) -> float:
    """Return ``timeout`` as a float. Raise TypeError, ValueError if it is negative or NaN, or OverflowError."""
    if not hasattr(timeout, "__float__"):
        raise TypeError(f"'{type(timeout).__name__}' object cannot be interpreted as a number of seconds")
    seconds = float(timeout)
    if abs(seconds) > TIMEOUT_MAX:
        raise timeout_too_large(timeout)
    if not seconds >= 0:  # NaN too
        raise ValueError("timeout value must be a non-negative number")
    return seconds


def validate_call_timeout(timeout: Any) -> float | None:
    """Return the maximum wait of a call that the standard library lacks, in seconds; None to wait forever.

    Raises the errors of `finite_seconds`. -1 and None wait forever.
    """
    if timeout is None or timeout == -1:
        return None
    if isinstance(timeout, (int, float)) and not timeout >= 0:
        raise ValueError(f"timeout must be seconds >= 0, None, or -1 to wait forever, not {timeout}")
    return finite_seconds(timeout)


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
        limit: Whether there is one, and when its calls must end; None for never.
    """

    limit: tuple[bool, float | None] = (False, None)


_predicate = _Predicate()


def deadline_in(seconds: float | None) -> float | None:
    """Return when ``seconds`` will have passed; None for never."""
    return deadline_of(seconds, wait_clock())


def remaining(deadline: float | None) -> float | None:
    """Return how many seconds are left, at least 0; None for no limit."""
    return seconds_until(deadline, wait_clock())


class _Limit:
    """A ``with`` block with a limit of its calls. It can be entered once. An interrupt leaves no limit behind."""

    def __init__(self) -> None:
        self._before: list[Any] = []

    def _get(self) -> Any:
        """Return the limit in force."""
        raise NotImplementedError

    def _set(self, limit: Any) -> None:
        raise NotImplementedError

    def _narrowed(self, limit: Any) -> Any:
        """Return the limit of the block, if ``limit`` is in force at its start."""
        raise NotImplementedError

    @interruptible_at_entry
    def __enter__(self) -> None:
        try:
            if not self._before:
                self._before.append(self._get())
                self._set(self._narrowed(self._before[0]))
                return
        except BaseException:
            self._restore()
            raise
        raise RuntimeError("this limit was entered before: create another one for each block")

    @interruptible_at_entry
    def __exit__(self, *error: object) -> None:
        try:
            self._restore()
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        """Put the limit from before the block in force again. Idempotent."""
        if self._before:
            self._set(self._before[0])


class limit_calls(_Limit):
    """Let calls in the ``with`` block that ask the server raise DeadlineError when ``seconds`` have passed.

    None adds no limit. The limit applies to the current thread or asyncio task. If ``seconds`` count as
    non-blocking, the block has the grace period of such a call.
    """

    def __init__(self, seconds: float | None) -> None:
        super().__init__()
        self._seconds = NONBLOCKING_GRACE_S if seconds is not None and seconds < NO_WAIT_S else seconds

    def _get(self) -> float | None:
        if not _block:
            with importing():
                from contextvars import ContextVar  # deferred: most programs have no such block

                _block.append(ContextVar("distsync_timeout", default=None))
        return _block[0].get()

    def _set(self, limit: float | None) -> None:
        _block[0].set(limit)

    def _narrowed(self, limit: float | None) -> float | None:
        return earliest(limit, deadline_in(self._seconds))


class limit_predicate(_Limit):
    """Let calls of this thread in the ``with`` block that ask the server raise DeadlineError at ``deadline``."""

    def __init__(self, deadline: float | None) -> None:
        super().__init__()
        self._deadline = deadline

    def _get(self) -> tuple[bool, float | None]:
        return _predicate.limit

    def _set(self, limit: tuple[bool, float | None]) -> None:
        _predicate.limit = limit

    def _narrowed(self, limit: tuple[bool, float | None]) -> tuple[bool, float | None]:
        return True, earliest(limit[1], self._deadline)


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
    is_predicate, deadline = _predicate.limit
    limit = earliest(block, remaining(deadline))
    if limit is None:
        return earliest(seconds, None if is_predicate else default)
    return earliest(seconds, max(limit, NO_WAIT_S))
