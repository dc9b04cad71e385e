"""The sessions: ids, passwords and expiry times.

Times are in the engine's active time (session_clock.py). A session expires at the first multiple of
``expiry_ms`` after its timeout. Sessions with the same expiry time share a bucket, so that most
touches cost no more than a comparison.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping

_ID_MASK = (1 << 56) - 1


class Session:
    """A session. ``owner`` is the peer attached to it; None if it is disconnected."""

    __slots__ = ("id", "timeout_ms", "owner", "due")

    def __init__(self, id: int, timeout_ms: int) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.owner: int | None = None
        self.due = 0


def password_of(session_id: int, secret: bytes) -> bytes:
    """Return the 16-byte password of a session."""
    return hmac.digest(secret, session_id.to_bytes(8, "big", signed=True), "sha256")[:16]


def new_session_id(last: int, now_ms: int, server_id: int) -> int:
    """Return an id above ``last``. Its time part puts it above the ids of a server that lost its data."""
    return max(last + 1, (now_ms << 16) & _ID_MASK | server_id << 56)


class Sessions(Mapping[int, Session]):
    """The open sessions by id."""

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._by_id: dict[int, Session] = {}
        self._buckets: dict[int, dict[int, None]] = {}

    def __getitem__(self, id: int) -> Session:
        return self._by_id[id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, id: int, timeout_ms: int, active_ms: int) -> None:
        session = self._by_id[id] = Session(id, timeout_ms)
        self.touch(session, active_ms)

    def close(self, id: int) -> None:
        session = self._by_id.pop(id)
        self._leave_bucket(session)

    def touch(self, session: Session, active_ms: int) -> None:
        """Restart the session's timeout."""
        step = self._expiry_ms
        due = ((active_ms + session.timeout_ms) // step + 1) * step
        if due != session.due:
            self._leave_bucket(session)
            session.due = due
            self._buckets.setdefault(due, {})[session.id] = None

    def touch_all(self, active_ms: int) -> None:
        for session in self._by_id.values():
            self.touch(session, active_ms)

    def due(self, active_ms: int) -> list[int]:
        """Return the ids of the sessions that are due, in order of expiry."""
        return [id for due in sorted(self._buckets) if due <= active_ms for id in self._buckets[due]]

    def next_due(self) -> int | None:
        return min(self._buckets, default=None)

    def _leave_bucket(self, session: Session) -> None:
        bucket = self._buckets.get(session.due)
        if bucket is not None:
            bucket.pop(session.id, None)
            if not bucket:
                del self._buckets[session.due]
