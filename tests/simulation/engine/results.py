"""Tallies: the results of schedules, as plain data that can be added up and saved.

Results of different sources are never added to each other.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation.engine.fault_coverage import MAX_SEEDS

#: Maximum number of violations to keep with their seeds, for each scenario.
MAX_VIOLATIONS = 20

FORMAT = 1


class OtherSourcesError(Exception):
    """The report is of protocols with other sources."""

    def __init__(self, file: str) -> None:
        super().__init__(f"{file} is a report of other protocols; use another file")


@dataclass
class Tally:
    """The results of one scenario. ``seeds`` are ranges (end exclusive); ``aimed`` counts schedules
    with aimed faults.
    """

    seeds: list[tuple[int, int]] = field(default_factory=list)
    schedules: int = 0
    aimed: int = 0
    seconds: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    struck_in: Counter[str] = field(default_factory=Counter)
    """How many schedules each kind was injected in; "none" for schedules without faults."""
    violated: int = 0
    violations: list[dict[str, Any]] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    seen: dict[str, int] = field(default_factory=dict)
    cells: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Seeds that reach a place, with the fault factor."""

    def add(self, other: Tally) -> None:
        """Add the results of ``other``."""
        self.seeds = united([*self.seeds, *other.seeds])
        self.schedules += other.schedules
        self.aimed += other.aimed
        self.seconds += other.seconds
        self.injected.update(other.injected)
        self.struck_in.update(other.struck_in)
        self.violated += other.violated
        kept = sorted([*self.violations, *other.violations], key=lambda each: (len(each["exactly"]), each["seed"]))
        self.violations = kept[:MAX_VIOLATIONS]
        self.reached.update(other.reached)
        for place, seen in other.seen.items():
            self.seen[place] = self.seen.get(place, 0) | seen
        for place, struck in other.cells.items():
            self.cells.setdefault(place, Counter()).update(struck)
        for place, seeds in other.examples.items():
            self.examples[place] = sorted({*self.examples.get(place, ()), *seeds})[:MAX_SEEDS]

    def struck_at(self, place: str) -> Counter[str]:
        """Return how often each kind was injected at this place."""
        return self.cells.get(place) or Counter()

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON; equal tallies give equal text."""
        return {
            "seeds": [list(each) for each in self.seeds],
            "schedules": self.schedules,
            "aimed": self.aimed,
            "seconds": round(self.seconds, 3),
            "injected": dict(sorted(self.injected.items())),
            "struck_in": dict(sorted(self.struck_in.items())),
            "violated": self.violated,
            "violations": self.violations,
            "reached": dict(sorted(self.reached.items())),
            "seen": dict(sorted(self.seen.items())),
            "cells": {place: dict(sorted(cells.items())) for place, cells in sorted(self.cells.items())},
            "examples": dict(sorted(self.examples.items())),
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Tally:
        """Create a tally from ``plain()``."""
        return cls(
            **{
                **plain,
                "seeds": [(first, end) for first, end in plain["seeds"]],
                "injected": Counter(plain["injected"]),
                "struck_in": Counter(plain["struck_in"]),
                "reached": Counter(plain["reached"]),
                "examples": {
                    place: [(seed, fierce) for seed, fierce in seeds] for place, seeds in plain["examples"].items()
                },
                "cells": {place: Counter(cells) for place, cells in plain["cells"].items()},
            }
        )


def united(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same seeds in as few ranges as possible."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif first < end:
            joined.append((first, end))
    return joined


def not_played(played: list[tuple[int, int]], first: int, count: int) -> list[tuple[int, int]]:
    """Return the next ``count`` seeds from ``first`` on that were not played yet."""
    found = []
    for begin, end in [*played, (2**62, 2**62)]:
        free = min(begin, first + count) - first
        if free > 0:
            found.append((first, first + free))
            count -= free
        first = max(first, end)
        if count <= 0:
            break
    return found


@dataclass
class Summary:
    """Tallies by scenario, for protocols with these sources."""

    sources: str
    tallies: dict[str, Tally] = field(default_factory=dict)

    def add(self, scenario: str, tally: Tally) -> None:
        self.tallies.setdefault(scenario, Tally()).add(tally)

    def whole(self) -> Tally:
        """Return the sum of all scenarios; its seeds and examples are meaningless."""
        whole = Tally()
        for tally in self.tallies.values():
            whole.add(tally)
        return whole

    def save(self, file: Path) -> None:
        """Replace the file atomically."""
        tallies = {name: tally.plain() for name, tally in sorted(self.tallies.items())}
        beside = file.with_name(file.name + ".new")
        text = json.dumps({"format": FORMAT, "sources": self.sources, "scenarios": tallies}, indent=1)
        beside.write_text(text + "\n", "utf-8")
        os.replace(beside, file)

    @classmethod
    def load(cls, file: Path, sources: str) -> Summary:
        """Return the summary in the file, if it has the same sources; an empty one if there is no
        file.
        """
        if not file.exists():
            return cls(sources)
        read = json.loads(file.read_text("utf-8"))
        if read.get("format") != FORMAT or read.get("sources") != sources:
            raise OtherSourcesError(str(file))
        return cls(sources, {name: Tally.of(plain) for name, plain in read["scenarios"].items()})
