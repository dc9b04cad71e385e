"""The scheduler: which actor runs next, and what time it is.

Time is an int in ms, and advances only here. Every choice comes from one seeded generator, so a
seed is a schedule.

There are two ways to choose. *Evenly*: any actor that can run, with equal probability. *By rank*
(after PCT, Burckhardt et al. 2010): the actor of the highest rank runs as long as it can; at a few
random moments it gets the lowest rank. The second one finds bugs that need one actor to be delayed
for long.
"""

from __future__ import annotations

import heapq
import operator
import random
from collections.abc import Callable

#: After this number of picks, a schedule by rank continues evenly: an actor that polls would starve
#: the others forever.
RANKED_PICKS = 400

#: Maximum number of rank changes in a schedule (PCT's depth: most bugs need 1 or 2).
MAX_CHANGES = 4


#: In C, because it is called for all runnable actors at every pick.
RANK = operator.attrgetter("rank")


class Actor:
    """Something that can be picked while it has work and is not stalled."""

    __slots__ = ("scheduler", "rank", "place", "stalls")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.rank = scheduler.rng.random()
        self.place = -1
        self.stalls = 0

    def has_work(self) -> bool:
        raise NotImplementedError

    def run(self) -> None:
        """Do one piece of work."""
        raise NotImplementedError

    def ready(self) -> None:
        """Make the actor runnable, because it has work."""
        if self.place < 0 and not self.stalls:
            runnable = self.scheduler.runnable
            self.place = len(runnable)
            runnable.append(self)

    def rest(self) -> None:
        """Make the actor not runnable."""
        place = self.place
        if place >= 0:
            runnable = self.scheduler.runnable
            last = runnable.pop()
            if last is not self:
                runnable[place] = last
                last.place = place
            self.place = -1

    def stall(self) -> None:
        """Hold the actor back, whatever work it has, until ``unstall`` was called as many times."""
        self.stalls += 1
        self.rest()

    def unstall(self) -> None:
        self.stalls -= 1
        if not self.stalls and self.has_work():
            self.ready()


class Timer:
    """An action at a time. An ``idle`` timer (a ping, a heartbeat) does not keep the schedule running."""

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
        """Return the action, once; None if it was cancelled."""
        action, self.action = self.action, None
        if action is not None and not self.idle:
            self.scheduler.awaited -= 1
        return action

    def cancel(self) -> None:
        self.take()


class TimerQueue(Actor):
    """Runs the due timers of one owner in any order; those of a paused owner wait."""

    __slots__ = ("due", "stopped")

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.due: list[Timer] = []
        self.stopped = False

    def after(self, delay_ms: int, action: Callable[[], object], *, idle: bool = False) -> Timer:
        """Run ``action`` after at least ``delay_ms``."""
        scheduler = self.scheduler
        timer = Timer(scheduler, scheduler.now_ms + max(0, delay_ms), action, self, idle)
        heapq.heappush(scheduler.timers, timer)
        return timer

    def stop(self) -> None:
        """Drop all timers of this owner, also future ones."""
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
    """Picks actors one by one. Advances time a little at each pick, and to the next timer when no
    actor can run.
    """

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
        """Let one actor do one piece of work; return False if none can."""
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
        """Pass the due timers to their owners."""
        timers = self.timers
        while timers and timers[0].due_ms <= self.now_ms:
            timer = heapq.heappop(timers)
            if timer.action is not None:
                timer.clockwork.fall_due(timer)

    def next_due_ms(self) -> int | None:
        """Return when the next timer is due."""
        timers = self.timers
        while timers and (timers[0].action is None or timers[0].clockwork.stopped):
            heapq.heappop(timers).cancel()
        return timers[0].due_ms if timers else None
