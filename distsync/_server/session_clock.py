"""Active time: the time in which session timeouts are measured.

It does not advance while the engine is not called for more than a tick (the process was stopped or
starved), nor when the time jumps back. A server that could not receive from its clients must not
expire their sessions.
"""

from __future__ import annotations


class SteadyClock:
    """Wall clock without small steps.

    The engine would count a step of a tick or less as elapsed time. Longer steps are kept, because
    the engine treats them as a pause.
    """

    __slots__ = ("_min_step_ns", "_offset_ns")

    def __init__(self, tick_ms: int, wall_ns: int, steady_ns: int) -> None:
        self._min_step_ns = (tick_ms + 1) * 1_000_000  # still longer than a tick when rounded to ms
        self._offset_ns = wall_ns - steady_ns

    def advance_time(self, wall_ns: int, steady_ns: int) -> int:
        """Return the time in ms since the epoch, given the wall clock and the monotonic clock."""
        offset_ns = wall_ns - steady_ns
        step_ns = offset_ns - self._offset_ns
        if abs(step_ns) > self._min_step_ns:
            # Whole ms only: a fraction could be rounded to a ms of elapsed time.
            self._offset_ns += step_ns // 1_000_000 * 1_000_000
        return (steady_ns + self._offset_ns) // 1_000_000


class PauseTolerantClock:
    """Clock of the active time.

    Attributes:
        now_ms: The time last passed in; None before the first call.
        active_ms: The active time at ``now_ms``.
        hold_until: Active time before which no session expires, so that requests sent during a
            pause are read first.
    """

    __slots__ = ("tick_ms", "tolerant", "now_ms", "active_ms", "hold_until", "_lag_ms")

    def __init__(self, tick_ms: int, tolerant: bool) -> None:
        self.tick_ms = tick_ms
        self.tolerant = tolerant
        self.now_ms: int | None = None
        self.active_ms = 0
        self.hold_until = 0
        self._lag_ms = 0

    def advance_time(self, now_ms: int) -> int:
        """Set the time and return the active time."""
        if self.now_ms is not None:
            gap = now_ms - self.now_ms
            if gap < 0 or (gap > self.tick_ms and self.tolerant):
                self._lag_ms += gap
                self.hold_until = now_ms - self._lag_ms + self.tick_ms
        self.now_ms = now_ms
        self.active_ms = now_ms - self._lag_ms
        return self.active_ms

    def wall(self, active_ms: int) -> int:
        """Convert active time to wall time, assuming no further pause."""
        return active_ms + self._lag_ms
