"""The world: processes, one server, one clock, one seed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from simulation.engine.abandoned_coroutines import abandon
from simulation.engine.faults import Faults, Injector
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.scheduler import Scheduler, TimerQueue
from simulation.engine.server import CONFIG, SimServer
from simulation.engine.task import Task
from simulation.engine.transcript import History, Record, SimulationFailure

from distsync._protocols.steps import Request
from distsync.errors import ClientClosedError

#: A schedule that is longer than this does not come to rest.
MAX_STEPS = 200_000
MAX_S = 3_600.0
#: Time after the last task or fault for background work to come to rest.
SETTLE_S = 40.0


NO_FAULTS = Faults()


class Simulation:
    """One schedule: tasks of several processes against the embedded server's engine, in this thread.

    Everything follows from ``seed``: the same program with the same seed does the same again.
    ``by_rank`` is the share of seeds that are scheduled by rank (see scheduler.py), which finds
    rare interleavings.
    """

    def __init__(
        self, seed: int = 0, *, faults: Faults = NO_FAULTS, checks: Iterable[Check] = (), by_rank: float = 0.5
    ) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed, by_rank)
        self.rng = self.scheduler.rng
        self.clockwork = TimerQueue(self.scheduler)
        self.server = SimServer(self, CONFIG)
        self.history = History()
        self.checks = list(checks)
        self.faults = Injector(self, faults)
        self.processes: dict[str, SimProcess] = {}
        self.interrupts: list[tuple[Task, Any]] = []
        """The tasks that Ctrl-C interrupted, each with the step that it was at."""
        self.tampered: set[int] = set()
        #: Whether a lock was taken from its holders.
        self.revoked = False
        """Sessions that an administrator ended, or whose znodes an intruder deleted: their holders
        cannot know.
        """
        self.abandoned: list[Coroutine[Any, Any, Any]] = []
        self.current: Task | None = None
        self.failure: SimulationFailure | None = None
        self.muted = False
        self.clean_up_ms = 0
        """By how much a call may exceed its deadline, for clean-up that it needs to know its own
        outcome.
        """
        self.done_ms = 0
        """When all tasks were done, before the background work that they had begun."""
        self.tasks_open = 0

    # --- building

    def process(self, name: str, *, session_timeout: float = 10.0, connect_timeout: float | None = None) -> SimProcess:
        """Add a process, which connects when it first needs to.

        ``connect_timeout`` limits the first connection (None: no limit). Timeouts are in seconds.
        """
        process = self.processes[name] = SimProcess(self, name, session_timeout, connect_timeout)
        return process

    def external_client(self, step: Request[Any]) -> Any:
        """Perform a request at once as a client outside of this world; return the answer, or raise its
        error.
        """
        return self.server.external_client(step)

    def guid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_ms

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.scheduler.now_ms / 1000

    # --- notes and records

    def note(self, who: str, what: str, about: Any) -> None:
        """Add a line to the transcript."""
        self.history.notes.append((self.scheduler.now_ms, who, what, about))

    def record(self, event: str, **fields: Any) -> None:
        """Report something to the checks, as the current task."""
        if self.muted or self.current is None:
            return
        task = self.current
        record = Record(self.scheduler.now_ms, task.process.name, task.name, event, fields)
        self.history.records.append(record)
        self.note(task.name, "*", (event, fields))
        for check in self.checks:
            check.see(self, record)

    def fail(self, message: str) -> None:
        """Report a violation: the schedule ends, and ``run`` raises SimulationFailure."""
        if self.failure is None and not self.muted:
            self.note("CHECK", "failed", message)
            self.failure = SimulationFailure(message, self.seed, self.faults.plan, self.faults.injected, self.history)

    def task_done(self, task: Task) -> None:
        """Fail on an unexpected error of a task that has ended by itself."""
        error = task.error
        expected = (*task.expected, KeyboardInterrupt) if task.interrupted else task.expected
        if task.process.session.closed:
            expected = (*expected, ClientClosedError)
        if error is None or isinstance(error, expected):
            return
        self.fail(f"{task.name} raised {type(error).__name__}: {error}")
        if self.failure is not None and self.failure.__cause__ is None:
            self.failure.__cause__ = error

    # --- running

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Run until ``until()``.

        Without it, run until each task that is not a daemon is done and nothing is in progress, and
        call the checks' ``end``. A task that waits although nothing can wake it any more is a
        failure.
        """
        try:
            done = until or self._all_done
            self._go(done, MAX_S)
            if not done():
                self.fail(f"asleep while nothing can wake them: {self._unfinished()}")
            elif until is None:
                self.done_ms = self.now_ms
                self._go(self._settled, MAX_S)
                self._end()
        finally:
            self._abandon()
        self._raise()

    def _go(self, done: Callable[[], bool], seconds: float) -> None:
        """Run until ``done()``, a failure, or nothing is in progress."""
        scheduler, server, pick = self.scheduler, self.server, self.scheduler.step
        latest_ms = scheduler.now_ms + round(seconds * 1000)
        while self.failure is None and not done() and scheduler.now_ms < latest_ms:
            if server.due_ms is not None and server.due_ms <= scheduler.now_ms:
                server.advance()
            if not pick() and not self._leap():
                return
            if scheduler.picks > MAX_STEPS:
                self.fail(f"does not come to rest: {self._unfinished()}")

    def _leap(self) -> bool:
        """Advance the clock to the next timer, because no actor can run. Return False if nothing is
        awaited.
        """
        if self.scheduler.awaited == 0 and not self._orphaned_sessions():
            return False
        dues = [due for due in (self.scheduler.next_due_ms(), self.server.due_ms) if due is not None]
        if not dues:
            return False
        self.scheduler.now_ms = max(self.scheduler.now_ms, min(dues))
        return True

    def _orphaned_sessions(self) -> bool:
        """Return whether sessions of killed processes, closed clients or replaced ones have yet to
        end.
        """
        living = [process.session for process in self.processes.values() if process.alive]
        lives = {session.session_id for session in living if not session.closed}
        return any(session_id not in lives for session_id in self.server.engine.sessions)

    def _all_done(self) -> bool:
        return self.tasks_open == 0

    def _settled(self) -> bool:
        return self.now_ms > max(self.done_ms, self.faults.last_ms) + SETTLE_S * 1000

    def _unfinished(self) -> str:
        tasks = [task for process in self.processes.values() for task in process.tasks if not task.daemon]
        return ", ".join(f"{task.name} at {task.at!r}" for task in tasks) or "only daemons"

    def _end(self) -> None:
        for check in self.checks:
            if self.failure is None:
                check.end(self)

    def _raise(self) -> None:
        if self.failure is not None:
            self._end_all()
            raise self.failure

    # --- the end

    def close(self) -> None:
        """End all sessions: those of live processes by closing them, others by their timeout."""
        try:
            for process in self.processes.values():
                process.run_close_hooks()
            self._go(self._all_done, SETTLE_S)
            for process in self.processes.values():
                process.close()
            self._go(lambda: not self.server.engine.sessions, MAX_S)
            self._raise()
        finally:
            self._end_all()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end_all()

    def leftovers(self) -> list[str]:
        """Return the paths of the existing znodes, except the server's own."""
        return sorted(path for path in self.server.engine.paths() if path != "/" and not path.startswith("/zookeeper"))

    def _end_all(self) -> None:
        for process in self.processes.values():
            process.end()
        self._abandon()

    def _abandon(self) -> None:
        """Close the coroutines of killed processes while notes and records are muted: their finally
        blocks must have no effect.
        """
        self.muted = True
        for coroutine in self.abandoned:
            abandon(coroutine)
        self.abandoned.clear()
        self.muted = False
