"""Campaigns: many schedules of many scenarios, in several processes, with results in a file.

The file is written every few seconds and at the end, also after Ctrl-C or an error.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from simulation.engine.await_points import Sources
from simulation.engine.coverage_report import cells_of
from simulation.engine.guided_campaign import GuidedCampaign
from simulation.engine.process_pool import each_done
from simulation.engine.results import Summary, Tally, not_played
from simulation.engine.work_units import WorkUnit, play_unit
from simulation.scenarios import SCENARIOS

#: Schedules in a unit of work.
UNIT_SIZE = 50
SAVE_S = 20.0

Tell = Callable[[str], object]


def fresh_units(summary: Summary, names: Sequence[str], first: int, count: int) -> Iterator[WorkUnit]:
    """Yield ``count`` seeds of each scenario that were not played yet, with the scenarios in turn."""
    queues = [
        [
            WorkUnit(name, seed, min(seed + UNIT_SIZE, end))
            for begin, end in not_played(summary.tallies.get(name, Tally()).seeds, first, count)
            for seed in range(begin, end, UNIT_SIZE)
        ]
        for name in names
    ]
    for row in itertools.zip_longest(*queues):
        yield from (unit for unit in row if unit is not None)


def play_all(
    summary: Summary, names: Sequence[str], first: int, count: int, jobs: int, file: Path | None, tell: Tell = print
) -> None:
    """Play ``count`` schedules of each scenario, and add the results."""
    saver = PeriodicSaver(summary, file, tell)
    try:
        with closing(each_done(jobs, play_unit, fresh_units(summary, names, first, count))) as done:
            for unit, tally in done:
                summary.add(unit.scenario, tally)
                saver.now_and_then(tally.schedules)
    finally:
        saver.save()


def raise_all(
    summary: Summary, names: Sequence[str], schedules: int, jobs: int, file: Path | None, tell: Tell = print
) -> None:
    """Play at most ``schedules`` aimed schedules, until each fault has hit each place often enough,
    and add the results.
    """
    places = Sources().places()
    raising = GuidedCampaign(
        summary, places, {name: (*SCENARIOS[name].kinds, *SCENARIOS[name].later_kinds) for name in names}
    )
    saver = PeriodicSaver(
        summary, file, tell, lambda: f", {cells_of(places.values(), raising.whole).missing} cells missing"
    )
    played = 0
    units = itertools.takewhile(lambda unit: played < schedules, raising.units())
    try:
        with closing(each_done(jobs, play_unit, units)) as done:
            for unit, tally in done:
                raising.added(unit, tally)
                played += tally.schedules
                saver.now_and_then(tally.schedules)
    finally:
        saver.save()


class PeriodicSaver:
    """Writes the file periodically, and reports progress."""

    def __init__(self, summary: Summary, file: Path | None, tell: Tell, more: Callable[[], str] = lambda: "") -> None:
        self.summary = summary
        self.file = file
        self.tell = tell
        self.more = more
        self.began = self.saved = time.monotonic()
        self.played = 0

    def now_and_then(self, schedules: int) -> None:
        """Count schedules, and save if it is time."""
        self.played += schedules
        if time.monotonic() - self.saved > SAVE_S:
            self.save()

    def save(self) -> None:
        self.saved = time.monotonic()
        if self.file is not None:
            self.summary.save(self.file)
        speed = self.played / max(self.saved - self.began, 0.001)
        violated = sum(tally.violated for tally in self.summary.tallies.values())
        self.tell(f"{self.played} schedules ({speed:.0f} a second), {violated} violations in all{self.more()}")
