"""Aims: injects a wanted fault at the moment when a thread is at the place.

It returns the fault to inject at an opportunity as if it had been placed there with ``Exactly``,
which is how the schedule is repeated: it does not use the world's generator, so a schedule with the
same faults placed is the same schedule. Places that are rarely reached come first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simulation.engine.await_points import Locator
from simulation.engine.fault_coverage import OF_A_REQUEST, OF_A_THREAD, Coverage, asks
from simulation.engine.faults import AT_STEP, DELAYS_MS, OUTAGES, STALLS, Placed
from simulation.scenarios.common import OBSERVER

if TYPE_CHECKING:
    from simulation.engine.process import SimProcess
    from simulation.engine.task import Task

#: Maximum number of aimed faults per schedule. Random faults are injected as well.
MAX_AIMED = 3


class FaultTargeting(Coverage):
    """``wanted``: the kinds that are wanted at each place. ``often``: how often a schedule reaches a
    place.
    """

    def __init__(self, locator: Locator, wanted: Mapping[str, set[str]], often: Mapping[str, float]) -> None:
        super().__init__(locator)
        self.wanted = wanted
        self.often = often
        self.begin(0, 0)

    def begin(self, seed: int, salt: int, only: str | None = None) -> None:
        """Begin a schedule. Faults are aimed at everything that is wanted, the first of them at the
        place ``only``.
        """
        self.rng = random.Random(f"{seed} {salt}")
        self.salt = salt
        self.only = only
        self.left = self.rng.randint(1, MAX_AIMED)
        self.aimed: list[int] = []
        """The indices of the injected faults that were aimed."""

    def target(self, kinds: tuple[str, ...], process: SimProcess, at: Any) -> Placed | None:
        """Return the fault to inject at this opportunity, if one is wanted here."""
        if not self.left or process.name == OBSERVER or not process.alive:
            return None
        cells = self._cells(kinds, process, at)
        if not cells:
            return None
        rarest = min(self.often.get(place, 0.0) for place, _ in cells)
        if not self.only and self.rng.random() * rarest > 1.0:
            return None
        kind = self.rng.choice(sorted({kind for place, kind in cells if self.often.get(place, 0.0) <= 2 * rarest}))
        self.left -= 1
        self.only = None
        self.aimed.append(len(process.world.faults.injected))
        salt, self.salt = self.salt, 0
        return kind, self._delay_ms(kind, process.session.timeout_ms), salt

    def _delay_ms(self, kind: str, timeout_ms: int) -> int:
        """Return the delay, mostly 0, so that the fault hits its target, or the duration of a fault
        that lasts.
        """
        lasts = {"outage": OUTAGES, "stall": STALLS}.get(kind)
        if lasts:
            return round(self.rng.choice(lasts) * timeout_ms)
        if kind == "cut":
            return round(self.rng.choice((0, 0, self.rng.random() * 1.2)) * timeout_ms)
        return self.rng.choice(DELAYS_MS) if kind in AT_STEP and self.rng.random() < 0.3 else 0

    def _cells(self, kinds: tuple[str, ...], process: SimProcess, at: Any) -> list[tuple[str, str]]:
        """Return what is wanted and would be hit here, by place and kind."""
        mine: list[Task] = [task for task in process.tasks if task is at or asks(task, at)]
        cells = []
        for task in process.tasks:
            for place in self.locator.of(task):
                if place not in self.wanted or (self.only and place != self.only):
                    continue
                for kind in kinds:
                    narrow = kind in OF_A_REQUEST or kind in OF_A_THREAD
                    if kind in self.wanted[place] and (task in mine or not narrow):
                        cells.append((place, kind))
        return cells
