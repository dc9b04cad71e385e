"""The driver: steps a protocol, performs what it asks for, answers it.

Rules for this file: it knows steps, outcomes, deadlines and the mutex, and no socket or kazoo: what it needs
of the world is passed in (``World``). A Task never waits; who drives it does (``drive`` here, the keeper's loop
there), and looks at the task again when its ``wake`` is called or ``wait_until`` has come.

A signal of the operating system can raise KeyboardInterrupt in any line of this file that runs in the main thread.
So each fact is written down before the action that makes it true, and whatever was interrupted, the error is thrown
into the protocol, which is then driven on through its ``finally`` blocks.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from distsync.errors import ClientClosedError, DeadlineError
from distsync.session import deadline as deadlines
from distsync.session.ledger import Ledger, Orphan
from distsync.session.replies import Batch, Outcome
from distsync.session.steps import (
    AtClose,
    Background,
    Call,
    Connected,
    Guid,
    Hold,
    Loss,
    Proven,
    Request,
    SessionInfo,
    Signal,
    Step,
    Together,
    Unhold,
    Wait,
    Woke,
)

#: After so many refusals in its clean-up, a protocol that goes on asking is given up: it would never end.
PATIENCE = 100

#: The longest single sleep (seconds): the C API refuses centuries.
LONGEST_S = 86_400.0

Work = Coroutine[Any, Any, Any]


class World(Protocol):
    """What a driver needs of the client."""

    mutex: Any
    forgotten: bool

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    def submit(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> Batch: ...

    @abstractmethod
    def withdraw(self, batch: Batch) -> None: ...

    @abstractmethod
    def session(self) -> SessionInfo | None: ...

    @abstractmethod
    def session_changes(self) -> Signal: ...

    @abstractmethod
    def proven(self, session_id: int) -> bool: ...

    @abstractmethod
    def hold(self, step: Hold) -> None: ...

    @abstractmethod
    def unhold(self, loss: Loss) -> None: ...

    @abstractmethod
    def stands(self, loss: Loss) -> bool: ...

    @abstractmethod
    def background(self, work: Work) -> None: ...

    @abstractmethod
    def at_close(self, work: Callable[[], Work]) -> None: ...

    @abstractmethod
    def disown(self, orphans: list[Orphan], losses: list[Loss]) -> None: ...

    @abstractmethod
    def guid(self) -> str: ...


class Pending:
    """A step that is being performed."""

    limit: float | None = None

    def outcome(self) -> Outcome | None:
        """None: not yet."""
        raise NotImplementedError

    def expired(self) -> Outcome:
        """What to answer when ``limit`` has passed."""
        raise NotImplementedError

    def drop(self) -> None:
        """Nobody wants the outcome any more."""


class Ready(Pending):
    """Answered already."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def outcome(self) -> Outcome | None:
        return Outcome(self._value)


class Asked(Pending):
    """Requests under way."""

    def __init__(self, task: Task, step: Step[Any], requests: Sequence[Request[Any]]) -> None:
        self._task, self._step = task, step
        for request in requests:
            task.ledger.sent(request)
        self._batch = task.world.submit(requests, task.wake)

    @property
    def limit(self) -> float | None:  # type: ignore[override]
        task = self._task
        grace = 0.0 if task.cleaning else task.grace
        return None if task.deadline is None else task.deadline + grace

    def outcome(self) -> Outcome | None:
        outcomes = self._batch.outcomes
        if outcomes is None:
            return None
        for reply, outcome in zip(self._batch.replies, outcomes, strict=True):
            self._task.ledger.answered(reply.request, outcome.value, outcome.error)
        if isinstance(self._step, Request):
            return outcomes[0]
        return Outcome(tuple(outcome.error or outcome.value for outcome in outcomes))

    def expired(self) -> Outcome:
        self.drop()
        what = [reply.request for reply in self._batch.replies if reply.outcome is None]
        return late(", ".join(f"{type(request).__name__} {request.path}" for request in what) or "the answer")

    def drop(self) -> None:
        self._task.world.withdraw(self._batch)


