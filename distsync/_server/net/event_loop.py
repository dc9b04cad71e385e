"""The event loop (uvloop's if installed), and the number of connections that a process can have."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Coroutine
from typing import Any

BACKLOG = 1024
RESERVED_DESCRIPTORS = 64
"""File descriptors reserved for the journal and other files."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in a new event loop."""
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
    """Return the backlog of a listening socket: connections that may be accepted at once, before they are counted."""
    return min(BACKLOG, _descriptors() // 4)


def max_connections() -> int:
    """Return the number of connections for which there are file descriptors."""
    return max(1, _descriptors() - backlog() - RESERVED_DESCRIPTORS)


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
