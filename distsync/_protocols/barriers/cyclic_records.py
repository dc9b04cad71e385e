"""What the znode of a barrier says, and what one who waits there has seen.

Rules for this file: pure; it asks nothing of a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from distsync._protocols.steps import Node
from distsync._protocols.wait_queue import ContenderNode, QueueEntry, in_order, sequence_distance
from distsync.errors import BrokenBarrierError, CorruptNodeError

#: So many names of those who have passed, and of those who have left, are remembered, but at least of two whole
#: generations.
REMEMBERED = 32

#: A mark in the line: who stands ahead of it was sent away by a reset.
RESET = "-reset-"


@dataclass(frozen=True)
class BarrierGeneration:
    """What the barrier's znode says. Contenders up to the number ``after`` (None: nobody) do not count; ``passed`` are
    the last generations that passed, the last one last; ``left`` are those of this generation who went on purpose."""

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
        """So many generations that passed are remembered."""
        return max(2, REMEMBERED // self.parties)

    def next_generation(self, names: list[str]) -> BarrierGeneration:
        """The next turn: these have passed."""
        passed = (*self.passed, tuple(names))[-self.kept :]
        after = max((each.number for each in in_order(names)[-1:]), default=self.after)
        return replace(self, generation=self.generation + 1, after=after, passed=passed, left=())

    def without_waiter(self, name: str) -> BarrierGeneration:
        """This turn, when this contender has left it."""
        return replace(self, left=(*self.left, name)[-max(2 * self.parties, REMEMBERED) :])

    def index_of(self, name: str) -> int | None:
        """The index with which this contender has passed; None: it has not, or long ago."""
        return next((names.index(name) for names in self.passed if name in names), None)

    def with_reset_marks(self, names: Iterable[str]) -> tuple[BarrierGeneration, list[ContenderNode]]:
        """This turn, as the marks among the ``names`` of the line complete it, and all who stand there."""
        line = in_order(names)
        marks = [each.number for each in line if RESET in each.name]
        waiting = [each for each in line if RESET not in each.name]
        after = (
            marks[-1] if marks and (self.after is None or sequence_distance(marks[-1], self.after) > 0) else self.after
        )
        return replace(self, after=after), waiting

    def includes(self, contender: ContenderNode) -> bool:
        """Whether this contender is of the present generation, or of a later one."""
        return self.after is None or sequence_distance(contender.number, self.after) > 0


def turn_in(path: str, node: Node) -> BarrierGeneration:
    """The turn that this znode describes."""
    try:
        fields = json.loads(node.data)
        after = None if fields["after"] is None else int(fields["after"])
        parties, generation, broken = int(fields["parties"]), int(fields["generation"]), bool(fields["broken"])
        passed = tuple(tuple(map(str, names)) for names in fields["passed"])
        left = tuple(map(str, fields.get("left", ())))  # none in what was written before there was any
        return BarrierGeneration(parties, generation, broken, after, passed, left, node.stat.version)
    except (ValueError, KeyError, TypeError):
        raise CorruptNodeError(path, node.data) from None


@dataclass(frozen=True)
class BarrierSnapshot:
    """Who stands at the barrier and counts, first one first; whether our znode stands there; the turn."""

    names: list[str]
    present: bool
    turn: BarrierGeneration


@dataclass
class Waiter:
    """One call of wait: its place, what it saw last, all who were seen to wait with it, the turn that it found
    broken, and for whom it ran the action."""

    place: QueueEntry
    view: BarrierSnapshot | None = None
    seen: set[str] = field(default_factory=set)
    refused: BarrierGeneration | None = None
    acted: tuple[int, list[str]] | None = None

    def index_in(self, turn: BarrierGeneration) -> int:
        """Our znode has gone: our index, as we have passed. Raises BrokenBarrierError if somebody else deleted it."""
        index = turn.index_of(self.place.name)
        if index is None:
            raise BrokenBarrierError
        return index

    def note(self, view: BarrierSnapshot, parties: int) -> int | None:
        """How many of this generation stand ahead of us; None if one of us is missing. Raises BrokenBarrierError if
        the barrier is broken."""
        if view.turn.broken or self.place.name not in view.names:
            self.refused = view.turn
            raise BrokenBarrierError
        if self.view is not None and self.view.turn.generation != view.turn.generation:
            self.seen.clear()  # they stood there before a reset
        group = set(view.names[:parties])
        self.view = view
        if self.place.name in group:
            if self.seen - group - {*view.turn.left}:
                return None
            self.seen |= group
        return view.names.index(self.place.name)
