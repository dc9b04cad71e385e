"""Waking time: the time in which sessions grow old.

Rules for this file: it reads no clock; it is told the time. A step of the wall's clock is no time. While the engine was
not called for more than a tick (the process was stopped, or starved), and whenever the time that it is told jumps back,
waking time stands still: a server that could not hear its clients must not expire them.
"""

from __future__ import annotations


class SteadyClock:
    """The wall's clock, without its steps of a tick or less, which an engine would take for time that has passed; a
    longer one it takes for a pause."""

    __slots__ = ("_least_ns", "_ahead_ns")

    def __init__(self, tick_ms: int, wall_ns: int, steady_ns: int) -> None:
        self._least_ns = (tick_ms + 1) * 1_000_000  # longer than a tick in whole milliseconds too
        self._ahead_ns = wall_ns - steady_ns

    def advance_time(self, wall_ns: int, steady_ns: int) -> int:
        """The time in ms since the epoch; ``steady_ns`` is that of a clock that nobody sets."""
        ahead_ns = wall_ns - steady_ns
        step_ns = ahead_ns - self._ahead_ns
        if abs(step_ns) > self._least_ns:
            self._ahead_ns += step_ns // 1_000_000 * 1_000_000  # a part of a ms would be rounded to a ms of time
        return (steady_ns + self._ahead_ns) // 1_000_000


class PauseTolerantClock:
    """``now_ms``: the last time told, None before the first; ``active_ms``: the waking time then.
    ``hold_until``: no expiry before this waking time, so that what the clients sent meanwhile is read first."""

    __slots__ = ("tick_ms", "tolerant", "now_ms", "active_ms", "hold_until", "_lag_ms")

    def __init__(self, tick_ms: int, tolerant: bool) -> None:
        self.tick_ms = tick_ms
        self.tolerant = tolerant
        self.now_ms: int | None = None
        self.active_ms = 0
        self.hold_until = 0
        self._lag_ms = 0

    def advance_time(self, now_ms: int) -> int:
        """The waking time at ``now_ms``."""
        if self.now_ms is not None:
            gap = now_ms - self.now_ms
            if gap < 0 or (gap > self.tick_ms and self.tolerant):
                self._lag_ms += gap
                self.hold_until = now_ms - self._lag_ms + self.tick_ms
        self.now_ms = now_ms
        self.active_ms = now_ms - self._lag_ms
        return self.active_ms

    def wall(self, active_ms: int) -> int:
        """When, as far as is known, the waking time will be ``active_ms``."""
        return active_ms + self._lag_ms
