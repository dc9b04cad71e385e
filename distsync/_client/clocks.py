"""The clocks. Nobody else in distsync reads one.

Rules for this file: relative time only; the wall clock of a host decides nothing.
"""

from __future__ import annotations

import time
from functools import partial


def wait_clock() -> float:
    """Seconds, for waits and deadlines."""
    return time.monotonic()


if hasattr(time, "CLOCK_BOOTTIME"):
    #: The same as lease_clock, without a Python function: for what takes a microsecond.
    lease_now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

    def lease_clock() -> float:
        """Seconds, for the age of a lease: it counts the time that the machine was suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    lease_now = partial(time.monotonic)

    def lease_clock() -> float:
        """Seconds, for the age of a lease; this system has no clock that surely counts suspend."""
        return time.monotonic()
