"""Units of work: some schedules of one scenario, run and tallied in any process.

Input and output are plain data; a unit gives the same result wherever it is run.
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
from simulation.engine.results import KEPT, Tally
from simulation.engine.runner import faults_of, run_seed
from simulation.engine.transcript import SimulationFailure
from simulation.scenarios import SCENARIOS, Scenario

#: Number of schedules after which surviving reference cycles are collected.
COLLECT_AFTER = 200


@dataclass(frozen=True)
class TargetedRun:
    """One schedule with aimed faults.

    What follows the first of them depends on ``salt`` if given; that one is aimed at the place
    ``only`` if given; random faults are this many times as likely.
    """

    seed: int
    salt: int = 0
    only: str | None = None
    intensity: float = 1.0


@dataclass(frozen=True)
class WorkUnit:
    """Seeds from ``first`` to ``end``, with faults this many times as likely as usual; or ``shots`` at
    the kinds that are ``wanted`` at places.

    ``often``: how often a schedule of this scenario reaches a place.
    """

    scenario: str
    first: int = 0
    end: int = 0
    intensity: float = 1.0
    shots: tuple[TargetedRun, ...] = ()
    wanted: dict[str, set[str]] = field(default_factory=dict)
    often: dict[str, float] = field(default_factory=dict)


def work_off(piece: WorkUnit, scenario: Scenario | None = None, locator: Locator | None = None) -> Tally:
    """Run all its schedules."""
    scenario = scenario or SCENARIOS[piece.scenario]
    locator = locator or LOCATOR
    tally = Tally(seeds=[(piece.first, piece.end)] if piece.end > piece.first and piece.intensity == 1.0 else [])
    coverage = FaultTargeting(locator, piece.wanted, piece.often) if piece.shots else Coverage(locator)
    shots = piece.shots or tuple(TargetedRun(seed, intensity=piece.intensity) for seed in range(piece.first, piece.end))
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


#: One per process: what it learns about the code is valid for all schedules.
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
        world.history.notes.clear()  # garbage of before need not be collected
    except SimulationFailure as failure:
        struck = failure.injected
        aimed = [struck[index] for index in aim.aimed] if aim is not None else []
        tally.violated += 1
        tally.violations.append(violation_of(shot, aimed, failure.message))
        del tally.violations[KEPT:]
    tally.schedules += 1
    tally.aimed += aim is not None
    tally.injected.update(each.kind for each in struck)
    tally.struck_in.update({each.kind for each in struck} or {"none"})


def violation_of(shot: TargetedRun, aimed: Sequence[Exactly], message: str) -> dict[str, Any]:
    """Return what is kept of a failed schedule: enough to run it again."""
    return {"seed": shot.seed, "fierce": shot.intensity, "exactly": [list(each) for each in aimed], "message": message}


def again(scenario: str, violation: dict[str, Any]) -> str:
    """Return the arguments that reproduce the schedule."""
    words = [f"--primitive {scenario} --seed {violation['seed']}"]
    if violation["fierce"] != 1.0:
        words.append(f"--fierce {violation['fierce']:g}")
    words += ["--exactly " + ":".join(map(str, each)) for each in violation["exactly"]]
    return " ".join(words)
