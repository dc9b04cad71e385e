"""Faults: what may go wrong, how often, and exactly where.

A fault is injected at an opportunity: a request that the server reads, a step that a task awaits,
or an event that a client receives. Opportunities are counted per process, so that each one can be
named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distsync._protocols import steps

if TYPE_CHECKING:
    from simulation.engine.process import SimProcess
    from simulation.engine.simulation import Simulation
    from simulation.engine.task import Task

FREQUENT = ("lost_request", "lost_reply", "cut", "expire_away", "expire_live", "slow")
AT_REQUEST = (*FREQUENT, "lag", "outage", "ghost")
AT_STEP = ("kill", "pause", "interrupt", "deadline", "intruder", "stall")
AT_EVENT = ("late_event",)
KINDS = (*FREQUENT, "kill", "pause", "interrupt", "deadline", "intruder", *AT_EVENT)
LATER_KINDS = ("outage", "stall", "ghost")

#: Durations of outages and stalls, in session timeouts.
OUTAGES = (0.01, 0.3, 0.7, 1.0, 1.2, 2.5, 6.0)
STALLS = (0.01, 0.1, 0.5, 0.9, 1.2, 2.5)

#: The kind, its delay or duration if given, and the salt (see Exactly).
Placed = tuple[str, "int | None", int]

#: Delays of a fault at a step (ms): mostly none, sometimes into the middle of a long wait.
DELAYS_MS = (0, 0, 0, 0, 1, 2, 5, 20, 100, 700)


class Exactly(NamedTuple):
    """Inject ``kind`` at the ``nth`` (from 1) opportunity of its group in ``process``, ``delay_ms``
    later.

    For a cut, an outage, a stall and a slow answer, ``delay_ms`` is the duration. What follows
    depends on the seed, and on ``salt`` unless it is 0: one seed gives many schedules that are
    equal up to the fault.
    """

    kind: str
    process: str
    nth: int
    delay_ms: int = 0
    salt: int = 0


@dataclass(frozen=True)
class Faults:
    """The probability of each kind at each of its opportunities, and the maximum (``most``) of each
    kind per schedule.

    ``spare`` names processes that are exempt; ``victims(path)`` tells which znodes an intruder may
    delete.
    """

    lost_request: float = 0.0
    """A request is lost, and the connection breaks."""
    lost_reply: float = 0.0
    """A request is executed, its reply is lost, and the connection breaks."""
    cut: float = 0.0
    """The connection breaks with messages in transit; the client reconnects at once or after a while.
    """
    expire_away: float = 0.0
    """The client is cut off until its session has expired."""
    expire_live: float = 0.0
    """An administrator ends the session of a live connection."""
    slow: float = 0.0
    """Everything from the server to this client arrives late."""
    lag: float = 0.0
    """The connection breaks, and the next one is to a server that lags for a while."""
    outage: float = 0.0
    """All servers are unreachable for a while; then each session has its whole timeout again."""
    ghost: float = 0.0
    """The client learns that its session has ended, from a leader that fails before that is written.

    The znodes of that session exist until it times out, beside those of the next one.
    """
    kill: float = 0.0
    """The process is killed; no finally block runs."""
    pause: float = 0.0
    """The process is suspended for longer than its session timeout, or for a moment."""
    stall: float = 0.0
    """This task gets no CPU time for a while; the other tasks of its process and the keeper run."""
    interrupt: float = 0.0
    """Ctrl-C in this task."""
    deadline: float = 0.0
    """The deadline of this call, if it has one, is now."""
    intruder: float = 0.0
    """Another client deletes an ephemeral znode of any process."""
    late_event: float = 0.0
    """The watch callbacks of this client run late."""
    most: int = 1
    spare: tuple[str, ...] = ()
    exactly: tuple[Exactly, ...] = ()
    victims: Callable[[str], bool] = field(default=lambda path: True, repr=False)

    @classmethod
    def of(cls, chances: Mapping[str, float], **others: Any) -> Faults:
        """Return faults of these kinds."""
        return replace(cls(**others), **chances)  # type: ignore[arg-type]

    def chance(self, kind: str) -> float:
        return float(getattr(self, kind))

    def __str__(self) -> str:
        given = [(each.name, getattr(self, each.name)) for each in fields(self) if each.repr]
        return "Faults(" + ", ".join(f"{name}={value!r}" for name, value in given if value) + ")"


class Group:
    """The kinds that are injected at one sort of opportunity."""

    def __init__(self, injector: Injector, kinds: tuple[str, ...]) -> None:
        self.injector = injector
        self.plan = injector.plan
        self.left = {kind: self.plan.most for kind in kinds if self.plan.chance(kind) > 0}
        self.kinds = kinds
        self.exactly = {
            (each.process, each.nth): (each.kind, each.delay_ms, each.salt)
            for each in self.plan.exactly
            if each.kind in kinds
        }
        self.idle = not self.left and not self.exactly
        self.counted: dict[str, int] = {}
        self.gap = self._draw()

    def _draw(self) -> float:
        """Draw the number of opportunities until the next fault."""
        total = sum(self.plan.chance(kind) for kind in self.left)
        if not total:
            return math.inf
        return 1 + int(math.log(1.0 - self.injector.world.rng.random()) / math.log(1.0 - min(total, 0.999)))

    def inject(self, process: str, aimed: Placed | None = None) -> Placed | None:
        """Return the fault to inject at this opportunity, if any."""
        nth = self.counted[process] = self.counted.get(process, 0) + 1
        if self.exactly:
            aimed = self.exactly.get((process, nth)) or aimed
        if aimed:
            return aimed
        self.gap -= 1
        if self.gap > 0 or process in self.plan.spare:
            return None
        kinds = list(self.left)
        kind = self.injector.world.rng.choices(kinds, [self.plan.chance(each) for each in kinds])[0]
        self.left[kind] -= 1
        if not self.left[kind]:
            del self.left[kind]
        self.gap = self._draw()
        return kind, None, 0


class Watcher(Protocol):
    """An observer of the schedule, which may also place faults as ``Exactly`` does (see
    fault_coverage.py, fault_targeting.py).
    """

    def performs(self, task: Task) -> None: ...

    def strikes(self, kind: str, process: SimProcess, at: Any) -> None: ...

    def target(self, kinds: tuple[str, ...], process: SimProcess, at: Any) -> Placed | None: ...


class Injector:
    """Injects faults as planned, and records them."""

    def __init__(self, world: Simulation, plan: Faults) -> None:
        self.world = world
        self.plan = plan
        self.injected: list[Exactly] = []
        self.last_ms = 0
        """When the last fault was, or will be, injected."""
        self.watcher: Watcher | None = None
        self._aims = False
        self._requests = Group(self, AT_REQUEST)
        self._steps = Group(self, AT_STEP)
        self._events = Group(self, AT_EVENT)

    def watch(self, watcher: Watcher, aims: bool) -> None:
        """Attach ``watcher``; if it ``aims``, it is asked at each opportunity which fault to inject."""
        self.watcher, self._aims = watcher, aims
        if aims:
            for group in (self._requests, self._steps, self._events):
                group.idle = False

    def at_request(self, process: SimProcess, step: Any) -> tuple[str, int | None] | None:
        """Return the fault for a request that the server reads, if any, and its duration if given."""
        if self._requests.idle:
            return None
        struck = self._strike(self._requests, process, step)
        if struck is None or not process.alive:
            return None
        kind, lasts_ms, salt = struck
        if kind == "outage" and lasts_ms is None:
            lasts_ms = self._lasts(process, OUTAGES)
        self._log((kind, lasts_ms, salt), process, self._requests, step)
        self._notify(kind, process, step)
        return kind, lasts_ms

    def _lasts(self, process: SimProcess, timeouts: tuple[float, ...]) -> int:
        return round(self.world.rng.choice(timeouts) * process.session.timeout_ms)

    def at_step(self, task: Task) -> None:
        """Inject a fault, if any, at a step that a task has awaited."""
        if self.watcher is not None:
            self.watcher.performs(task)
        if self._steps.idle or task.background:
            return
        struck = self._strike(self._steps, task.process, task)
        if struck is None:
            return
        kind, delay_ms, salt = struck
        if delay_ms is None:
            delay_ms = self._lasts(task.process, STALLS) if kind == "stall" else self.world.rng.choice(DELAYS_MS)
        self._log((kind, delay_ms, salt), task.process, self._steps, task.name)
        if kind == "stall":
            self._notify(kind, task.process, task)
            task.stall()
            self.world.clockwork.after(delay_ms, task.unstall)
        elif delay_ms:
            self.world.clockwork.after(delay_ms, lambda: self._strike_task(kind, task))
        else:
            self._strike_task(kind, task)

    def _strike_task(self, kind: str, task: Task) -> None:
        if kind != "intruder":  # the intruder reports its victim itself
            self._notify(kind, task.process, task)
        STRIKES[kind](self.world, task)

    def at_event(self, process: SimProcess) -> None:
        """Delay the event that a client has received, if a fault is due."""
        if self._events.idle:
            return
        struck = self._strike(self._events, process, None)
        if struck is None:
            return
        self._log(("late_event", 0, struck[2]), process, self._events, "")
        self._notify("late_event", process, None)
        process.dispatcher.stall()
        delay_ms = self.world.rng.randint(1, process.session.timeout_ms // 2)
        self.world.clockwork.after(delay_ms, process.dispatcher.unstall)

    def _strike(self, group: Group, process: SimProcess, at: Any) -> Placed | None:
        if self._aims and self.watcher is not None:
            return group.inject(process.name, self.watcher.target(group.kinds, process, at))
        return group.inject(process.name)

    def _notify(self, kind: str, process: SimProcess, at: Any) -> None:
        if self.watcher is not None:
            self.watcher.strikes(kind, process, at)

    def intrudes(self, owner: int) -> None:
        """Notify the watcher that a znode of this session was deleted externally."""
        for process in self.world.processes.values():
            if process.session.session_id == owner:
                self._notify("intruder", process, None)

    def spared(self, process: str) -> bool:
        """Return whether no fault has hit this process yet."""
        return all(each.process != process and each.kind != "outage" for each in self.injected)

    def _log(self, struck: Placed, process: SimProcess, group: Group, at: Any) -> None:
        kind, delay_ms, salt = struck
        self.injected.append(Exactly(kind, process.name, group.counted[process.name], delay_ms or 0, salt))
        self.last_ms = max(self.last_ms, self.world.now_ms + (delay_ms or 0))
        self.world.note("FAULT", kind, at)
        if salt:
            self.world.rng.seed(f"{self.world.seed} {salt}")


def _kill(world: Simulation, task: Task) -> None:
    task.process.kill()


def _pause(world: Simulation, task: Task) -> None:
    task.process.pause(world.rng.choice((0.1, 0.7, 1.0, 1.5)) * task.process.session.timeout_ms / 1000)


def _interrupt(world: Simulation, task: Task) -> None:
    if not task.done:
        task.interrupted = True
        world.interrupts.append((task, task.at))
        task.throw(KeyboardInterrupt())


def _deadline(world: Simulation, task: Task) -> None:
    task.expire()


def _intruder(world: Simulation, task: Task) -> None:
    paths = [path for path in sorted(world.server.engine.paths()) if world.faults.plan.victims(path)]
    world.rng.shuffle(paths)
    for path in paths:
        stat = world.external_client(steps.Exists(path))
        if stat is not None and stat.ephemeral_owner:
            world.tampered.add(stat.ephemeral_owner)
            world.note("FAULT", "deletes", path)
            world.faults.intrudes(stat.ephemeral_owner)
            world.external_client(steps.Delete(path))
            return


STRIKES: dict[str, Callable[[Simulation, Task], None]] = {
    "kill": _kill,
    "pause": _pause,
    "interrupt": _interrupt,
    "deadline": _deadline,
    "intruder": _intruder,
}
