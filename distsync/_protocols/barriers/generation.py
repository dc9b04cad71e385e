"""State of a cyclic barrier: the data of its znode, what a waiter reads of it, and the count of arrivals.

The count shows a party whose session ended before a waiter saw it. The transaction that creates a
party's znode also creates and deletes a child of the counter, whose Stat so tells how many parties
ever arrived. A waiter knows how many have arrived since its own arrival, and compares that with the
znodes. It reads the count only if the Stat of the barrier shows that a child was created and deleted
unseen. Children that another program created are not in the count.

Older programs do not count their parties, and do not write ``left_all``. Without it, nothing is
concluded from the count until a reset, or until no party is left waiting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from distsync._protocols.retries import DECODE_ERRORS, read_all
from distsync._protocols.steps import Children, Exists, Listing, Node, Stat
from distsync._protocols.wait_queue import (
    HALF,
    LOCK,
    ContenderNode,
    QueueEntry,
    creations,
    in_order,
    sequence_distance,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError

#: How many names of parties that passed, and that left, are recorded. At least two whole generations
#: are, whatever their size.
REMEMBERED = 32

#: Suffix of the mark that a reset enqueues: contenders ahead of it no longer count.
RESET = "-reset-"


@dataclass(frozen=True)
class BarrierGeneration:
    """Data of a barrier's znode.

    Attributes:
        parties: How many parties pass at a time.
        generation: Number of the current generation.
        broken: Whether the barrier is broken.
        after: Contenders with sequence numbers up to this do not count; None if all count.
        passed: Names in each of the last generations that passed, the latest one last.
        left: Names that were cancelled, in this generation or behind it.
        left_all: Whether ``left`` is known to be complete.
        version: Version of the znode.
        czxid: Which znode it is, if another one was deleted; 0 if unknown.
    """

    parties: int
    generation: int = 0
    broken: bool = False
    after: int | None = None
    passed: tuple[tuple[str, ...], ...] = ()
    left: tuple[str, ...] = ()
    left_all: bool = True
    version: int = 0
    czxid: int = 0

    def data(self) -> bytes:
        fields = {name: value for name, value in asdict(self).items() if name not in ("version", "czxid")}
        return json.dumps(fields).encode()

    @property
    def recorded_generations(self) -> int:
        """How many generations that passed are recorded."""
        return max(2, REMEMBERED // self.parties)

    def next_generation(self, names: list[str], remaining: int) -> BarrierGeneration:
        """Return the data after the contenders ``names`` have passed, and ``remaining`` still wait."""
        passed = (*self.passed, tuple(names))[-self.recorded_generations :]
        after = max((each.number for each in in_order(names)[-1:]), default=self.after)
        record = replace(self, generation=self.generation + 1, after=after, passed=passed)
        left = tuple(each.name for each in in_order(self.left) if record.includes(each))
        return replace(record, left=left, left_all=self.left_all or not remaining)

    def after_reset(self, after: int | None) -> BarrierGeneration:
        """Return the data after a reset, for which contenders up to ``after`` do not count."""
        return replace(self, generation=self.generation + 1, broken=False, after=after, left=(), left_all=True)

    def with_parties(self, parties: int, waiting: list[ContenderNode]) -> BarrierGeneration:
        """Return the data after the number of parties was changed; contenders that were ``waiting`` do not count."""
        after = waiting[-1].number if waiting else self.after
        return replace(self.after_reset(after), parties=parties)

    def without_waiter(self, name: str) -> BarrierGeneration:
        """Return the data after this contender was cancelled."""
        left = (*self.left, name)[-max(2 * self.parties, REMEMBERED) :]
        return replace(self, left=left, left_all=self.left_all and len(left) > len(self.left))

    def left_after(self, number: int) -> int:
        """Return how many contenders with a higher sequence number were cancelled."""
        return sum(sequence_distance(each.number, number) > 0 for each in in_order(self.left))

    def is_same(self, other: BarrierGeneration) -> bool:
        """Return whether both are the same generation of the same znode."""
        return self.generation == other.generation and (self.czxid == other.czxid or 0 in (self.czxid, other.czxid))

    def index_of(self, name: str) -> int | None:
        """Return the index with which a contender passed, or None if that is not recorded."""
        return next((names.index(name) for names in self.passed if name in names), None)

    def with_reset_marks(self, names: Iterable[str]) -> tuple[BarrierGeneration, list[ContenderNode]]:
        """Return the data, updated from any reset marks in the queue, and the parties.

        Other programs may have created other names, with numbers of their own.
        """
        order = in_order(names)
        marks = [each.number for each in order if RESET in each.name]
        waiting = [each for each in order if LOCK in each.name]
        after = (
            marks[-1] if marks and (self.after is None or sequence_distance(marks[-1], self.after) > 0) else self.after
        )
        return replace(self, after=after), waiting

    def includes(self, contender: ContenderNode) -> bool:
        """Return whether a contender belongs to this generation or a later one, and so counts."""
        return self.after is None or sequence_distance(contender.number, self.after) > 0


def generation_in(path: str, node: Node) -> BarrierGeneration:
    """Parse the data of a barrier's znode."""
    try:
        fields = json.loads(node.data)
        after = None if fields["after"] is None else int(fields["after"])
        parties, generation, broken = int(fields["parties"]), int(fields["generation"]), bool(fields["broken"])
        passed = tuple(tuple(map(str, names)) for names in fields["passed"])
        left = tuple(map(str, fields.get("left", ())))  # older versions do not write it, nor the next one
        left_all = bool(fields.get("left_all", False))
        stat = node.stat
        return BarrierGeneration(parties, generation, broken, after, passed, left, left_all, stat.version, stat.czxid)
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, node.data) from None


