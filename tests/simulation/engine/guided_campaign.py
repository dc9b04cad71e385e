"""Guidance: the schedules to run next so that each fault hits each place often enough.

It proceeds in rounds. In each round, scenarios whose places lack something get schedules with new
seeds and faults aimed at all that is missing; a place that few schedules reach gets seeds that
reach it, with different continuations; and where a place was never reached, faults are more
frequent. What brought nothing is left out for some rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from simulation.engine.await_points import Place
from simulation.engine.coverage_report import ENOUGH, cells_of
from simulation.engine.fault_coverage import possible
from simulation.engine.results import Summary, Tally
from simulation.engine.work_units import TargetedRun, WorkUnit

#: Number of schedules in a unit of work.
AT_ALL, AT_ONE = 40, 24
#: A place is rare in a scenario if fewer schedules than this fraction reach it.
RARE = 0.3
#: Factor for the frequency of faults where something was never reached, and now and then elsewhere.
FIERCE = 4.0


@dataclass
class Backoff:
    """How long something that brings nothing is left out."""

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
    """What to run in addition to ``summary``. ``whole`` is the sum of all scenarios, and grows with
    it.
    """

    summary: Summary
    places: Mapping[str, Place]
    stands: Mapping[str, tuple[str, ...]]
    """The kinds that each scenario stands."""
    whole: Tally = field(default_factory=Tally)
    patience: dict[tuple[str, str], Backoff] = field(default_factory=dict)
    lacking: dict[str, set[str]] = field(default_factory=dict)
    """Kinds by reached place, as far as has been looked."""

    def __post_init__(self) -> None:
        self.whole = self.summary.whole()
        self.salt = self.whole.aimed
        self._look(self.places)

    def _look(self, names: Iterable[str]) -> None:
        """Return what is missing at these places."""
        for name in names:
            cells = cells_of([self.places[name]], self.whole)
            self.lacking[name] = {kind for _, kind in (*cells.few, *cells.none)}
            if not self.lacking[name]:
                del self.lacking[name]

    def pieces(self) -> Iterator[WorkUnit]:
        """Yield units of work; each depends on the results added in between. Ends when nothing is
        missing.
        """
        while self.lacking or self.unreached():
            for scenario in self.stands:
                yield from self._at_all(scenario)
                yield from self._at_rare(scenario)
                yield from self._fiercer(scenario)

    def unreached(self) -> list[str]:
        return [name for name in self.places if not self.whole.reached[name]]

    def _due(self, scenario: str, what: str) -> bool:
        return self.patience.setdefault((scenario, what), Backoff()).is_due()

    def _wanted(self, scenario: str) -> dict[str, set[str]]:
        """Return what is missing at places that this scenario reaches, and is possible there."""
        wanted = {place: self._wanted_at(scenario, place) for place in self.places if place in self.lacking}
        return {place: kinds for place, kinds in wanted.items() if kinds}

    def _wanted_at(self, scenario: str, place: str) -> set[str]:
        tally = self.summary.tallies.get(scenario, Tally())
        if not tally.reached[place]:
            return set()
        seen, stands = tally.seen.get(place, 0), (*self.stands[scenario], "lag")
        return {kind for kind in self.lacking.get(place, ()) if possible(kind, seen) and kind in stands}

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
        """Return more seeds that reach what nothing or little has reached in the files that this
        scenario uses.
        """
        files = {place.partition(":")[0] for place in self.summary.tallies.get(scenario, Tally()).reached}
        hard = [name for name in self.places if self.whole.reached[name] < ENOUGH]
        if any(name.partition(":")[0] in files for name in hard) and self._due(scenario, "fiercer"):
            first = self._salts(AT_ALL)
            yield WorkUnit(scenario, first, first + AT_ALL, intensity=FIERCE)

    def _salts(self, count: int) -> int:
        """Return numbers that were not used before."""
        first, self.salt = self.salt + 1, self.salt + count
        return first

    def added(self, piece: WorkUnit, tally: Tally) -> int:
        """Note a result: how many cells came closer to enough by it, at its place, or anywhere."""
        gain, only = 0, piece.shots[0].only if piece.shots else None
        for place, struck in tally.cells.items():
            if only not in (None, place):
                continue
            before = self.whole.struck_at(place)
            gain += sum(before[kind] < ENOUGH for kind in struck if kind in piece.wanted.get(place, ()))
        gain += sum(self.whole.reached[place] < ENOUGH for place in tally.reached) if piece.intensity != 1.0 else 0
        self.whole.add(tally)
        self.summary.add(piece.scenario, tally)
        self._look(place for place in tally.reached if place in self.places)
        what = "fiercer" if piece.intensity != 1.0 else only or ""
        self.patience[piece.scenario, what].judge(gain)
        return gain
