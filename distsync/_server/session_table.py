"""The sessions: ids, passwords, and when each is due to expire.

Rules for this file: its time is the engine's waking time, in ms, which stands still while the engine was stopped. A
session expires at a multiple of some time, the first one after its time-out has passed: all that share one stand in
one bucket, so that a touch costs no more than a comparison most of the time.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping

_ID_MASK = (1 << 56) - 1


class Session:
    """``owner`` is the peer that is attached, None while none is."""

    __slots__ = ("id", "timeout_ms", "owner", "due")

    def __init__(self, id: int, timeout_ms: int) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.owner: int | None = None
        self.due = 0


def password_of(session_id: int, secret: bytes) -> bytes:
    """16 bytes that only who was told them can know."""
    return hmac.digest(secret, session_id.to_bytes(8, "big", signed=True), "sha256")[:16]


def new_session_id(last: int, now_ms: int, server_id: int) -> int:
    """Above ``last``, and by its time part above those of a server that has forgotten what it gave out."""
    return max(last + 1, (now_ms << 16) & _ID_MASK | server_id << 56)


class Sessions(Mapping[int, Session]):
    """Sessions by id."""

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
        """The session has its full time-out again."""
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
        """The sessions whose time is up, the longest silent first."""
        return [id for due in sorted(self._buckets) if due <= active_ms for id in self._buckets[due]]

    def next_due(self) -> int | None:
        return min(self._buckets, default=None)

    def _leave_bucket(self, session: Session) -> None:
        bucket = self._buckets.get(session.due)
        if bucket is not None:
            bucket.pop(session.id, None)
            if not bucket:
                del self._buckets[session.due]
