"""Plays scenarios with many seeds, and counts.

A seed determines the schedule and the possible faults. One fifth of the seeds have no faults, two
fifths one kind, two fifths all kinds of the scenario; a quarter of those with faults also have
lagging servers. A fifth of all seeds have only outages, ghosts or stalled threads, and another
fifth have them in addition.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation.engine.faults import AT_EVENT, AT_REQUEST, Faults, Watcher
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import SimulationFailure
from simulation.scenarios import Scenario
from simulation.scenarios.common import OBSERVER

#: The probability of a kind at an opportunity: if it is the only one, and if it is one of many.
ALONE, TOGETHER = 0.03, 0.006


@dataclass
class Report:
    """The results of one scenario."""

    scenario: str
    schedules: int = 0
    picks: int = 0
    seconds: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    failures: list[SimulationFailure] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Schedules per second."""
        return self.schedules / self.seconds if self.seconds else 0.0

    def lines(self) -> Iterable[str]:
        """Yield the report as text."""
        verdict = f"{len(self.failures)} FAILED" if self.failures else "no violation"
        yield f"{self.scenario}: {self.schedules} schedules, {verdict} ({self.speed:.0f} a second)"
        if self.injected:
            yield "    faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.injected.items()))
        for failure in self.failures:
            yield f"    seed {failure.seed}: {failure.message}"


def faults_of(scenario: Scenario, seed: int, fierce: float = 1.0) -> Faults:
    """Return the possible faults of this seed; ``fierce`` is a factor for their probability."""
    rng = random.Random(seed ^ 0x5EED)
    late = random.Random(seed ^ 0x0A6E)
    others, besides = late.random(), {kind: scaled(kind, ALONE) for kind in late.choice(_some(scenario.later_kinds))}
    share = rng.random()
    if others < 0.2 and besides:
        return Faults.of(besides, most=rng.randint(1, 2), spare=(OBSERVER,), victims=is_victim)
    if share < 0.2:
        return Faults()
    if share < 0.6:
        kind = rng.choice(scenario.kinds)
        chances = {kind: scaled(kind, ALONE)}
    else:
        chances = {kind: scaled(kind, TOGETHER) for kind in scenario.kinds}
    if random.Random(seed ^ 0x1A6).random() < 0.25:
        chances["lag"] = scaled("lag", ALONE)
    if others > 0.8:
        chances |= besides
    most = rng.randint(1, 2)
    if fierce != 1.0:
        chances = {kind: min(0.5, chance * fierce) for kind, chance in chances.items()}
    return Faults.of(chances, most=most, spare=(OBSERVER,), victims=is_victim)


def _some(kinds: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the choices: each kind alone, and all together."""
    return [*((kind,) for kind in kinds), kinds]


def is_victim(path: str) -> bool:
    """Return whether an intruder may delete this znode. Without its receipt, the outcome of a
    transaction is reported as unknown.
    """
    return "/receipts/" not in path


def scaled(kind: str, chance: float) -> float:
    """Scale a probability so that each kind is about equally frequent: steps are more frequent than
    requests, and requests than events.
    """
    return chance * (2 if kind in AT_REQUEST else 6 if kind in AT_EVENT else 1)


def run_seed(
    scenario: Scenario, seed: int, faults: Faults | None = None, watcher: Watcher | None = None, aims: bool = False
) -> Simulation:
    """Play one schedule; raises SimulationFailure."""
    world = Simulation(seed, faults=faults_of(scenario, seed) if faults is None else faults)
    if watcher is not None:
        world.faults.watch(watcher, aims)
    try:
        scenario.run(world)
    except BaseException:
        world.__exit__(BaseException)
        raise
    return world


def run(
    scenario: Scenario, seeds: Iterable[int], *, most_failures: int = 3, tell: Callable[[Report], object] | None = None
) -> Report:
    """Play all seeds, until ``most_failures`` have failed. ``tell`` is called after each one."""
    report = Report(scenario.name)
    began = time.perf_counter()
    gc.disable()
    try:
        for seed in seeds:
            _play_one(report, scenario, seed)
            report.seconds = time.perf_counter() - began
            if report.schedules % 200 == 0:
                gc.collect()
            if tell is not None:
                tell(report)
            if len(report.failures) >= most_failures:
                break
    finally:
        gc.enable()
    return report


def _play_one(report: Report, scenario: Scenario, seed: int) -> None:
    world = None
    try:
        world = run_seed(scenario, seed)
        struck = world.faults.injected
        report.picks += world.scheduler.picks
    except SimulationFailure as failure:
        report.failures.append(failure)
        struck = failure.injected
    report.schedules += 1
    report.injected.update(each.kind for each in struck)
