"""The clocks for deadlines and leases.

All times are relative; no decision depends on the wall clock of a host.
"""

from __future__ import annotations

import time
from functools import partial


def wait_clock() -> float:
    """Return the time in seconds for waits and deadlines."""
    return time.monotonic()


if hasattr(time, "CLOCK_BOOTTIME"):
    #: lease_clock() without a Python function, for calls that take a microsecond.
    lease_now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

    def lease_clock() -> float:
        """Return the time in seconds for leases. It includes time in suspend."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    lease_now = partial(time.monotonic)

    def lease_clock() -> float:
        """Return the time in seconds for leases. It may not include time in suspend."""
        return time.monotonic()
