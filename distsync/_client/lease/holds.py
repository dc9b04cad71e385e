"""What this process holds, and the signals that fire when it does so no longer.

Rules for this file: pure; times are passed in. Any thread may call anything, and may be interrupted anywhere: each
change is one dict operation, and what is lost is told before it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._client.lease.lease_clock import LeaseClock
from distsync._protocols.steps import ZNODE_DELETED, Hold, Loss, Signal

LEASE_RAN_OUT = "lease ran out"
SESSION_EXPIRED = "session expired"
CLIENT_CLOSED = "client closed"
INTERRUPTED = "interrupted"


class HeldNode:
    """One hold that stands; ``over`` fires when it does not any more, or is to be watched otherwise. ``on_data`` is
    called with the data of its znode, if anybody wants it."""

    __slots__ = ("path", "session_id", "loss", "since", "guarded", "over", "on_data")

    def __init__(self, step: Hold, since: float) -> None:
        self.path = step.path
        self.session_id = step.session_id
        self.loss = step.loss
        self.since = since
        self.guarded = False
        self.over = Signal()
        self.on_data: Callable[[bytes], object] | None = None


class HoldTable:
    """All holds of one client. ``on_lapse`` is called with what was lost because the lease ran out."""

    def __init__(self, lease: LeaseClock, on_lapse: Callable[[list[HeldNode]], object]) -> None:
        self._lease = lease
        self._on_lapse = on_lapse
        self._standing: dict[Loss, HeldNode] = {}
        #: Another number whenever one was added.
        self.added = 0

    def __len__(self) -> int:
        return len(self._standing)

    def add(self, step: Hold, now: float) -> None:
        """Stands from now on; lost at once if its session is over, or not proven."""
        self._standing[step.loss] = HeldNode(step, now)
        self.added += 1
        if step.session_id != self._lease.session_id:
            self.mark_lost(step.loss, SESSION_EXPIRED)
        else:
            self.expire(now)

    def remove(self, loss: Loss) -> None:
        """``loss`` will not fire any more."""
        held = self._standing.pop(loss, None)
        if held:
            held.over.fire()

    def watch(self, loss: Loss, on_data: Callable[[bytes], object]) -> None:
        """``on_data`` is called with what is written into the znode of this hold, if it stands."""
        held = self._standing.get(loss)
        if held is None or held.on_data is not None:
            return
        held.on_data = on_data
        before, held.over = held.over, Signal()
        before.fire()
        if loss not in self._standing:  # it went meanwhile
            held.over.fire()

    def mark_lost(self, loss: Loss, reason: str) -> None:
        """It is held no longer, for this reason."""
        held = self._standing.get(loss)
        if held and not loss.fired:
            loss.reason = reason
            loss.fire()
            self._standing.pop(loss, None)
            held.over.fire()

    def lose_path(self, path: str) -> None:
        """Nothing is held by this znode any longer: somebody has deleted it."""
        for held in self.standing():
            if held.path == path:
                self.mark_lost(held.loss, ZNODE_DELETED)

    def lose_all(self, reason: str) -> list[HeldNode]:
        """Nothing is held any longer. Returns what was."""
        lost = self.standing()
        for held in lost:
            self.mark_lost(held.loss, reason)
        return lost

    def expire(self, now: float) -> None:
        """If the lease has run out, nothing is held any longer, also when a later proof shows that the session
        lived on."""
        if self._standing and now >= self._lease.valid_until:
            self._on_lapse(self.lose_all(LEASE_RAN_OUT))

    def standing(self) -> list[HeldNode]:
        return list(self._standing.values())

    def is_active(self, loss: Loss) -> bool:
        """Whether this hold does."""
        return loss in self._standing
