"""A grant: what holds a lock, and, where it may be kept after its release, what is known for that.

Source: recipes.txt, "Locks". That a lock is kept is ours; see cache_revocation.py.

Rules for this file: pure; it knows places in lines, and no lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distsync._protocols import wait_queue
from distsync._protocols.steps import Hold, Loss, Signal


@dataclass(eq=False)
class CacheState:
    """A grant that may be kept for ``seconds`` after its release. ``contended`` once somebody came, or may have: it is
    kept no more. ``idle`` while it is kept and nobody holds. ``uses`` counts its holders. ``wakeup``, if there is one,
    is to be fired at the next release. ``over`` when its znode goes."""

    seconds: float
    contended: bool = False
    idle: bool = False
    uses: int = 0
    wakeup: Signal | None = None
    over: Signal = field(default_factory=Signal)

    def want(self) -> None:
        """Somebody has come, or may have. Any thread may call this."""
        self.contended = True


@dataclass(eq=False)
class Grant:
    """The lock is ours: the contender that holds it, what fires when it is lost, and, for who heeds it, what fires
    when somebody asks for it. ``cache``: None where it goes with its release. ``turning`` while another znode takes
    the place of its own: it may have done so already, and ``place`` does not say it yet."""

    place: wait_queue.QueueEntry
    loss: Loss = field(default_factory=Loss)
    owner: object = None
    revoke_requested: Signal = field(default_factory=Signal)
    heeded: bool = False
    cache: CacheState | None = None
    turning: Signal | None = None
    handed_over: bool = False
    """Whether a thread of the process has handed it to another one."""
    ended: bool = False
    """Whether its holder has begun to delete the znode."""

    @property
    def token(self) -> int:
        return self.place.token

    @property
    def may_be_kept(self) -> bool:
        """Nobody else wants it, as far as is known, and it was not lost."""
        cache = self.cache
        return cache is not None and not (cache.contended or self.revoke_requested.fired or self.loss.fired)

    def end(self) -> None:
        """Its znode goes."""
        self.ended = True
        if self.cache is not None:
            self.cache.contended, self.cache.idle = True, False
            self.cache.over.fire()


async def hold(place: wait_queue.QueueEntry, owner: object = None) -> Grant:
    """The lease clock moves for this place from now on."""
    grant = Grant(place, owner=owner)
    await Hold(place.path, place.session_id, grant.loss)
    return grant


def of_owner(grants: Iterable[Grant], owner: object, count: int) -> list[Grant]:
    """At most ``count`` of these, first those of ``owner``."""
    return sorted(grants, key=lambda grant: grant.owner is not owner)[:count]
