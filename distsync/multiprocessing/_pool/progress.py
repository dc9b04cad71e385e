"""The numbers that the progress of a pool consists of, and their texts. This module is pure."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

#: Minimum period in seconds over which the rate is averaged, and its part of the time so far. The average
#: of a long computation is over a longer period, because its items may take minutes each.
MIN_PERIOD_S, PERIOD_SHARE = 15.0, 0.25
#: Longest duration in seconds that is shown, so that a rate near 0 is not a problem.
MAX_SHOWN_S = 1e9


@dataclass(frozen=True)
class ProgressState:
    """How far a pool is.

    Attributes:
        done: Number of items that are finished, also those that failed or were cancelled.
        total: Number of items that the pool was given.
        is_total_known: Whether ``total`` has all items. An iterable of ``imap`` may have no length, which is
            then known when it is read to its end.
        errors: Number of results that are exceptions.
        rate: Items per second, smoothed; None if it is not known.
        seconds: Seconds so far in which there were unfinished items.
        local: Number of local workers.
        remote: Number of workers elsewhere; None if the pool can have none, or their number is not known.
    """

    done: int
    total: int
    is_total_known: bool = True
    errors: int = 0
    rate: float | None = None
    seconds: float = 0.0
    local: int = 0
    remote: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all items are finished."""
        return self.is_total_known and self.done >= self.total

    @property
    def seconds_left(self) -> float | None:
        """Approximate number of seconds until all items are finished; None if it is not known."""
        if not self.is_total_known or not self.rate or self.done >= self.total:
            return None
        return (self.total - self.done) / self.rate

    def count_text(self) -> str:
        """Return how many items are finished, in short: ``1,200/5,000``."""
        return f"{self.done:,}/{self.total:,}{'' if self.is_total_known else '+'}"

    def rate_text(self) -> str:
        """Return the rate, or the seconds for each item if there are several; empty if it is not known."""
        if not self.rate:
            return ""
        if self.rate < 1:
            return f"{1 / self.rate:,.1f} s each"
        return f"{self.rate:.1f}/s" if self.rate < 10 else f"{self.rate:,.0f}/s"

    def errors_text(self) -> str:
        """Return the number of errors; empty if there are none."""
        return f"{self.errors:,} error{'' if self.errors == 1 else 's'}" if self.errors else ""

    def left_text(self) -> str:
        """Return the time left; empty if it is not known."""
        left = self.seconds_left
        return "" if left is None else f"{duration_text(left)} left"

    def workers_text(self) -> str:
        """Return the number of workers, those elsewhere apart."""
        if self.remote is None:
            return f"{self.local:,} worker{'' if self.local == 1 else 's'}"
        return f"{self.local:,} local + {self.remote:,} remote"

    def line(self) -> str:
        """Return all of this as one line."""
        more = "" if self.is_total_known else "more than "
        share = f" ({100 * self.done // self.total} %)" if self.is_total_known and self.total else ""
        workers = self.workers_text() + ("" if self.remote is None else " workers")
        return _joined(
            f"{self.done:,} of {more}{self.total:,} items done{share}",
            self.rate_text(),
            self.errors_text(),
            self.left_text(),
            workers,
        )

    def last_line(self) -> str:
        """Return the line that is shown when the pool has ended."""
        average = ProgressState(self.done, self.total, rate=self.done / self.seconds if self.seconds else None)
        return _joined(
            f"ended with {self.done:,} of {self.total:,} items done in {duration_text(self.seconds)}",
            average.rate_text(),
            self.errors_text() or "no errors",
        )


class ProgressMeter:
    """Measures the rate of a pool from the numbers of its items, which it is given now and then."""

    def __init__(self) -> None:
        self._last_at: float | None = None
        self._last_done = 0
        self._was_idle = False
        self._seconds = 0.0
        #: Sums of items and of seconds, in which the last ones count more than those before.
        self._recent_items = self._recent_seconds = 0.0

    def measure(
        self,
        now: float,
        done: int,
        total: int,
        *,
        is_total_known: bool = True,
        errors: int = 0,
        local: int = 0,
        remote: int | None = None,
    ) -> ProgressState:
        """Return how far the pool is.

        Args:
            now: The time in seconds, by any clock that does not go back.
            done: Number of finished items.
            total: Number of items.
            is_total_known: Whether ``total`` has all items.
            errors: Number of results that are exceptions.
            local: Number of local workers.
            remote: Number of workers elsewhere; None if there can be none.

        Returns:
            The state. Seconds between two calls do not count if there was no unfinished item before.
        """
        total = max(done, total)  # an item can be finished before it is counted
        if self._last_at is not None and not (self._was_idle and done == self._last_done):
            self._add(max(0.0, now - self._last_at), done - self._last_done)
        self._last_at, self._last_done = now, done
        rate = self._recent_items / self._recent_seconds if self._recent_seconds and done else None
        state = ProgressState(done, total, is_total_known, errors, rate, self._seconds, local, remote)
        self._was_idle = state.is_idle
        return state

    def _add(self, seconds: float, items: int) -> None:
        self._seconds += seconds
        remains = math.exp(-seconds / max(MIN_PERIOD_S, self._seconds * PERIOD_SHARE))
        self._recent_items = self._recent_items * remains + items
        self._recent_seconds = self._recent_seconds * remains + seconds


def duration_text(seconds: float) -> str:
    """Return a duration as ``H:MM:SS``.

    Args:
        seconds: The duration in seconds.

    Returns:
        The text.
    """
    minutes, seconds = divmod(round(min(seconds, MAX_SHOWN_S)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}:{minutes:02}:{seconds:02}"


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))


def can_draw(stream: object, terminal_type: str | None) -> bool:
    """Return whether a bar can be drawn on a stream.

    Args:
        stream: The stream; None for a program that has none.
        terminal_type: The environment variable ``TERM``; None if it is not set.

    Returns:
        True if it is a terminal that can erase a line.
    """
    with suppress(Exception):  # it is closed, for example, or no file at all
        return bool(stream.isatty()) and str(terminal_type).lower() not in ("dumb", "unknown")  # type: ignore[attr-defined]
    return False
