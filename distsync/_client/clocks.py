"""The clocks for deadlines and leases.

All times are relative; no decision depends on the wall clock of a host.

A test may freeze or shift the time of its process with freezegun or time-machine. Sessions still
expire in real time, so these clocks are not frozen: neither package replaces a
``functools.partial`` or the steady clocks of ``time.clock_gettime``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

#: Return the time in seconds for waits and deadlines.
wait_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    if hasattr(time, "CLOCK_MONOTONIC")
    else partial(time.monotonic)  # Windows
)

#: Return the time in seconds for leases. It includes time in suspend if the system has such a clock.
lease_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else wait_clock
)

#: In place of the module ``time``, for functions that measure durations only.
_REAL_TIME = SimpleNamespace(monotonic=wait_clock, time=wait_clock, sleep=time.sleep)


def with_real_time(function: Any) -> Any:
    """Return a copy of a function of kazoo whose module ``time`` has the clock `wait_clock`."""
    names = {**function.__globals__, "time": _REAL_TIME}
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
