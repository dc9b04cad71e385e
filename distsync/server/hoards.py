"""How much may wait in memory for all clients together, in both directions.

Rules for this file: it knows what connections hold, not why.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Buffered(Protocol):
    """A connection."""

    @property
    def held(self) -> int: ...

    def close_with_error(self, reason: object) -> None: ...


def close_largest_buffers(connections: Collection[Buffered], most: int) -> None:
    """When they hold more, those that hold most are closed until all that is held is half of what may be."""
    held = sum(connection.held for connection in connections)
    if held > most:
        for connection in sorted(connections, key=lambda one: -one.held):
            held -= connection.held
            connection.close_with_error(f"{connection.held} bytes wait for it, and all have too many")
            if held <= most // 2:
                break
