"""Campaigns: many schedules of many scenarios, in several processes, tallied in a file.

The file is written every few seconds and at the end, even if that is Ctrl-C or an error.
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
from simulation.engine.work_units import WorkUnit, work_off
from simulation.scenarios import SCENARIOS

#: Number of schedules in a unit of work.
PIECE = 50
SAVE_S = 20.0

Tell = Callable[[str], object]


def fresh_pieces(summary: Summary, names: Sequence[str], first: int, count: int) -> Iterator[WorkUnit]:
    """Yield ``count`` new seeds of each scenario, all scenarios side by side."""
    queues = [
        [
            WorkUnit(name, seed, min(seed + PIECE, end))
            for begin, end in not_played(summary.tallies.get(name, Tally()).seeds, first, count)
            for seed in range(begin, end, PIECE)
        ]
        for name in names
    ]
    for row in itertools.zip_longest(*queues):
        yield from (piece for piece in row if piece is not None)


def play_all(
    summary: Summary, names: Sequence[str], first: int, count: int, jobs: int, file: Path | None, tell: Tell = print
) -> None:
    """Add this many schedules of each scenario."""
    saver = PeriodicSaver(summary, file, tell)
    try:
        with closing(each_done(jobs, work_off, fresh_pieces(summary, names, first, count))) as done:
            for piece, tally in done:
                summary.add(piece.scenario, tally)
                saver.now_and_then(tally.schedules)
    finally:
        saver.save()


def raise_all(
    summary: Summary, names: Sequence[str], schedules: int, jobs: int, file: Path | None, tell: Tell = print
) -> None:
    """Add aimed schedules, up to a maximum, until each fault has hit each place often enough."""
    places = Sources().places()
    raising = GuidedCampaign(
        summary, places, {name: (*SCENARIOS[name].kinds, *SCENARIOS[name].besides) for name in names}
    )
    saver = PeriodicSaver(
        summary, file, tell, lambda: f", {cells_of(places.values(), raising.whole).missing} cells missing"
    )
    played = 0
    pieces = itertools.takewhile(lambda piece: played < schedules, raising.pieces())
    try:
        with closing(each_done(jobs, work_off, pieces)) as done:
            for piece, tally in done:
                raising.added(piece, tally)
                played += tally.schedules
                saver.now_and_then(tally.schedules)
    finally:
        saver.save()


class PeriodicSaver:
    """Writes the file now and then, and reports progress."""

    def __init__(self, summary: Summary, file: Path | None, tell: Tell, more: Callable[[], str] = lambda: "") -> None:
        self.summary = summary
        self.file = file
        self.tell = tell
        self.more = more
        self.began = self.saved = time.monotonic()
        self.played = 0

    def now_and_then(self, schedules: int) -> None:
        """Count more schedules."""
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
