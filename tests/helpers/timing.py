"""The time unit of the tests: every pause and bound is a multiple of it, and no test asserts an absolute time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

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


class Control:
    """While it is entered: how late a wait of this process ends that needs no server, at worst (``late``, seconds)."""

    def __init__(self) -> None:
        self.late = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def _measure(self) -> None:
        while True:
            began = time.monotonic()
            over = self._over.wait(UNIT)
            self.late = max(self.late, time.monotonic() - began - UNIT)
            if over:
                return

    def __enter__(self) -> Control:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()
