"""Guided campaigns: which schedules to play next, so that each fault hits each place often enough.

In each round, scenarios whose places have missing cells get schedules with fresh seeds and faults
aimed at all missing cells. A place that few schedules reach gets seeds that do, each with several
continuations. If a place was never reached, faults are made more likely. What gained nothing is
skipped for some rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from simulation.engine.await_points import Place
from simulation.engine.coverage_report import ENOUGH, cells_of
from simulation.engine.fault_coverage import possible
from simulation.engine.results import Summary, Tally
from simulation.engine.work_units import TargetedRun, WorkUnit

#: Schedules in a unit of work.
AT_ALL, AT_ONE = 40, 24
#: A place is rare in a scenario if fewer schedules than this share reach it.
RARE = 0.3
#: Factor for the probability of faults where a place was never reached, and occasionally elsewhere.
FIERCE = 4.0


@dataclass
class Backoff:
    """For how many rounds something that gains nothing is skipped."""

    rest: int = 0
    waits: int = 0

    def is_due(self) -> bool:
        self.rest -= 1
        return self.rest < 0

    def judge(self, gain: int) -> None:
        self.waits = 0 if gain else min(2 * self.waits + 1, 63)
        self.rest = self.waits


@dataclass
class GuidedCampaign:
    """What to play in addition to ``summary``. ``whole`` is the sum of its tallies, and is kept up to
    date.
    """

    summary: Summary
    places: Mapping[str, Place]
    tolerated: Mapping[str, tuple[str, ...]]
    """The kinds that each scenario tolerates."""
    whole: Tally = field(default_factory=Tally)
    patience: dict[tuple[str, str], Backoff] = field(default_factory=dict)
    missing: dict[str, set[str]] = field(default_factory=dict)
    """The missing kinds by reached place, as far as known."""

    def __post_init__(self) -> None:
        self.whole = self.summary.whole()
        self.salt = self.whole.aimed
        self._look(self.places)

    def _look(self, names: Iterable[str]) -> None:
        """Update the missing kinds at these places."""
        for name in names:
            cells = cells_of([self.places[name]], self.whole)
            self.missing[name] = {kind for _, kind in (*cells.few, *cells.none)}
            if not self.missing[name]:
                del self.missing[name]

    def units(self) -> Iterator[WorkUnit]:
        """Yield units until no cell is missing; each depends on the results added before."""
        while self.missing or self.unreached():
            for scenario in self.tolerated:
                yield from self._at_all(scenario)
                yield from self._at_rare(scenario)
                yield from self._fiercer(scenario)

    def unreached(self) -> list[str]:
        return [name for name in self.places if not self.whole.reached[name]]

    def _due(self, scenario: str, what: str) -> bool:
        return self.patience.setdefault((scenario, what), Backoff()).is_due()

    def _wanted(self, scenario: str) -> dict[str, set[str]]:
        """Return the missing kinds that are possible at the places that this scenario reaches."""
        wanted = {place: self._wanted_at(scenario, place) for place in self.places if place in self.missing}
        return {place: kinds for place, kinds in wanted.items() if kinds}

    def _wanted_at(self, scenario: str, place: str) -> set[str]:
        tally = self.summary.tallies.get(scenario, Tally())
        if not tally.reached[place]:
            return set()
        seen, tolerated = tally.seen.get(place, 0), (*self.tolerated[scenario], "lag")
        return {kind for kind in self.missing.get(place, ()) if possible(kind, seen) and kind in tolerated}

    def _often(self, scenario: str) -> dict[str, float]:
        tally = self.summary.tallies[scenario]
        return {place: count / tally.schedules for place, count in tally.reached.items()}

    def _at_all(self, scenario: str) -> Iterator[WorkUnit]:
        wanted = self._wanted(scenario)
        if wanted and self._due(scenario, ""):
            first = self._salts(AT_ALL)
            shots = tuple(
                TargetedRun(seed, intensity=FIERCE if seed % 4 == 0 else 1.0) for seed in range(first, first + AT_ALL)
            )
            yield WorkUnit(scenario, shots=shots, wanted=wanted, often=self._often(scenario))

    def _at_rare(self, scenario: str) -> Iterator[WorkUnit]:
        wanted = self._wanted(scenario)
        for place in wanted:
            tally, kinds = self.summary.tallies[scenario], self._wanted_at(scenario, place)
            seeds = tally.examples.get(place)
            if kinds and seeds and tally.reached[place] < RARE * tally.schedules and self._due(scenario, place):
                first = self._salts(AT_ONE)
                shots = [
                    TargetedRun(seed, salt, place, fierce)
                    for salt in range(first, first + AT_ONE)
                    for seed, fierce in [seeds[salt % len(seeds)]]
                ]
                often = {**self._often(scenario), place: 0.0}
                yield WorkUnit(scenario, shots=tuple(shots), wanted={**wanted, place: kinds}, often=often)

    def _fiercer(self, scenario: str) -> Iterator[WorkUnit]:
        """Yield more seeds with more faults, if places in the files that this scenario uses are hardly
        reached.
        """
        files = {place.partition(":")[0] for place in self.summary.tallies.get(scenario, Tally()).reached}
        hard = [name for name in self.places if self.whole.reached[name] < ENOUGH]
        if any(name.partition(":")[0] in files for name in hard) and self._due(scenario, "fiercer"):
            first = self._salts(AT_ALL)
            yield WorkUnit(scenario, first, first + AT_ALL, intensity=FIERCE)

    def _salts(self, count: int) -> int:
        """Return the first of ``count`` numbers that were not used before."""
        first, self.salt = self.salt + 1, self.salt + count
        return first

    def added(self, unit: WorkUnit, tally: Tally) -> int:
        """Add the results of a unit. Return how many cells gained by it, at the place that it was
        aimed at, or anywhere.
        """
        gain, only = 0, unit.shots[0].only if unit.shots else None
        for place, struck in tally.cells.items():
            if only not in (None, place):
                continue
            before = self.whole.struck_at(place)
            gain += sum(before[kind] < ENOUGH for kind in struck if kind in unit.wanted.get(place, ()))
        gain += sum(self.whole.reached[place] < ENOUGH for place in tally.reached) if unit.intensity != 1.0 else 0
        self.whole.add(tally)
        self.summary.add(unit.scenario, tally)
        self._look(place for place in tally.reached if place in self.places)
        what = "fiercer" if unit.intensity != 1.0 else only or ""
        self.patience[unit.scenario, what].judge(gain)
        return gain