class Waiting(Pending):
    """Until a signal fires."""

    def __init__(self, task: Task, step: Wait) -> None:
        own_limit = None if step.limit is None else task.world.now() + step.limit
        self.limit = deadlines.earliest(own_limit, task.deadline)
        self._at_limit = Woke.LIMIT if self.limit == own_limit else Woke.DEADLINE
        self._task, self._signals = task, step.signals
        for signal in self._signals:
            signal.subscribe(task.wake)

    def outcome(self) -> Outcome | None:
        if not any(signal.fired for signal in self._signals):
            return None
        self.drop()
        return Outcome(Woke.SIGNAL)

    def expired(self) -> Outcome:
        self.drop()
        return Outcome(self._at_limit)

    def drop(self) -> None:
        for signal in self._signals:
            signal.unsubscribe(self._task.wake)


class Connecting(Pending):
    """Until there is a session."""

    def __init__(self, task: Task) -> None:
        self.limit = task.deadline
        self._task = task
        self._changes: Signal | None = None

    def outcome(self) -> Outcome | None:
        world = self._task.world
        if self._changes is None or self._changes.fired:
            self.drop()
            self._changes = world.session_changes()
            self._changes.subscribe(self._task.wake)
        try:
            session = world.session()
        except Exception as error:
            return self._with(Outcome(error=error))
        return None if session is None else self._with(Outcome(session))

    def _with(self, outcome: Outcome) -> Outcome:
        self.drop()
        return outcome

    def expired(self) -> Outcome:
        self.drop()
        return late("the connection to the server")

    def drop(self) -> None:
        if self._changes is not None:
            self._changes.unsubscribe(self._task.wake)


class Called(Pending):
    """The user's function, to be called by who drives."""

    def __init__(self, step: Call) -> None:
        self._function = step.function
        self._outcome: Outcome | None = None

    def execute(self) -> None:
        try:
            self._outcome = Outcome(self._function())
        except BaseException as error:
            self._outcome = Outcome(error=error)

    def outcome(self) -> Outcome | None:
        return self._outcome


def late(what: str) -> Outcome:
    return Outcome(error=DeadlineError(what))


