"""The event loop: uvloop's where it is installed, asyncio's otherwise; and how many connections a process can afford.

Rules for this file: it knows no server.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Coroutine
from typing import Any

BACKLOG = 1024
RESERVED_DESCRIPTORS = 64
"""For the journal, and whatever else is opened now and then."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """``work`` is done, in a loop of its own."""
    loop = _new_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def backlog() -> int:
    """So many may be accepted before the first of them is counted."""
    return min(BACKLOG, _descriptors() // 4)


def max_connections() -> int:
    """As many as have file descriptors, those just accepted included."""
    return max(1, _descriptors() - backlog() - RESERVED_DESCRIPTORS)


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
