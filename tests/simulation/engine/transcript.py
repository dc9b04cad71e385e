"""The transcript of a schedule, the records of its tasks, and the failure that shows both.

Notes are kept as they are, and formatted only when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simulation.engine.faults import Exactly, Faults
from simulation.engine.transcript_format import TranscriptFormatter

#: Maximum number of lines of the transcript in a failure's text.
SHOWN_LINES = 400
WIDEST = 300


@dataclass(frozen=True)
class Record:
    """Something that a task reported with ``world.record``."""

    at_ms: int
    process: str
    task: str
    event: str
    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"a record of {self.event!r} has no field {name!r}") from None


class History:
    """Everything that happened in one schedule."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, str, str, Any]] = []
        self.records: list[Record] = []

    def lines(self, last: int | None = None) -> Iterable[str]:
        """Yield a line for each note: time in ms, source, what, and its argument."""
        words = TranscriptFormatter()
        for at_ms, who, what, about in self.notes[-last:] if last else self.notes:
            yield f"{at_ms:>8} {who:<16} {what} {words.of(about)[:WIDEST]}".rstrip()

    def events(self, event: str) -> list[Record]:
        """Return the records of this event, in order."""
        return [record for record in self.records if record.event == event]


class SimulationFailure(AssertionError):
    """A violation in one schedule. ``seed`` and ``plan`` repeat it."""

    def __init__(self, message: str, seed: int, plan: Faults, injected: list[Exactly], history: History) -> None:
        super().__init__(message, seed)
        self.message = message
        self.seed = seed
        self.plan = plan
        self.injected = list(injected)
        self.history = history

    def __str__(self) -> str:
        shown = "\n".join(self.history.lines(SHOWN_LINES))
        left_out = max(0, len(self.history.notes) - SHOWN_LINES)
        above = f"(the first {left_out} lines are left out)\n" if left_out else ""
        struck = "\n".join(f"  {each}" for each in self.injected) or "  none"
        return (
            f"{self.message}\n\nseed {self.seed}, {self.plan}\nfaults that struck:\n{struck}\n\n"
            f"schedule (ms, who, > step or = answer or ! error):\n{above}{shown}"
        )
