"""The lease clock: until when it is proven that a session lives.

Rules for this file: pure; every time is passed in, in seconds of a clock that counts suspend.

Proof is an answer that a quorum had a hand in, to a write, be it one of no operations (steps.Sync), never a ping or a
read: a follower that is cut off from its leader goes on answering both; nor ZooKeeper's sync, which a leader that is
cut off from its quorum answers. What is proven is that the session lived when the request was *sent*; the leader then
waits for the whole time-out before it ends the session.
"""

from __future__ import annotations

#: The part of the time-out that is not relied upon. A leader learns of a client's touch with the follower's next
#: ping only (half a tick), rounds down to ticks, and the clocks of two hosts run differently fast.
MARGIN = 0.4
VALID_FRACTION = 1 - MARGIN

#: A proof is asked for this often, as a part of the time-out, while anything is held: one may come 0.26 of the
#: time-out late before the lease runs out.
HEARTBEAT_FRACTION = 1 / 3

NEVER = float("-inf")


class LeaseClock:
    """Until when the present session is proven to live. A later proof moves it, for what is acquired then; what
    was held when it ran out stays lost (holds.py)."""

    __slots__ = ("session_id", "timeout", "proven_at")

    def __init__(self) -> None:
        self.session_id: int | None = None
        self.timeout = 0.0
        self.proven_at = NEVER

    def begin(self, session_id: int, timeout: float, sent_at: float) -> None:
        """A new session, asked for at ``sent_at``: its creation is a write. In this order: who reads beside it reads
        the session last, so that no proof is taken for that of the one before."""
        self.session_id = session_id
        self.timeout, self.proven_at = timeout, sent_at

    def renegotiate(self, timeout: float) -> None:
        """The session was attached to another server, which may have clamped its time-out otherwise."""
        self.timeout = timeout

    def prove(self, session_id: int | None, sent_at: float) -> None:
        """A write of ``session_id``, sent at ``sent_at``, was answered."""
        if session_id == self.session_id and session_id is not None:
            self.proven_at = max(self.proven_at, sent_at)

    def end(self) -> None:
        """The session is over."""
        self.session_id, self.proven_at = None, NEVER

    @property
    def valid_until(self) -> float:
        return self.proven_at + self.timeout * VALID_FRACTION

    @property
    def next_heartbeat(self) -> float:
        """When the next proof should be asked for."""
        return self.proven_at + self.timeout * HEARTBEAT_FRACTION

    def is_valid_at(self, session_id: int, now: float, fresh: bool = False) -> bool:
        """Whether ``session_id`` surely lives at ``now``; ``fresh``: and no proof is due yet."""
        # first: a session that begins meanwhile is seen then
        until = self.next_heartbeat if fresh else self.valid_until
        return session_id == self.session_id and now < until
