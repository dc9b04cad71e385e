"""Units of work: some schedules of one scenario, played and counted in any process.

Input and output are plain data, and a unit gives the same result wherever it is played.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation.engine.await_points import FOLDER, Locator
from simulation.engine.fault_coverage import Coverage
from simulation.engine.fault_targeting import FaultTargeting
from simulation.engine.faults import Exactly
from simulation.engine.results import MAX_VIOLATIONS, Tally
from simulation.engine.runner import faults_of, run_seed
from simulation.engine.transcript import SimulationFailure
from simulation.scenarios import SCENARIOS, Scenario

#: Collect reference cycles that survived their own schedule after this number of schedules.
COLLECT_AFTER = 200


@dataclass(frozen=True)
class TargetedRun:
    """A schedule with aimed faults.

    ``salt`` determines what follows the first one, unless it is 0. ``only`` is the place at which
    that one is aimed. ``intensity`` is the factor for the probability of random faults.
    """

    seed: int
    salt: int = 0
    only: str | None = None
    intensity: float = 1.0


@dataclass(frozen=True)
class WorkUnit:
    """Seeds from ``first`` up to ``end``, with ``intensity`` as the factor for random faults, or
    ``shots``.

    ``wanted`` are the kinds that the shots aim at, by place. ``often`` is how often a schedule of
    this scenario reaches a place.
    """

    scenario: str
    first: int = 0
    end: int = 0
    intensity: float = 1.0
    shots: tuple[TargetedRun, ...] = ()
    wanted: dict[str, set[str]] = field(default_factory=dict)
    often: dict[str, float] = field(default_factory=dict)


def play_unit(unit: WorkUnit, scenario: Scenario | None = None, locator: Locator | None = None) -> Tally:
    """Play all schedules of a unit."""
    scenario = scenario or SCENARIOS[unit.scenario]
    locator = locator or LOCATOR
    tally = Tally(seeds=[(unit.first, unit.end)] if unit.end > unit.first and unit.intensity == 1.0 else [])
    coverage = FaultTargeting(locator, unit.wanted, unit.often) if unit.shots else Coverage(locator)
    shots = unit.shots or tuple(TargetedRun(seed, intensity=unit.intensity) for seed in range(unit.first, unit.end))
    began = time.perf_counter()
    gc.disable()
    try:
        for number, shot in enumerate(shots):
            _play(tally, scenario, coverage, shot)
            gc.collect(2 if number % COLLECT_AFTER == COLLECT_AFTER - 1 else 0)
    finally:
        gc.enable()
    tally.seconds = time.perf_counter() - began
    for place, spot in coverage.spots.items():
        tally.reached[place], tally.seen[place] = spot.reached, spot.seen
        if spot.seeds:
            tally.examples[place] = spot.seeds
    for (place, kind), count in coverage.cells.items():
        tally.cells.setdefault(place, Counter())[kind] = count
    return tally


#: One per process: what it learns of the code is valid for all schedules.
LOCATOR = Locator(FOLDER)


def _play(tally: Tally, scenario: Scenario, coverage: Coverage, shot: TargetedRun) -> None:
    aim = coverage if isinstance(coverage, FaultTargeting) else None
    if aim is not None:
        aim.begin(shot.seed, shot.salt, shot.only)
    else:
        coverage.seed = shot.seed, shot.intensity
    plan = faults_of(scenario, shot.seed, shot.intensity)
    try:
        world = run_seed(scenario, shot.seed, plan, coverage, aim is not None)
        struck = world.faults.injected
        world.history.notes.clear()  # freed now, it need not be collected
    except SimulationFailure as failure:
        struck = failure.injected
        aimed = [struck[index] for index in aim.aimed] if aim is not None else []
        tally.violated += 1
        tally.violations.append(violation_of(shot, aimed, failure.message))
        del tally.violations[MAX_VIOLATIONS:]
    tally.schedules += 1
    tally.aimed += aim is not None
    tally.injected.update(each.kind for each in struck)
    tally.struck_in.update({each.kind for each in struck} or {"none"})


def violation_of(shot: TargetedRun, aimed: Sequence[Exactly], message: str) -> dict[str, Any]:
    """Return what is needed to repeat a schedule with a violation."""
    return {"seed": shot.seed, "fierce": shot.intensity, "exactly": [list(each) for each in aimed], "message": message}


def again(scenario: str, violation: dict[str, Any]) -> str:
    """Return the command line arguments that repeat the schedule."""
    words = [f"--primitive {scenario} --seed {violation['seed']}"]
    if violation["fierce"] != 1.0:
        words.append(f"--fierce {violation['fierce']:g}")
    words += ["--exactly " + ":".join(map(str, each)) for each in violation["exactly"]]
    return " ".join(words)
