"""The time unit of the tests: every pause and bound is a multiple of it, and no test asserts an absolute time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

UNIT = 0.05 * float(os.environ.get("DISTSYNC_TEST_UNIT", "1"))
"""Seconds. A slow machine sets DISTSYNC_TEST_UNIT=4, say."""

PATIENCE = 200 * UNIT
"""Seconds after which a condition that should come true by itself is given up."""


def eventually(condition: Callable[[], object], what: str = "", limit: float = PATIENCE) -> None:
    """``condition()`` has come true; AssertionError when it has not within ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, what or f"not within {limit:.1f} s: {condition}"
        time.sleep(UNIT / 5)
