"""Coverage: which places of protocols were reached, and which faults hit them.

Coverage watches a world without changing it. A fault counts at a place if a thread was there when
it was injected: a lost request or reply at the place that had sent it, a fault of a thread where
that thread was, a fault of a process where any of its threads was. A thread is in the step that it
awaits, and in all calls around it.
"""

from __future__ import annotations

from collections import Counter
from types import CodeType, CoroutineType
from typing import TYPE_CHECKING, Any

from simulation.engine.await_points import Locator
from simulation.engine.faults import AT_STEP, KINDS, LATER_KINDS, Placed
from simulation.scenarios.common import OBSERVER

from distsync._protocols import steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simulation.engine.process import SimProcess
    from simulation.engine.task import Task

#: The kinds that are counted.
COUNTED = (*KINDS, "lag", *LATER_KINDS)

#: Faults of a request, and faults of a thread. All others are faults of a process, and an outage
#: one of all processes.
OF_A_REQUEST = ("lost_request", "lost_reply")
OF_A_THREAD = ("interrupt", "deadline", "stall")

#: Maximum number of seeds to remember for each place that they reach.
MAX_SEEDS = 12


#: Observations at a place in any schedule, as bits: a request in progress, a wait while
#: connected, a user's thread, which Ctrl-C may hit (not background work), a call with a deadline,
#: an ephemeral znode of the process.
REQUEST, WAIT, CALLER, DEADLINE, VICTIM = 1, 2, 4, 8, 16


def possible(kind: str, seen: int) -> bool:
    """Return whether this fault is possible at a place with these observations."""
    if kind in OF_A_REQUEST:
        return bool(seen & REQUEST)
    if kind in ("interrupt", "stall"):
        return bool(seen & CALLER)
    if kind == "deadline":
        return bool(seen & DEADLINE)
    if kind == "intruder":
        return bool(seen & VICTIM)
    if kind in AT_STEP:
        return True
    return bool(seen & (REQUEST | WAIT))


class CoverageEntry:
    """One place: how often it was reached, what was observed there, and seeds that reach it."""

    __slots__ = ("last", "reached", "seeds", "seen")

    def __init__(self) -> None:
        self.reached = 0
        self.seen = 0
        self.seeds: list[tuple[int, float]] = []
        self.last: tuple[int, float] | None = None


class Coverage:
    """Coverage of any number of schedules, one after another."""

    def __init__(self, locator: Locator) -> None:
        self.locator = locator
        self.spots: dict[str, CoverageEntry] = {}
        #: The same by code and instruction (see Locator, which keeps the code alive), because it is
        #: looked up at every step.
        self._spots_at: dict[int, dict[int, CoverageEntry | None]] = {}
        self.cells: Counter[tuple[str, str]] = Counter()
        self.seed: tuple[int, float] | None = None
        """The current seed and its fault factor, if it is worth remembering."""

    def performs(self, task: Task) -> None:
        """Record a step that a thread has awaited. Threads that are exempt from faults do not count."""
        process = task.process
        if process.name == OBSERVER:
            return
        seen, seed, spots_at = self._seen(task, process), self.seed, self._spots_at
        for call in task.stack:
            coroutine: Any = call.coroutine
            while type(coroutine) is CoroutineType:
                frame = coroutine.cr_frame
                if frame is None:
                    break
                try:
                    spot = spots_at[id(coroutine.cr_code)][frame.f_lasti]
                except KeyError:
                    spot = self._learn(coroutine.cr_code, frame)
                if spot is not None:
                    spot.reached += 1
                    spot.seen |= seen
                    if spot.last is not seed:
                        self._remember(spot)
                coroutine = coroutine.cr_await

    def _learn(self, code: CodeType, frame: Any) -> CoverageEntry | None:
        place = self.locator.learn(code, frame)
        spot = None if place is None else self.spots.setdefault(place, CoverageEntry())
        self._spots_at.setdefault(id(code), {})[frame.f_lasti] = spot
        return spot

    def _remember(self, spot: CoverageEntry) -> None:
        spot.last = self.seed
        if len(spot.seeds) < MAX_SEEDS and self.seed is not None:
            spot.seeds.append(self.seed)

    def _seen(self, task: Task, process: SimProcess) -> int:
        step: Any = task.at
        seen = 0 if task.background else CALLER | DEADLINE if has_deadline(task) else CALLER
        if isinstance(step, (steps.Request, steps.Pipeline)):
            seen |= REQUEST
        elif isinstance(step, steps.Wait) and process.session.connected:
            seen |= WAIT
        if process.session.session_id in process.world.server.engine.tree.ephemerals:
            seen |= VICTIM
        return seen

    def strikes(self, kind: str, process: SimProcess, at: Any) -> None:
        """Count a fault of a step or a thread of this process, or of the process (None)."""
        if process.name == OBSERVER:
            return
        tasks: Iterable[Task]
        if kind in OF_A_REQUEST:
            tasks = [task for task in process.tasks if asks(task, at)]
        elif kind in OF_A_THREAD:
            tasks = (at,) if at.stack and (kind != "deadline" or has_deadline(at)) else ()
        elif kind == "outage":
            living = [each for each in process.world.processes.values() if each.alive and each.name != OBSERVER]
            tasks = [task for each in living for task in each.tasks]
        else:
            tasks = process.tasks if process.alive else ()
        struck = {place for task in tasks for place in self.locator.of(task)}
        for place in struck:
            self.cells[place, kind] += 1

    def target(self, kinds: tuple[str, ...], process: SimProcess, at: Any) -> Placed | None:
        """Return the fault to inject here: none."""
        return None


def has_deadline(task: Task) -> bool:
    """Return whether a deadline fault can hit the task."""
    return bool(task.stack) and task.stack[-1].deadline_ms is not None and task.process.session.ever_connected


def asks(task: Task, request: Any) -> bool:
    """Return whether the thread waits for the answer to this request."""
    at = task.at
    if task.has_work():
        return False
    return at is request or (isinstance(at, steps.Pipeline) and any(each is request for each in at.requests))
