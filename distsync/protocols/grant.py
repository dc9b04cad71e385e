"""A grant: what holds a lock, and, where it may be kept after its release, what is known for that.

Source: recipes.txt, "Locks". That a lock is kept is ours; see keep.py.

Rules for this file: pure; it knows places in lines, and no lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distsync.protocols import line
from distsync.session.steps import Hold, Loss, Signal


@dataclass(eq=False)
class Keeping:
    """A grant that may be kept for ``seconds`` after its release. ``wanted`` once somebody came, or may have: it is
    kept no more. ``idle`` while it is kept and nobody holds. ``uses`` counts its holders. ``doze``, if there is one, is
    to be fired at the next release. ``over`` when its znode goes."""

    seconds: float
    wanted: bool = False
    idle: bool = False
    uses: int = 0
    doze: Signal | None = None
    over: Signal = field(default_factory=Signal)

    def want(self) -> None:
        """Somebody has come, or may have. Any thread may call this."""
        self.wanted = True


@dataclass(eq=False)
class Grant:
    """The lock is ours: the contender that holds it, what fires when it is lost, and, for who heeds it, what fires
    when somebody asks for it. ``keeping``: None where it goes with its release. ``turning`` while another znode takes
    the place of its own: it may have done so already, and ``place`` does not say it yet."""

    place: line.Place
    loss: Loss = field(default_factory=Loss)
    owner: object = None
    plea: Signal = field(default_factory=Signal)
    heeded: bool = False
    keeping: Keeping | None = None
    turning: Signal | None = None

    @property
    def token(self) -> int:
        return self.place.token

    @property
    def may_be_kept(self) -> bool:
        """Nobody else wants it, as far as is known, and it was not lost."""
        keeping = self.keeping
        return keeping is not None and not (keeping.wanted or self.plea.fired or self.loss.fired)

    def end(self) -> None:
        """Its znode goes."""
        if self.keeping is not None:
            self.keeping.wanted, self.keeping.idle = True, False
            self.keeping.over.fire()


async def hold(place: line.Place, owner: object = None) -> Grant:
    """The lease clock moves for this place from now on."""
    grant = Grant(place, owner=owner)
    await Hold(place.path, place.session_id, grant.loss)
    return grant


def of_owner(grants: Iterable[Grant], owner: object, count: int) -> list[Grant]:
    """At most ``count`` of these, first those of ``owner``."""
    return sorted(grants, key=lambda grant: grant.owner is not owner)[:count]
