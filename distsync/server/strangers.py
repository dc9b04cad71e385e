"""Strangers: sessions on a server with a secret in which nobody has shown it yet.

Rules for this file: pure; its time is passed in, in seconds. Anybody on the machine may open a session, for the secret
can only be shown in one; so such sessions are few, and short.
"""

from __future__ import annotations


class UnauthenticatedSessions:
    """At most ``most`` sessions, each for ``seconds``, unless it is admitted."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
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
        over = len(self._since) - self._most
        latest = now - self._seconds
        done = [id for at, (id, since) in enumerate(self._since.items()) if at < over or since < latest]
        for id in done:
            del self._since[id]
        return done
