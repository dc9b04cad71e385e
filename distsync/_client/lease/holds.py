"""Holds of this process, and the signals that fire when they are lost.

Any thread may call any method, and may be interrupted at any line. Each change is therefore one
dict operation, and a loss is signalled before the hold is removed.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._client.lease.lease_clock import LeaseClock
from distsync._protocols.steps import ZNODE_DELETED, Hold, Loss, Signal

LEASE_EXPIRED = "lease expired"
SESSION_EXPIRED = "session expired"
CLIENT_CLOSED = "client closed"
INTERRUPTED = "interrupted"


class HeldNode:
    """A hold on a znode.

    Attributes:
        since: When the hold began, on the lease clock.
        guarded: Whether the background thread watches the znode.
        ended: Fires when the hold ends, or must be watched in another way.
        on_data: Callback for the data of the znode, or None.
    """

    __slots__ = ("path", "session_id", "loss", "since", "guarded", "ended", "on_data")

    def __init__(self, step: Hold, since: float) -> None:
        self.path = step.path
        self.session_id = step.session_id
        self.loss = step.loss
        self.since = since
        self.guarded = False
        self.ended = Signal()
        self.on_data: Callable[[bytes], object] | None = None


class HoldTable:
    """All holds of one client. ``on_lease_expired`` is called with the holds that an expired lease ended."""

    def __init__(self, lease: LeaseClock, on_lease_expired: Callable[[list[HeldNode]], object]) -> None:
        self._lease = lease
        self._on_lease_expired = on_lease_expired
        self._active: dict[Loss, HeldNode] = {}
        #: Number of holds added so far.
        self.added = 0

    def __len__(self) -> int:
        return len(self._active)

    def add(self, step: Hold, now: float) -> None:
        """Add a hold. It is lost at once if its session has ended or the lease has expired."""
        self._active[step.loss] = HeldNode(step, now)
        self.added += 1
        if step.session_id != self._lease.session_id:
            self.mark_lost(step.loss, SESSION_EXPIRED)
        else:
            self.expire(now)

    def remove(self, loss: Loss) -> None:
        """End the hold without firing ``loss``."""
        held = self._active.pop(loss, None)
        if held:
            held.ended.fire()

    def watch(self, loss: Loss, on_data: Callable[[bytes], object]) -> None:
        """Call ``on_data`` with the data of the held znode, now and whenever it changes."""
        held = self._active.get(loss)
        if held is None or held.on_data is not None:
            return
        held.on_data = on_data
        before, held.ended = held.ended, Signal()
        before.fire()
        if loss not in self._active:  # ended concurrently
            held.ended.fire()

    def mark_lost(self, loss: Loss, reason: str) -> None:
        """Fire ``loss``, if still held, and end the hold."""
        held = self._active.get(loss)
        if held and not loss.fired:
            loss.reason = reason
            loss.fire()
            self._active.pop(loss, None)
            held.ended.fire()

    def lose_path(self, path: str) -> None:
        """End all holds on the znode ``path``, which was deleted."""
        for held in self.active():
            if held.path == path:
                self.mark_lost(held.loss, ZNODE_DELETED)

    def lose_all(self, reason: str) -> list[HeldNode]:
        """End all holds, and return them."""
        lost = self.active()
        for held in lost:
            self.mark_lost(held.loss, reason)
        return lost

    def expire(self, now: float) -> None:
        """End all holds if the lease has expired.

        They stay lost even if a later proof shows that the session was still alive.
        """
        if self._active and now >= self._lease.valid_until:
            self._on_lease_expired(self.lose_all(LEASE_EXPIRED))

    def active(self) -> list[HeldNode]:
        return list(self._active.values())

    def is_active(self, loss: Loss) -> bool:
        """Return whether the hold of ``loss`` has not ended."""
        return loss in self._active
