"""Results of a run, and whether they reach the goals. Ratios are taken within rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

OURS, KAZOO = "distsync", "kazoo"
COUNTED = ("requests", "events", "bytes")


@dataclass(frozen=True)
class Result:
    """The result of one measure, on one server, at one size: rates (operations per second) and figures
    of each round, and counts per operation.
    """

    measure: str
    server: str
    size: int
    rates: dict[str, list[float]]
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All results of one run, with its environment."""

    machine: dict[str, Any]
    results: list[Result]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, read: dict[str, Any]) -> Report:
        return cls(read["machine"], [Result(**one) for one in read["results"]])

    @property
    def servers(self) -> list[str]:
        return list(dict.fromkeys(one.server for one in self.results))

    def of(self, measure: str, server: str) -> list[Result]:
        """Smallest size first."""
        found = [one for one in self.results if (one.measure, one.server) == (measure, server)]
        return sorted(found, key=lambda one: one.size)

    def without(self, found: Sequence[Result]) -> list[Result]:
        """Return the results that were not measured again at the same size."""
        again = {(one.measure, one.server, one.size) for one in found}
        return [one for one in self.results if (one.measure, one.server, one.size) not in again]


class Spread(NamedTuple):
    """The median and the range of some rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


Seen = Callable[[Sequence[Result]], Sequence[float]]
"""Maps the results of a measure, smallest size first, to the values to compare with the goal, one per
round.
"""


@dataclass(frozen=True)
class Goal:
    """What a measure must reach; without a bound it is only shown."""

    what: str
    seen: Seen
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def spread(self, results: Sequence[Result]) -> Spread | None:
        """Return the spread; None if it was not measured."""
        try:
            values = self.seen(results)
        except LookupError:
            return None
        return Spread.of(values) if values else None

    def is_reached(self, spread: Spread) -> bool | None:
        """Return whether the goal is reached; None without a bound."""
        if self.at_least is None and self.at_most is None:
            return None
        above = self.at_least is None or spread.median >= self.at_least
        return above and (self.at_most is None or spread.median <= self.at_most)


def ratios(result: Result, of: str, than: str) -> list[float]:
    """Return how many times as many operations per second, for each round."""
    return [one / other for one, other in zip(result.rates[of], result.rates[than], strict=True)]


def whose(of: str) -> str:
    """Return how the name of a goal begins."""
    return "" if of == OURS else f"{of}: "


def faster(at_least: float | None = None, *, than: str = KAZOO, of: str = OURS) -> Goal:
    """Return a goal: ``of`` performs this many times as many operations per second as ``than``."""
    return Goal(f"{whose(of)}rate of {than}", lambda results: ratios(results[-1], of, than), at_least=at_least)


def slower(at_most: float, *, than: str, of: str = OURS) -> Goal:
    """Return a goal: an operation of ``of`` takes this many times as long as one of ``than``."""
    return Goal(f"{whose(of)}time of {than}", lambda results: ratios(results[-1], than, of), at_most=at_most)


def counted(kind: str, per: str, at_most: float, of: str = OURS) -> Goal:
    """Return a goal: ``of`` sends, or gets, this many per operation."""
    return Goal(f"{kind} per {per}", lambda results: [results[-1].counts[of][kind]], at_most=at_most, unit="")


def constant(kind: str, per: str, at_most: float, of: str = OURS) -> Goal:
    """Return a goal: at the largest size at most this many times as many as at the smallest."""

    def grown(results: Sequence[Result]) -> list[float]:
        return [results[-1].counts[of][kind] / results[0].counts[of][kind]]

    return Goal(f"{kind} per {per}, largest to smallest", grown, at_most=at_most)


def figure(
    name: str, *, at_least: float | None = None, at_most: float | None = None, unit: str = "x", of: str = OURS
) -> Goal:
    """Return a goal for a figure that a contestant reports for each round."""
    what = name if of == OURS else f"{of}: {name}"
    return Goal(what, lambda results: results[-1].figures[of][name], at_least, at_most, unit)
