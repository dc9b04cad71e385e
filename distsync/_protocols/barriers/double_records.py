"""What the znodes of a double barrier say.

Rules for this file: pure; it asks nothing of a server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from distsync._protocols.retries import DECODE_ERRORS
from distsync._protocols.steps import Check, Create, Delete, Listing, Node, SetData
from distsync._protocols.wait_queue import QueueEntry, in_order, sequence_distance
from distsync.errors import CorruptNodeError, NoNodeError, SessionLostError

#: The znode that says that all are inside. It is no member.
READY = "ready"

Operation = SetData | Create | Delete | Check


@dataclass(frozen=True)
class DoubleBarrierState:
    """Who stands at the barrier, and who of them is inside; as of one version of its znode."""

    path: str
    parties: int | None
    """None: a client of another kind made the znode, and says nothing."""
    inside: tuple[str, ...]
    names: tuple[str, ...] = ()
    ready: bool = False
    version: int = 0

    def data(self) -> bytes:
        return json.dumps({"parties": self.parties, "inside": self.inside}).encode()

    @property
    def present(self) -> tuple[str, ...]:
        """Those of the ones inside who have not left."""
        return tuple(name for name in self.inside if name in self.names)

    def waits(self, name: str) -> bool:
        """Whether this one stands here, and is not inside."""
        return name in self.names and name not in self.inside

    def first(self, parties: int) -> tuple[str, ...]:
        """Those who come inside next: the first ones who stand here; nobody if there are too few."""
        inside = [contender.name for contender in in_order(self.names)]
        strangers = [name for name in self.names if name not in inside]
        return tuple((strangers + inside)[:parties]) if len(self.names) >= parties else ()

    def opening(self, inside: tuple[str, ...]) -> tuple[Operation, ...]:
        """Enter, step 5: these come inside, all at once, with ``ready``. Refused if one of them has gone meanwhile."""
        opened = SetData(self.path, replace(self, parties=len(inside), inside=inside).data(), self.version)
        return opened, Create(f"{self.path}/{READY}"), *(Check(f"{self.path}/{name}") for name in inside)

    def closing(self, *members: str) -> tuple[Operation, ...]:
        """Nobody is inside any more; these ``members`` go with the last one."""
        closed = SetData(self.path, replace(self, inside=()).data(), self.version)
        gone = [Delete(f"{self.path}/{name}") for name in (*members, *([READY] if self.ready else []))]
        return closed, *gone


@dataclass
class Entering:
    """A member that has come and is not inside yet."""

    place: QueueEntry
    seen: DoubleBarrierState | None = None
    """The last meeting that it knows not to have come in with."""
    late: bool = False
    """Its time is over."""

    def missed(self, now: DoubleBarrierState) -> bool:
        """Its znode has gone: whether the others came in with it before, or may have, which nobody knows later."""
        if self.place.name in now.inside or self.seen is None:
            return self.place.name in now.inside
        known = 2 if self.seen.inside else 1  # the end of that meeting, and the begin of the one that we see
        return sequence_distance(now.version, self.seen.version) > known


@dataclass
class Inside:
    """A member that is inside, with the names of all that came in with it."""

    place: QueueEntry
    group: tuple[str, ...]
    going: bool = False
    """Its znode was asked to go: that it is not there is no loss."""


def meeting_in(path: str, listing: Listing | NoNodeError, node: Node | NoNodeError) -> DoubleBarrierState | None:
    """What these two answers say together; None if the meeting changed in between. Raises SessionLostError where the
    barrier's znode has gone, with all who stood there."""
    if isinstance(listing, NoNodeError) or isinstance(node, NoNodeError):
        raise SessionLostError(f"standing at {path}")
    if listing.stat.version != node.stat.version:
        return None
    parties, inside = _fields(path, node.data)
    names = tuple(sorted(name for name in listing.names if name != READY))
    ready = READY in listing.names
    if ready and not inside:
        inside = names  # the recipe as others write it: whoever stands there is inside
    return DoubleBarrierState(path, parties, inside, names, ready, node.stat.version)


def parties_in(path: str, node: Node) -> int | None:
    """How many this znode asks for."""
    return _fields(path, node.data)[0]


def _fields(path: str, data: bytes) -> tuple[int | None, tuple[str, ...]]:
    if not data.startswith(b"{"):
        return None, ()
    try:
        fields = json.loads(data)
        parties = None if fields["parties"] is None else int(fields["parties"])
        return parties, tuple(map(str, fields["inside"]))
    except DECODE_ERRORS:
        raise CorruptNodeError(path, data) from None