@dataclass(frozen=True)
class BarrierSnapshot:
    """State of the barrier, as read by a waiter.

    Attributes:
        names: Contenders that count, in queue order.
        present: Whether our contender is enqueued.
        record: The generation.
        later: How many contenders are behind ours.
        created_later: How many children were created after our contender.
    """

    names: list[str]
    present: bool
    record: BarrierGeneration
    later: int = 0
    created_later: int = 0


class ArrivalCount:
    """What a waiter knows of the count.

    Args:
        path: Path of the counter.
        entry: The waiter's contender.
        stat: The counter right after the contender was created; None if the reply was lost.
    """

    def __init__(self, path: str, entry: QueueEntry, stat: Stat | None) -> None:
        self.path = path
        self.entry = entry
        self.number = in_order([entry.name])[0].number
        #: How many parties had ever arrived when the contender was created; None if unknown.
        self.at_arrival = None if stat is None else creations(stat)
        #: How many children, created after it, were neither seen nor have left, when the count showed
        #: that no party was missing.
        self.unseen = 0

    async def find(self) -> None:
        """Find out how many parties had arrived with ours, if the reply was lost.

        A later child that is not there any more counts as a party: the barrier rather breaks, by a
        child that another program created and deleted in this moment, than waits for a missing party.
        """
        while self.at_arrival is None:
            reads = Exists(self.path), Children(self.entry.directory), Exists(self.path)
            count, listing, again = await read_all(*reads)
            if not isinstance(count, Stat) or not isinstance(listing, Listing):
                return
            if isinstance(again, Stat) and again.mzxid == count.mzxid:  # no party arrived in between
                later = 0 if count.mzxid == self.entry.token else self._later_parties(listing)
                self.at_arrival = creations(count) - later

    def _later_parties(self, listing: Listing) -> int:
        """Return how many parties may have been created after our contender."""
        others = [each for each in in_order(listing.names) if LOCK not in each.name]
        later = sum(sequence_distance(each.number, self.number) > 0 for each in others)
        return (creations(listing.stat) - self.number - 1) % HALF - later

    def _unseen_in(self, view: BarrierSnapshot) -> int:
        """Return how many of the children created after our contender were neither seen nor have left."""
        return view.created_later - view.later - view.record.left_after(self.number)

    def may_miss_a_party(self, view: BarrierSnapshot) -> bool:
        """Return whether the session of a party that arrived after ours may have ended unseen."""
        return self.at_arrival is not None and view.record.left_all and self._unseen_in(view) > self.unseen

    def misses_a_party(self, count: Any, view: BarrierSnapshot) -> bool:
        """Return whether ``count``, read before ``view``, includes a party that neither waits nor has left."""
        since = creations(count) - (self.at_arrival or 0) if isinstance(count, Stat) else 0
        return since > view.later + view.record.left_after(self.number)

    def accept(self, view: BarrierSnapshot) -> None:
        """Record that the count shows no missing party in ``view``."""
        self.unseen = self._unseen_in(view)
