"""Limits on the size of all buffers, and on sessions that are not authenticated. Times are in seconds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Buffered(Protocol):
    @property
    def buffered_bytes(self) -> int: ...

    def close_with_error(self, reason: object) -> None: ...


def close_largest_buffers(connections: Collection[Buffered], limit: int) -> None:
    """If buffers exceed ``limit`` bytes, close the connections with the largest until half of it is free."""
    buffered_bytes = sum(connection.buffered_bytes for connection in connections)
    if buffered_bytes > limit:
        for connection in sorted(connections, key=lambda one: -one.buffered_bytes):
            buffered_bytes -= connection.buffered_bytes
            connection.close_with_error(
                f"{connection.buffered_bytes} bytes buffered, and the limit of all connections is exceeded"
            )
            if buffered_bytes <= limit // 2:
                break


class UnauthenticatedSessions:
    """The unauthenticated sessions: at most ``limit``, each for at most ``seconds``.

    Clients show the secret within a session, so any user of the machine can open one.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._since: dict[int, float] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._since)

    def opened(self, session_id: int, now: float) -> None:
        self._since[session_id] = now

    def admitted(self, session_id: int) -> None:
        self._since.pop(session_id, None)

    def due(self, now: float) -> list[int]:
        """Remove and return the sessions that are to be expired now."""
        over = len(self._since) - self._limit
        latest = now - self._seconds
        done = [id for at, (id, since) in enumerate(self._since.items()) if at < over or since < latest]
        for id in done:
            del self._since[id]
        return done
