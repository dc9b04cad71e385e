"""The scheduler: who goes next, and what time it is.

Rules for this file: it knows actors and timers, and nothing of ZooKeeper. Time is an int in ms, and moves only
here. Every choice comes from one seeded generator, so a seed is a schedule.

Two ways to choose. *Even*: any actor that can run, with the same chance. *By rank* (after PCT, Burckhardt et al.
2010): the actor of the highest rank runs as long as it can; at a few random moments it falls to the lowest rank.
The second one finds what needs one actor to be left behind for long.
"""

from __future__ import annotations

import heapq
import operator
import random
from collections.abc import Callable

#: After so many picks a schedule by rank goes on evenly: an actor that polls would starve the others for ever.
RANKED_PICKS = 400

#: A schedule by rank changes its mind at most so many times (PCT's depth: most bugs need 1 or 2).
MAX_CHANGES = 4


#: In C: it is asked of all who can run, at every pick.
RANK = operator.attrgetter("rank")


class Actor:
    """Something that can be picked while it has work and is not held back."""

    __slots__ = ("scheduler", "rank", "place", "stalls")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.rank = scheduler.rng.random()
        self.place = -1
        self.stalls = 0

    def has_work(self) -> bool:
        raise NotImplementedError

    def run(self) -> None:
        """Does one piece of work."""
        raise NotImplementedError

    def ready(self) -> None:
        """There is work: from now on it can be picked."""
        if self.place < 0 and not self.stalls:
            runnable = self.scheduler.runnable
            self.place = len(runnable)
            runnable.append(self)

    def rest(self) -> None:
        """It cannot be picked."""
        place = self.place
        if place >= 0:
            runnable = self.scheduler.runnable
            last = runnable.pop()
            if last is not self:
                runnable[place] = last
                last.place = place
            self.place = -1

    def stall(self) -> None:
        """It is held back, whatever work it has; as many ``unstall`` let it go on."""
        self.stalls += 1
        self.rest()

    def unstall(self) -> None:
        self.stalls -= 1
        if not self.stalls and self.has_work():
            self.ready()


class Timer:
    """Something due at a time. An ``idle`` one does not keep the schedule going (a ping, a keeper's tick)."""

    __slots__ = ("scheduler", "due_ms", "number", "action", "clockwork", "idle")

    def __init__(
        self, scheduler: Scheduler, due_ms: int, action: Callable[[], object], clockwork: TimerQueue, idle: bool
    ) -> None:
        self.scheduler = scheduler
        self.due_ms = due_ms
        self.number = scheduler.next_number()
        self.action: Callable[[], object] | None = action
        self.clockwork = clockwork
        self.idle = idle
        if not idle:
            scheduler.awaited += 1

    def __lt__(self, other: Timer) -> bool:
        return (self.due_ms, self.number) < (other.due_ms, other.number)

    def take(self) -> Callable[[], object] | None:
        """The action, once; None when it was cancelled."""
        action, self.action = self.action, None
        if action is not None and not self.idle:
            self.scheduler.awaited -= 1
        return action

    def cancel(self) -> None:
        self.take()


class TimerQueue(Actor):
    """Runs the timers of one owner that are due, in any order: a paused owner's wait."""

    __slots__ = ("due", "stopped")

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.due: list[Timer] = []
        self.stopped = False

    def after(self, delay_ms: int, action: Callable[[], object], *, idle: bool = False) -> Timer:
        """``action`` runs after at least ``delay_ms``."""
        scheduler = self.scheduler
        timer = Timer(scheduler, scheduler.now_ms + max(0, delay_ms), action, self, idle)
        heapq.heappush(scheduler.timers, timer)
        return timer

    def stop(self) -> None:
        """Nothing of this owner happens any more."""
        self.stopped = True
        self.due.clear()
        self.rest()

    def fall_due(self, timer: Timer) -> None:
        if not self.stopped:
            self.due.append(timer)
            self.ready()

    def has_work(self) -> bool:
        return bool(self.due)

    def run(self) -> None:
        due = self.due
        timer = due.pop(int(self.scheduler.rng.random() * len(due)))
        if not due:
            self.rest()
        action = timer.take()
        if action is not None:
            action()


class Scheduler:
    """Picks actors one by one; moves time a little at each pick, and to the next timer when nobody can run."""

    def __init__(self, seed: int, by_rank: float) -> None:
        self.rng = random.Random(seed)
        self._random, self._getrandbits = self.rng.random, self.rng.getrandbits
        self.now_ms = 0
        self.picks = 0
        self.awaited = 0
        self.runnable: list[Actor] = []
        self.timers: list[Timer] = []
        self._number = 0
        self.ranked = self.rng.random() < by_rank
        changes = self.rng.randint(0, MAX_CHANGES)
        self._changes = {self.rng.randint(1, RANKED_PICKS // 2) for _ in range(changes)} if self.ranked else set()

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def step(self) -> bool:
        """One actor does one piece of work; False if none can."""
        runnable = self.runnable
        if self.timers and self.timers[0].due_ms <= self.now_ms:
            self._ring()
        if not runnable:
            return False
        self.picks += 1
        if not self._getrandbits(2):
            self.now_ms += 1
        if self.ranked:
            self._highest().run()
        else:
            runnable[int(self._random() * len(runnable))].run()
        return True

    def _highest(self) -> Actor:
        actor: Actor = max(self.runnable, key=RANK)
        if self.picks in self._changes:
            actor.rank = -float(self.picks)
        if self.picks >= RANKED_PICKS:
            self.ranked = False
        return actor

    def _ring(self) -> None:
        """The timers that are due go to their owners."""
        timers = self.timers
        while timers and timers[0].due_ms <= self.now_ms:
            timer = heapq.heappop(timers)
            if timer.action is not None:
                timer.clockwork.fall_due(timer)

    def next_due_ms(self) -> int | None:
        """When the next timer is due."""
        timers = self.timers
        while timers and (timers[0].action is None or timers[0].clockwork.stopped):
            heapq.heappop(timers).cancel()
        return timers[0].due_ms if timers else None
