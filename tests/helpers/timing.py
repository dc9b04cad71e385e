"""The unit of waiting of the tests: every pause and bound is a multiple of it, and no test asserts an absolute time."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "DISTSYNC_TEST_UNIT"
"""Environment variable: how many times 0.05 s the unit is. Processes that a test run starts inherit it."""

PROBE = """
import time
begin = time.perf_counter()
for _ in range(100):
    sorted({str(number): number for number in range(5_000)})
print(time.perf_counter() - begin)
"""
PROBE_S = 0.1
"""Seconds that the probe takes on an idle machine of 2025."""

MAX_SLOWDOWN = 5.0


def measure_slowdown() -> float:
    """Return how many times slower than an idle machine of 2025 this one computes, from 1 to `MAX_SLOWDOWN`.

    One process per processor computes at the same time, as the workers of a test run do, so that whatever else the
    machine is busy with counts.
    """
    command = [sys.executable, "-I", "-S", "-c", PROBE]
    probes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    slowest_s = max(float(probe.communicate()[0]) for probe in probes)
    return min(max(slowest_s / PROBE_S, 1.0), MAX_SLOWDOWN)


if VARIABLE not in os.environ:
    os.environ[VARIABLE] = f"{measure_slowdown():.2f}"

UNIT = 0.05 * float(os.environ[VARIABLE])
"""Seconds."""

PATIENCE = 200 * UNIT
"""Seconds after which a condition that should come true by itself is given up."""


def eventually(condition: Callable[[], object], what: str = "", limit: float = PATIENCE) -> None:
    """``condition()`` has come true; AssertionError, and all stacks, if not within ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() >= deadline:
            faulthandler.dump_traceback(sys.__stderr__)
            raise AssertionError(what or f"not within {limit:.1f} s: {condition}")
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
