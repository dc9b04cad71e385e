"""Limits on what clients cost the server: bytes buffered for all of them, and sessions that are not authenticated.

Rules for this file: no clock and no socket; times are passed in, in seconds, and connections are closed through
``Buffered``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Buffered(Protocol):
    """A connection."""

    @property
    def held(self) -> int: ...

    def close_with_error(self, reason: object) -> None: ...


def close_largest_buffers(connections: Collection[Buffered], limit: int) -> None:
    """When they hold more, those that hold most are closed until all that is held is half of what may be."""
    held = sum(connection.held for connection in connections)
    if held > limit:
        for connection in sorted(connections, key=lambda one: -one.held):
            held -= connection.held
            connection.close_with_error(f"{connection.held} bytes wait for it, and all have too many")
            if held <= limit // 2:
                break


class UnauthenticatedSessions:
    """At most ``limit`` sessions, each for ``seconds``, unless it is admitted.

    Any user of the machine may open a session on a server with a secret, since the secret is shown inside the session;
    so sessions that have not shown it are few and short.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._since: dict[int, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._since)

    def opened(self, session_id: int, now: float) -> None:
        self._since[session_id] = now

    def admitted(self, session_id: int) -> None:
        self._since.pop(session_id, None)

    def due(self, now: float) -> list[int]:
        """The sessions that are to end now; they are strangers no more."""
        over = len(self._since) - self._limit
        latest = now - self._seconds
        done = [id for at, (id, since) in enumerate(self._since.items()) if at < over or since < latest]
        for id in done:
            del self._since[id]
        return done
