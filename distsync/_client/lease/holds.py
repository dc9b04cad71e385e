"""Holds of this process, and the signals that fire when they are lost.

Any thread may call any method, and may be interrupted at any line. Each change is therefore one
dict operation, and a loss is signalled before the hold is removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from distsync._client.lease.lease_clock import LeaseClock
from distsync._protocols.steps import ZNODE_DELETED, Hold, Loss, Signal

LEASE_EXPIRED = "lease expired"
SESSION_EXPIRED = "session expired"
CLIENT_CLOSED = "client closed"
INTERRUPTED = "interrupted"
REVOKED = "revoked"

#: Age in seconds at which a hold gets a watch on its znode. Most holds end earlier.
GUARD_AFTER_S = 0.1


class HeldNode:
    """A hold on a znode.

    Attributes:
        since: When the hold began, on the lease clock.
        ended: Fires when the hold ends, or when its znode must be read again because `on_data` was set.
        on_data: Callback for the data of the znode, or None.
    """

    __slots__ = ("path", "session_id", "loss", "since", "ended", "on_data")

    def __init__(self, step: Hold, since: float) -> None:
        self.path = step.path
        self.session_id = step.session_id
        self.loss = step.loss
        self.since = since
        self.ended = Signal()
        self.on_data: Callable[[bytes], object] | None = None


class HoldTable:
    """All holds of one client. ``on_lease_expired`` is called with the holds that an expired lease ended."""

    def __init__(self, lease: LeaseClock, on_lease_expired: Callable[[list[HeldNode]], object]) -> None:
        self._lease = lease
        self._on_lease_expired = on_lease_expired
        self._active: dict[Loss, HeldNode] = {}
        #: Holds whose znode the background thread does not watch yet, in the order of their start.
        self._unguarded: dict[Loss, HeldNode] = {}
        #: The same, of those that are to be watched at once.
        self._urgent: dict[Loss, HeldNode] = {}
        #: Number of holds added so far.
        self.added = 0

    def __len__(self) -> int:
        return len(self._active)

    def add(self, step: Hold, now: float) -> None:
        """Add a hold. It is lost at once if its session has ended or the lease has expired.

        If its loss was signalled before, it ends at once.
        """
        held = HeldNode(step, now)
        self._active[step.loss] = self._unguarded[step.loss] = held
        self.added += 1
        if step.loss.fired:
            self.remove(step.loss)
        elif step.session_id != self._lease.session_id:
            self.mark_lost(step.loss, SESSION_EXPIRED)
        else:
            self.expire(now)

    def remove(self, loss: Loss) -> None:
        """End the hold without firing ``loss``."""
        held = self._active.pop(loss, None)
        self._unguarded.pop(loss, None)
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
        if loss in self._unguarded:
            self._urgent[loss] = held
        if loss not in self._active:  # ended concurrently
            held.ended.fire()

    def mark_lost(self, loss: Loss, reason: str) -> None:
        """Fire ``loss``, if still held, and end the hold, also if a release has fired ``loss``."""
        held = self._active.get(loss)
        if held:
            if not loss.fired:
                loss.reason = reason
                loss.fire()
            self._active.pop(loss, None)
            self._unguarded.pop(loss, None)
            held.ended.fire()

    def lose_path(self, path: str, reason: str = ZNODE_DELETED) -> None:
        """End all holds on the znode ``path``."""
        for held in self.active():
            if held.path == path:
                self.mark_lost(held.loss, reason)

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

    def guard(self, held: HeldNode) -> bool:
        """Return whether the znode is not watched yet. From then on, the caller watches it."""
        self._urgent.pop(held.loss, None)
        return self._unguarded.pop(held.loss, None) is not None

    def to_guard(self, now: float) -> Iterator[HeldNode]:
        """Yield the holds whose znode is to be watched now, and from then on is watched by the caller."""
        while (held := _first(self._urgent)) or ((held := _first(self._unguarded)) and self.guard_due() <= now):
            if self.guard(held):
                yield held

    def guard_due(self) -> float:
        """Return when the next znode is to be watched."""
        held = _first(self._unguarded)
        return 0.0 if self._urgent else math.inf if held is None else held.since + GUARD_AFTER_S

    def is_active(self, loss: Loss) -> bool:
        """Return whether the hold of ``loss`` has not ended."""
        return loss in self._active


def _first(holds: dict[Loss, HeldNode]) -> HeldNode | None:
    """Return the first value of a dict that other threads may be changing."""
    while True:
        try:
            return next(iter(holds.values()), None)
        except RuntimeError:  # changed between the two calls
            continue
