"""Data of a double barrier's znodes, and state of its members."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from distsync._protocols.retries import DECODE_ERRORS
from distsync._protocols.steps import Check, Create, Delete, Listing, Node, SetData
from distsync._protocols.wait_queue import QueueEntry, in_order, sequence_distance
from distsync.errors import CorruptNodeError, NoNodeError, SessionLostError

#: Name of the znode that exists while members are inside. It is not a member.
READY = "ready"

Operation = SetData | Create | Delete | Check


@dataclass(frozen=True)
class DoubleBarrierState:
    """State of a double barrier, at one version of its znode.

    Attributes:
        path: Path of the barrier.
        parties: How many members enter together; None if a client of another library created it.
        inside: Names of the members that have entered, including those that left since.
        names: Names of all contenders, waiting or inside.
        ready: Whether the znode ``ready`` exists.
        version: Version of the barrier's znode.
    """

    path: str
    parties: int | None
    inside: tuple[str, ...]
    names: tuple[str, ...] = ()
    ready: bool = False
    version: int = 0

    def data(self) -> bytes:
        return json.dumps({"parties": self.parties, "inside": self.inside}).encode()

    @property
    def present(self) -> tuple[str, ...]:
        """Members that have entered and not left."""
        return tuple(name for name in self.inside if name in self.names)

    def waits(self, name: str) -> bool:
        """Return whether this contender waits to enter."""
        return name in self.names and name not in self.inside

    def first(self, parties: int) -> tuple[str, ...]:
        """Return the contenders that enter next, or none if there are too few."""
        inside = [contender.name for contender in in_order(self.names)]
        strangers = [name for name in self.names if name not in inside]
        return tuple((strangers + inside)[:parties]) if len(self.names) >= parties else ()

    def opening(self, inside: tuple[str, ...]) -> tuple[Operation, ...]:
        """Let ``inside`` enter together ("Enter", step 5). Fails if one of them is missing."""
        opened = SetData(self.path, replace(self, parties=len(inside), inside=inside).data(), self.version)
        return opened, Create(f"{self.path}/{READY}"), *(Check(f"{self.path}/{name}") for name in inside)

    def closing(self, *members: str) -> tuple[Operation, ...]:
        """End the meeting, and delete the last ``members``."""
        closed = SetData(self.path, replace(self, inside=()).data(), self.version)
        gone = [Delete(f"{self.path}/{name}") for name in (*members, *([READY] if self.ready else []))]
        return closed, *gone


@dataclass
class Entering:
    """A member that waits to enter.

    Attributes:
        place: Its contender.
        seen: The latest state in which it is known not to have entered.
        late: Whether its deadline has passed.
    """

    place: QueueEntry
    seen: DoubleBarrierState | None = None
    late: bool = False

    def missed(self, now: DoubleBarrierState) -> bool:
        """Return whether the others entered with it, or may have, before its znode was deleted."""
        if self.place.name in now.inside or self.seen is None:
            return self.place.name in now.inside
        known = 2 if self.seen.inside else 1  # the end of that meeting, and the start of the current one
        return sequence_distance(now.version, self.seen.version) > known


@dataclass
class Inside:
    """A member that is inside.

    Attributes:
        place: Its contender.
        group: Names of all members that entered together.
        going: Whether the deletion of its znode was requested, so that its absence is no loss.
    """

    place: QueueEntry
    group: tuple[str, ...]
    going: bool = False


def meeting_in(path: str, listing: Listing | NoNodeError, node: Node | NoNodeError) -> DoubleBarrierState | None:
    """Parse the two replies. Return None if the state changed between them.

    Raise SessionLostError if the barrier's znode, and so all members, were deleted.
    """
    if isinstance(listing, NoNodeError) or isinstance(node, NoNodeError):
        raise SessionLostError(f"the wait at {path}")
    if listing.stat.version != node.stat.version:
        return None
    parties, inside = _fields(path, node.data)
    names = tuple(sorted(name for name in listing.names if name != READY))
    ready = READY in listing.names
    if ready and not inside:
        inside = names  # other implementations of the recipe: all members are inside
    return DoubleBarrierState(path, parties, inside, names, ready, node.stat.version)


def parties_in(path: str, node: Node) -> int | None:
    """Return the number of parties that the znode states."""
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