class Task:
    """A protocol that is being driven. Only one thread at a time calls ``resume``."""

    def __init__(
        self,
        work: Work,
        world: World,
        deadline: float | None,
        wake: Callable[[], object],
        call: Callable[[Called, Task], object] = lambda called, task: called.execute(),
    ) -> None:
        self.work = work
        self.world = world
        self.deadline = deadline
        self.grace = deadlines.GRACE_S
        self.wake = wake
        self.cleaning = False
        #: Its thread is at work in here, with locks that a finalizer run in between must not ask for.
        self.driving = False
        self.abandoned = False
        self.thread = threading.get_ident()
        self.ledger = Ledger()
        self.over: Outcome | None = None
        self._call = call
        self._pending: Pending = Ready()
        self._interrupt: BaseException | None = None
        self._raised: BaseException | None = None
        self._interrupted_at: int | None = None
        self._refused = 0

    def resume(self) -> bool:
        """The protocol goes on as far as it can. Whether it is over."""
        try:
            self.driving = True
            while self.over is None:
                outcome = self._next()
                if outcome is None:
                    return False
                self._advance(outcome)
            self._pending = Ready()
            return True
        finally:
            self.driving = False

    @property
    def wait_until(self) -> float | None:
        """When to resume although nobody woke us; None: not before that."""
        return self._pending.limit

    @property
    def is_idle(self) -> bool:
        """Whether it waits for something else than an answer that is under way."""
        return isinstance(self._pending, (Waiting, Connecting))

    def interrupt(self, error: BaseException) -> None:
        """``error`` is thrown into the protocol at its next step, which then gets some time to clean up."""
        self._interrupt = error
        self.wake()

    def _next(self) -> Outcome | None:
        """What to go on with; None: nothing yet."""
        if self._interrupt is not None:
            return self._interrupted()
        outcome = self._pending.outcome()
        limit = self._pending.limit
        if outcome is None and limit is not None and self.world.now() >= limit:
            outcome = self._pending.expired()
            if isinstance(outcome.error, DeadlineError):
                self._begin_clean_up()
        return outcome

    def _interrupted(self) -> Outcome:
        error, self._interrupt = self._interrupt, None
        self._pending.drop()
        self.cleaning = False
        self._begin_clean_up()
        return Outcome(error=error)

    def _begin_clean_up(self) -> None:
        self._refused += 1
        if self._interrupted_at is None:
            self._interrupted_at = len(self.ledger.holds)
        if not self.cleaning:
            self.cleaning = True
            self.deadline = self.world.now() + deadlines.CLEAN_UP_S

    def _advance(self, outcome: Outcome) -> None:
        """One go of the protocol, from this await to the next one, alone in this client."""
        if self._is_hopeless():
            self._give_up(outcome)
            return
        try:
            with self.world.mutex:
                step = self.work.send(outcome.value) if outcome.error is None else self.work.throw(outcome.error)
        except StopIteration as stop:
            self.over = Outcome(stop.value)
        except BaseException as error:
            self._raised = error
            self.over = Outcome(error=error)
        else:
            self._pending = self._perform(step)

    def _is_hopeless(self) -> bool:
        """It refuses to end, it ended without our learning how, or it is that of a process that forked us."""
        closed = inspect.getcoroutinestate(self.work) == inspect.CORO_CLOSED
        return closed or self.world.forgotten or self._refused > PATIENCE

    def _give_up(self, outcome: Outcome) -> None:
        error = ClientClosedError("a call that began before a fork") if self.world.forgotten else outcome.error
        self.over = Outcome(error=error or RuntimeError("the protocol was lost"))
        with contextlib.suppress(RuntimeError):
            self.work.close()

    def _perform(self, step: Any) -> Pending:
        """Begin what the protocol asks for."""
        if isinstance(step, Request):
            return Asked(self, step, (step,))
        if isinstance(step, Wait):
            return Waiting(self, step)
        if isinstance(step, Connected):
            return Connecting(self)
        if isinstance(step, Together):
            return Asked(self, step, step.requests) if step.requests else Ready(())
        if isinstance(step, Call):
            called = Called(step)
            self._pending = called
            self.driving = False
            self._call(called, self)
            self.driving = True
            return called
        return Ready(self._at_once(step))

    def _at_once(self, step: Any) -> Any:
        """Steps that take no time."""
        world = self.world
        if isinstance(step, Proven):
            return world.proven(step.session_id)
        if isinstance(step, Guid):
            return world.guid()
        if isinstance(step, Hold):
            self.ledger.holds.append(step)
            return world.hold(step)
        if isinstance(step, Unhold):
            return world.unhold(step.loss)
        if isinstance(step, Background):
            return world.background(step.work)
        if isinstance(step, AtClose):
            return world.at_close(step.work)
        raise TypeError(f"a protocol awaited {step!r}, which is no step")

    def result(self) -> Any:
        """What the protocol returned; raises what it raised."""
        assert self.over is not None
        if self.over.error is not None:
            raise self.over.error
        return self.over.value

    def disown(self, error: BaseException) -> None:
        """The call ended with ``error``: its ephemerals go, but for what the protocol has left held on purpose."""
        kept = self._kept(error)
        wanted = {step.path for step in kept if self.world.stands(step.loss)}
        orphans = self.ledger.orphans(wanted.__contains__)
        losses = [step.loss for step in self.ledger.holds if step not in kept]
        if orphans or losses:
            self.world.disown(orphans, losses)

    def _kept(self, error: BaseException) -> list[Hold]:
        """The holds that are meant to outlive a call that failed. One that was interrupted keeps what it took after
        that, in its clean-up, as a Condition takes its lock again; none, if the caller did not learn how it ended."""
        if self.abandoned or self._raised is not error:
            return []
        if self._interrupted_at is not None:
            return self.ledger.holds[self._interrupted_at :]
        return self.ledger.holds if isinstance(error, Exception) else []

    @property
    def is_begun(self) -> bool:
        return inspect.getcoroutinestate(self.work) != inspect.CORO_CREATED

    def abandon(self, wake: Callable[[], object], call: Callable[[Called, Task], object]) -> None:
        """Somebody else drives on, who has no caller to tell the result."""
        self.abandoned, self.wake, self._call = True, wake, call


def drive(task: Task, woken: SimpleQueue[Any]) -> Any:
    """The blocking driver: the protocol's result. ``task.wake`` puts into ``woken``. Waits in one place only, which
    a signal of the operating system can interrupt."""
    while not _drive_on(task, woken):
        pass
    return task.result()


def _drive_on(task: Task, woken: SimpleQueue[Any]) -> bool:
    """Whether the protocol is over; False also if something interrupted the driving."""
    try:
        while not task.resume():
            _sleep(task, woken)
        return True
    except BaseException as error:
        task.interrupt(error)
        return False


def _sleep(task: Task, woken: SimpleQueue[Any]) -> None:
    seconds = deadlines.seconds_until(task.wait_until, task.world.now())
    with contextlib.suppress(Empty):
        woken.get(timeout=LONGEST_S if seconds is None else min(seconds, LONGEST_S))
