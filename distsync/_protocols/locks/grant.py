"""Grants: what holds a lock, and the state of its cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distsync._protocols import wait_queue
from distsync._protocols.steps import Hold, Loss, Signal


@dataclass(eq=False)
class CacheState:
    """State of a grant that may stay cached after its release (see cache_revocation.py).

    Attributes:
        seconds: How long it stays cached.
        contended: Whether another contender has arrived, or may have. If so, it must not be cached.
        idle: Whether it is cached, and held by no thread.
        uses: How many times it was acquired from the cache.
        wakeup: Fired at the next release, unless None.
        ended: Fires when the znode is about to be deleted.
    """

    seconds: float
    contended: bool = False
    idle: bool = False
    uses: int = 0
    wakeup: Signal | None = None
    ended: Signal = field(default_factory=Signal)

    def mark_contended(self) -> None:
        """Record that another contender has arrived, or may have. Safe in any thread."""
        self.contended = True


class TemporaryOwner:
    """Owner of what an interrupted call had acquired or was releasing, until its clean-up releases it.

    No thread holds it until then.
    """


@dataclass(eq=False)
class Subscriber:
    """An object with callbacks, from its acquire of a grant to its release.

    Attributes:
        subject: The object.
        depth: Recursion level of its acquire.
        owner: The reader that acquired a shared grant; None if the grant has a single holder, or
            if the object is called until the last reader releases it.
        loss_reported: Whether its callback for a loss was called.
        revocation_reported: Whether its callback for a revocation was called.
    """

    subject: Any
    depth: int = 1
    owner: object = None
    loss_reported: bool = False
    revocation_reported: bool = False


@dataclass(eq=False)
class Grant:
    """A lock or permit that this process holds or caches.

    Attributes:
        entry: The contender that holds it.
        loss: Fires when it is lost.
        owner: The thread or task that acquired it.
        revoke_requested: Fires when another client requests revocation, if ``watched``.
        watched: Whether revocation requests are watched for.
        cache: State of the cache, or None if it is not cached after its release.
        downgrading: Signal while a SharedLock replaces the writer's znode by a reader's; fires when
            ``entry`` is updated. Otherwise None.
        handed_over: Whether a thread of this process handed it to another one.
        ended: Whether its holder has begun to delete the znode.
        subscribers: Objects that hold by it and have callbacks.
        reports: Whether ``loss`` and ``revoke_requested`` are reported to the subscribers.
    """

    entry: wait_queue.QueueEntry
    loss: Loss = field(default_factory=Loss)
    owner: object = None
    revoke_requested: Signal = field(default_factory=Signal)
    watched: bool = False
    cache: CacheState | None = None
    downgrading: Signal | None = None
    handed_over: bool = False
    ended: bool = False
    subscribers: list[Subscriber] = field(default_factory=list)
    reports: bool = False

    @property
    def token(self) -> int:
        return self.entry.token

    @property
    def may_be_cached(self) -> bool:
        """Whether it may be cached: it was not lost, and no other client is known to want it."""
        cache = self.cache
        return cache is not None and not (cache.contended or self.revoke_requested.fired or self.loss.fired)

    def unsubscribe(self, depth: int = 0, owner: object = None) -> None:
        """Remove the subscribers of ``owner`` whose acquire was above ``depth``.

        A loss that has happened is still reported to them.
        """
        for each in tuple(self.subscribers):
            if each.depth > depth and each.owner is owner and not self.loss.fired:
                self.subscribers.remove(each)

    def unsubscribe_all(self) -> None:
        """Remove all subscribers. A loss that has happened is still reported to them."""
        if self.subscribers and not self.loss.fired:
            self.subscribers.clear()

    def lose(self, reason: str, subscribers: Iterable[Subscriber] = ()) -> None:
        """Fire ``loss`` if it has not fired, for ``subscribers`` too, whose release found out."""
        if not self.loss.fired:
            self.subscribers += [each for each in subscribers if each not in self.subscribers]
            self.loss.reason = reason
            self.loss.fire()

    def end(self) -> None:
        """Record that the znode is about to be deleted."""
        self.unsubscribe_all()
        self.ended = True
        if self.cache is not None:
            self.cache.contended, self.cache.idle = True, False
            self.cache.ended.fire()


async def hold(entry: wait_queue.QueueEntry, owner: object = None) -> Grant:
    """Hold what ``entry`` was granted, and keep its lease alive."""
    grant = Grant(entry, owner=owner)
    await Hold(entry.path, entry.session_id, grant.loss)
    return grant


def of_owner(grants: Iterable[Grant], owner: object, count: int) -> list[Grant]:
    """Return at most ``count`` of the grants that are held, those of ``owner`` first."""
    held = (grant for grant in grants if not isinstance(grant.owner, TemporaryOwner))
    return sorted(held, key=lambda grant: grant.owner is not owner)[:count]
