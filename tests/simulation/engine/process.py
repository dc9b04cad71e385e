"""A simulated process: tasks that share one session, one keeper and one memory.

A paused process does nothing, a killed one never does again; messages that were sent are still in
transit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.engine.lease_keeper import Keeper
from simulation.engine.scheduler import Actor, Scheduler, TimerQueue
from simulation.engine.session import SimSession
from simulation.engine.task import Task

from distsync.errors import UnavailableError, ZnodeError

if TYPE_CHECKING:
    from simulation.engine.simulation import Simulation

#: Timeout of each close hook.
CLOSE_S = 30.0

Shared = TypeVar("Shared")


class Dispatcher(Actor):
    """The thread that calls watch callbacks: a watch fires some time after its event has arrived."""

    __slots__ = ("calls",)

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.calls: deque[Callable[[], object]] = deque()

    def has_work(self) -> bool:
        return bool(self.calls)

    def run(self) -> None:
        call = self.calls.popleft()
        if not self.calls:
            self.rest()
        call()


class SimProcess:
    """A process of the simulated world."""

    def __init__(self, world: Simulation, name: str, session_timeout: float, connect_timeout: float | None) -> None:
        self.world = world
        self.name = name
        self.connect_timeout_ms = None if connect_timeout is None else round(connect_timeout * 1000)
        self.clockwork = TimerQueue(world.scheduler)
        self.dispatcher = Dispatcher(world.scheduler)
        self.session = SimSession(self, round(session_timeout * 1000))
        self.keeper = Keeper(self)
        self.tasks: list[Task] = []
        self.shared: dict[str, Any] = {}
        self.at_close: dict[object, Callable[[], Coroutine[Any, Any, Any]]] = {}
        self.alive = True
        self.killed_background: list[str] = []
        """The names of the functions that ran in the background when the process was killed."""
        self.paused: list[Actor] = []
        self._spawned = 0

    def __repr__(self) -> str:
        return f"<SimProcess {self.name}>"

    def spawn(
        self,
        protocol: Coroutine[Any, Any, Any],
        timeout: float | None = None,
        *,
        name: str = "",
        daemon: bool = False,
        expected: tuple[type[BaseException], ...] = (),
    ) -> Task:
        """Start a thread that drives ``protocol``.

        ``timeout`` in seconds limits all of it; ``Run`` limits a part. The world does not wait for
        a ``daemon``; an error that is not ``expected`` is a failure.
        """
        self._spawned += 1
        return self._add(Task(self, name or f"t{self._spawned}", protocol, timeout, daemon, expected, False))

    def _add(self, task: Task) -> Task:
        self.tasks.append(task)
        self.world.tasks_open += not task.daemon
        if self.paused:
            task.stall()
            self.paused.append(task)
        return task

    def background(self, protocol: Coroutine[Any, Any, Any]) -> None:
        """Perform a Background step: the world does not wait for it, but lets it run for a while."""
        if self.alive:
            self._spawned += 1
            self._add(
                Task(self, f"background{self._spawned}", protocol, None, True, (UnavailableError, ZnodeError), True)
            )
        else:
            self.world.abandoned.append(protocol)

    def task_done(self, task: Task) -> None:
        self.tasks.remove(task)
        self.world.tasks_open -= not task.daemon
        self.world.task_done(task)

    def local(self, path: str, factory: Callable[[], Shared]) -> Shared:
        """Return the state that the tasks of this process share about ``path``."""
        if path not in self.shared:
            self.shared[path] = factory()
        return self.shared[path]  # type: ignore[no-any-return]

    def is_proven(self, session_id: int) -> bool:
        """Return what a SessionAlive step would return now."""
        return self.session.is_proven(session_id)

    def dispatch(self, call: Callable[[], object]) -> None:
        self.dispatcher.calls.append(call)
        self.dispatcher.ready()

    # --- events

    def _actors(self) -> Iterator[Actor]:
        yield self.clockwork
        yield self.dispatcher
        yield from self.tasks
        if self.session.connection is not None:
            yield self.session.connection.down

    def pause(self, seconds: float) -> None:
        """Suspend the process (SIGSTOP, a suspended machine) while its clock continues."""
        if not self.paused and self.alive:
            self.world.note(self.name, "is paused", f"{seconds:.1f} s")
            self.paused = list(self._actors())
            for actor in self.paused:
                actor.stall()
            self.world.clockwork.after(round(seconds * 1000), self._resume)

    def _resume(self) -> None:
        self.world.note(self.name, "resumes", "")
        paused, self.paused = self.paused, []
        if self.alive:
            for actor in paused:
                actor.unstall()

    def kill(self) -> None:
        """Kill the process: no finally block runs; its session ends by its timeout."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(self.name, "is killed", "")
        self.end()
        self.session.discard()

    def run_close_hooks(self) -> None:
        """Start the close hooks; the world waits for them."""
        works, self.at_close = self.at_close, {}
        for work in works.values() if self.alive else ():
            self.spawn(work(), CLOSE_S, name="close", expected=(UnavailableError, ZnodeError))

    def close(self) -> None:
        """End the session in good order; tasks that wait get ClientClosedError."""
        self.session.close()

    def cut(self, away: float = 0.0) -> None:
        """Break the connection; the process does not reconnect for ``away`` seconds."""
        self.session.away_until_ms = max(self.session.away_until_ms, self.world.now_ms + round(away * 1000))
        if self.session.connection is not None:
            self.session.connection.breaks()

    def end(self) -> None:
        """Discard all tasks."""
        for task in self.tasks:
            self.world.tasks_open -= not task.daemon
            coroutines = task.discard()
            self.killed_background += [getattr(work, "__qualname__", "") for work in coroutines if task.background]
            self.world.abandoned += coroutines
        self.tasks.clear()
        self.clockwork.stop()
        self.dispatcher.calls.clear()
        self.dispatcher.rest()
