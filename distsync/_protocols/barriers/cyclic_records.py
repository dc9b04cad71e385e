"""Data of a barrier's znode, and state of a waiter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from distsync._protocols.steps import Node
from distsync._protocols.wait_queue import ContenderNode, QueueEntry, in_order, sequence_distance
from distsync.errors import BrokenBarrierError, CorruptNodeError

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
        left: Names of this generation that were cancelled.
        version: Version of the znode.
    """

    parties: int
    generation: int = 0
    broken: bool = False
    after: int | None = None
    passed: tuple[tuple[str, ...], ...] = ()
    left: tuple[str, ...] = ()
    version: int = 0

    def data(self) -> bytes:
        fields = {name: value for name, value in asdict(self).items() if name != "version"}
        return json.dumps(fields).encode()

    @property
    def kept(self) -> int:
        """How many generations that passed are recorded."""
        return max(2, REMEMBERED // self.parties)

    def next_generation(self, names: list[str]) -> BarrierGeneration:
        """Return the data after the contenders ``names`` have passed."""
        passed = (*self.passed, tuple(names))[-self.kept :]
        after = max((each.number for each in in_order(names)[-1:]), default=self.after)
        return replace(self, generation=self.generation + 1, after=after, passed=passed, left=())

    def without_waiter(self, name: str) -> BarrierGeneration:
        """Return the data after this contender was cancelled."""
        return replace(self, left=(*self.left, name)[-max(2 * self.parties, REMEMBERED) :])

    def index_of(self, name: str) -> int | None:
        """Return the index with which a contender passed, or None if that is not recorded."""
        return next((names.index(name) for names in self.passed if name in names), None)

    def with_reset_marks(self, names: Iterable[str]) -> tuple[BarrierGeneration, list[ContenderNode]]:
        """Return the data, updated from any reset marks in the queue, and the other contenders."""
        line = in_order(names)
        marks = [each.number for each in line if RESET in each.name]
        waiting = [each for each in line if RESET not in each.name]
        after = (
            marks[-1] if marks and (self.after is None or sequence_distance(marks[-1], self.after) > 0) else self.after
        )
        return replace(self, after=after), waiting

    def includes(self, contender: ContenderNode) -> bool:
        """Return whether a contender belongs to this generation or a later one, and so counts."""
        return self.after is None or sequence_distance(contender.number, self.after) > 0


def turn_in(path: str, node: Node) -> BarrierGeneration:
    """Parse the data of a barrier's znode."""
    try:
        fields = json.loads(node.data)
        after = None if fields["after"] is None else int(fields["after"])
        parties, generation, broken = int(fields["parties"]), int(fields["generation"]), bool(fields["broken"])
        passed = tuple(tuple(map(str, names)) for names in fields["passed"])
        left = tuple(map(str, fields.get("left", ())))  # older versions do not write it
        return BarrierGeneration(parties, generation, broken, after, passed, left, node.stat.version)
    except (ValueError, KeyError, TypeError):
        raise CorruptNodeError(path, node.data) from None


@dataclass(frozen=True)
class BarrierSnapshot:
    """Contenders that count, in queue order; whether ours is enqueued; and the generation."""

    names: list[str]
    present: bool
    turn: BarrierGeneration


@dataclass
class Waiter:
    """One call of wait.

    Attributes:
        place: Its contender.
        view: The state that it read last.
        seen: All contenders that were seen in its generation.
        refused: The generation that was broken when it was read, if any.
        acted: Generation and members for which it ran the action.
    """

    place: QueueEntry
    view: BarrierSnapshot | None = None
    seen: set[str] = field(default_factory=set)
    refused: BarrierGeneration | None = None
    acted: tuple[int, list[str]] | None = None

    def index_in(self, turn: BarrierGeneration) -> int:
        """Return our index, given that our znode is missing.

        Raise BrokenBarrierError if we have not passed, because another client deleted the znode.
        """
        index = turn.index_of(self.place.name)
        if index is None:
            raise BrokenBarrierError
        return index

    def note(self, view: BarrierSnapshot, parties: int) -> int | None:
        """Return how many contenders of this generation are ahead, or None if a party is missing.

        Raise BrokenBarrierError if the barrier is broken.
        """
        if view.turn.broken or self.place.name not in view.names:
            self.refused = view.turn
            raise BrokenBarrierError
        if self.view is not None and self.view.turn.generation != view.turn.generation:
            self.seen.clear()  # they were enqueued before a reset
        group = set(view.names[:parties])
        self.view = view
        if self.place.name in group:
            if self.seen - group - {*view.turn.left}:
                return None
            self.seen |= group
        return view.names.index(self.place.name)
