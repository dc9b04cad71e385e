"""What the znode of a barrier says.

Rules for this file: pure; it asks nothing of a server.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from distsync.errors import CorruptNodeError
from distsync.protocols.line import Contender, offset
from distsync.session.steps import Node

#: So many names of those who have passed are remembered, but at least two whole generations.
REMEMBERED = 32


@dataclass(frozen=True)
class Turn:
    """What the barrier's znode says. Contenders up to the number ``after`` (None: nobody) do not count; ``passed`` are
    the last generations that passed, the last one last."""

    parties: int
    generation: int = 0
    broken: bool = False
    after: int | None = None
    passed: tuple[tuple[str, ...], ...] = ()
    version: int = 0

    def data(self) -> bytes:
        fields = {name: value for name, value in asdict(self).items() if name != "version"}
        return json.dumps(fields).encode()

    def opened(self, names: list[str]) -> Turn:
        """The next turn: these have passed."""
        kept = max(2, REMEMBERED // self.parties)
        return replace(self, generation=self.generation + 1, passed=(*self.passed, tuple(names))[-kept:])

    def index_of(self, name: str) -> int | None:
        """The index with which this contender has passed; None: it has not, or long ago."""
        return next((names.index(name) for names in self.passed if name in names), None)

    def counts(self, contender: Contender) -> bool:
        """Whether this contender is of the present generation, or of a later one."""
        return self.after is None or offset(contender.number, self.after) > 0


def turn_in(path: str, node: Node) -> Turn:
    """The turn that this znode describes."""
    try:
        fields = json.loads(node.data)
        after = None if fields["after"] is None else int(fields["after"])
        parties, generation, broken = int(fields["parties"]), int(fields["generation"]), bool(fields["broken"])
        passed = tuple(tuple(map(str, names)) for names in fields["passed"])
        return Turn(parties, generation, broken, after, passed, node.stat.version)
    except (ValueError, KeyError, TypeError):
        raise CorruptNodeError(path, node.data) from None
