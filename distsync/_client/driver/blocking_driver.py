"""The driver: steps a protocol, performs what it asks for, answers it.

Rules for this file: it knows steps, outcomes, deadlines and the mutex, and no socket or kazoo: what it needs
of the world is passed in (``DriverContext``). A ProtocolRun never waits; who drives it does (``drive`` here, the
keeper's loop there), and looks at the task again when its ``wake`` is called or ``wait_until`` has come.

A signal of the operating system can raise KeyboardInterrupt in any line of this file that runs in the main thread.
So each fact is written down before the action that makes it true, and whatever was interrupted, the error is thrown
into the protocol, which is then driven on through its ``finally`` blocks.

Python 3.10 raises a second one even at the first line of a handler, and of the exit of a ``with``, which is then
skipped (not where a handler begins with ``try``): so whoever was interrupted lets go of the locks that are still his.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from distsync._client import deadlines
from distsync._client.driver.created_nodes import CreatedNodes
from distsync._client.driver.driver_context import DriverContext, Work
from distsync._client.driver.pending_steps import (
    AwaitConnection,
    AwaitSignal,
    Pending,
    RequestInFlight,
    Resolved,
    UserCall,
)
from distsync._client.transport.pending_replies import Outcome
from distsync._client.wait_log import WaitProgress
from distsync._protocols.steps import (
    AtClose,
    Background,
    Call,
    Connected,
    Guid,
    Hold,
    Proven,
    ReportLoss,
    Request,
    StopHolding,
    Together,
    Wait,
    WatchNode,
)
from distsync.errors import ClientClosedError, DeadlineError

#: After so many refusals in its clean-up, a protocol that goes on asking is given up: it would never end.
MAX_IGNORED_INTERRUPTS = 100

#: The longest single sleep (seconds): the C API refuses centuries.
MAX_SLEEP_S = 86_400.0


#: Code whose frames wait in the midst of it.
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class ProtocolRun:
    """A protocol that is being driven. Only one thread at a time calls ``resume``."""

    def __init__(
        self,
        protocol: Work,
        context: DriverContext,
        deadline: float | None,
        wake: Callable[[], object],
        call_in_user_thread: Callable[[UserCall, ProtocolRun], object] = lambda called, task: called.execute(),
    ) -> None:
        self.protocol = protocol
        self.context = context
        self.deadline = deadline
        self.grace = deadlines.GRACE_S
        self.wake = wake
        self.cleaning = False
        #: Also an answer that is there at once waits for ``wake``, behind those of others that came before.
        self.yield_between_steps = False
        #: Its thread is at work in here, with locks that a finalizer run in between must not ask for.
        self.driving = False
        self.abandoned = False
        self.thread = threading.get_ident()
        self.created_nodes = CreatedNodes()
        #: What the log tells, should this last; None: nothing.
        self.progress: WaitProgress | None = None
        self.outcome: Outcome | None = None
        self._call = call_in_user_thread
        self._pending: Pending = Resolved()
        self._interrupt: BaseException | None = None
        self._raised: BaseException | None = None
        self._interrupted_at: int | None = None
        self._refused = 0

    def resume(self) -> bool:
        """The protocol goes on as far as it can. Whether it is over."""
        try:
            self.driving = True
            while self.outcome is None:
                outcome = self._poll()
                if outcome is None:
                    return False
                self._step(outcome)
                del outcome
                if self.yield_between_steps and self.outcome is None and isinstance(self._pending, RequestInFlight):
                    return False
            self._pending = Resolved()
            self._forget_answers(self.outcome.error)
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
        return isinstance(self._pending, (AwaitSignal, AwaitConnection))

    def read_replies(self, seconds: float) -> None:
        """In the thread that is about to sleep so long: it may read the answers itself, with locks as in ``resume``."""
        try:
            self.driving = True
            self.context.read_replies(self._pending.replies, seconds)
        finally:
            self.driving = False

    @property
    def is_settled(self) -> bool:
        """Whether all that it asked for is there: it has ended well, or waits for an event."""
        if self.outcome is not None:
            return self.outcome.error is None
        return isinstance(self._pending, AwaitSignal) and not self.cleaning

    def interrupt(self, error: BaseException) -> None:
        """``error`` is thrown into the protocol at its next step, which then gets some time to clean up."""
        self._interrupt = error
        self.wake()

    def _poll(self) -> Outcome | None:
        """What to go on with; None: nothing yet."""
        if self._interrupt is not None:
            return self._interrupted()
        outcome = self._pending.outcome()
        if outcome is not None and isinstance(self._pending, UserCall):
            self._extend_deadline(self._pending.began)
        limit = self._pending.limit
        if outcome is None and limit is not None and self.context.now() >= limit:
            outcome = self._pending.expired()
            if isinstance(outcome.error, DeadlineError):
                self._begin_clean_up()
        return outcome

    def _extend_deadline(self, began: float) -> None:
        """A function of the user's that began in time may have outlasted the deadline: what it has come to is told to
        the others all the same, as by a call that must not wait."""
        now = self.context.now()
        if self.deadline is not None and began < self.deadline < now and not self.cleaning:
            self.deadline, self.grace = now, deadlines.NONBLOCKING_GRACE_S

    def _interrupted(self) -> Outcome:
        error, self._interrupt = self._interrupt, None
        self._pending.drop()
        self.cleaning = False
        self._begin_clean_up()
        return Outcome(error=error)

    def _begin_clean_up(self) -> None:
        self._refused += 1
        if self._interrupted_at is None:
            self._interrupted_at = len(self.created_nodes.holds)
        if not self.cleaning:
            self.cleaning = True
            self.deadline = self.context.now() + deadlines.CLEAN_UP_S

    def _step(self, outcome: Outcome) -> None:
        """One go of the protocol, from this await to the next one, alone in this client."""
        if self._must_abort():
            self._give_up(outcome)
            return
        try:
            with self.context.mutex:
                step = (
                    self.protocol.send(outcome.value) if outcome.error is None else self.protocol.throw(outcome.error)
                )
        except StopIteration as stop:
            self.outcome = Outcome(stop.value)
        except BaseException as error:
            if not self._has_ended:
                raise  # it is this line that was interrupted, when the protocol had asked for its next step
            self._raised = error
            self.outcome = Outcome(error=error)
        else:
            self._pending = self._start(step)
        finally:
            del outcome  # an error's traceback leads to this frame

    def _must_abort(self) -> bool:
        """It refuses to end, it ended without our learning how, or it is that of a process that forked us."""
        return self._has_ended or self.context.forgotten or self._refused > MAX_IGNORED_INTERRUPTS

    @property
    def _has_ended(self) -> bool:
        return self.protocol.cr_frame is None  # type: ignore[attr-defined]  # CORO_CLOSED, asked at each step

    def _give_up(self, outcome: Outcome) -> None:
        error = ClientClosedError("a call that began before a fork") if self.context.forgotten else outcome.error
        self.outcome = Outcome(error=error or RuntimeError("the protocol was lost"))
        with contextlib.suppress(RuntimeError):
            self.protocol.close()

    def _start(self, step: Any) -> Pending:
        """Begin what the protocol asks for."""
        if isinstance(step, Request):
            return RequestInFlight(self, step, (step,))
        if isinstance(step, Wait):
            return AwaitSignal(self, step)
        if isinstance(step, Connected):
            return AwaitConnection(self)
        if isinstance(step, Together):
            return RequestInFlight(self, step, step.requests) if step.requests else Resolved(())
        if isinstance(step, Call):
            called = UserCall(step, self.context.now())
            self._pending = called
            self.driving = False
            self._call(called, self)
            self.driving = True
            if self.progress is not None:
                self.progress.begin_anew()
            return called
        return Resolved(self._run_inline(step))

    def _run_inline(self, step: Any) -> Any:
        """Steps that take no time."""
        context = self.context
        if isinstance(step, Proven):
            return context.is_proven(step.session_id, step.fresh)
        if isinstance(step, Guid):
            return context.guid()
        if isinstance(step, Hold):
            self.created_nodes.holds.append(step)
            return context.hold(step)
        if isinstance(step, StopHolding):
            return context.unhold(step.loss)
        if isinstance(step, ReportLoss):
            return context.mark_lost(step.path)
        if isinstance(step, WatchNode):
            return context.watch_hold(step.loss, step.on_data)
        if isinstance(step, Background):
            return context.background(step.protocol)
        if isinstance(step, AtClose):
            return context.at_close(step.protocol)
        raise TypeError(f"a protocol awaited {step!r}, which is no step")

    def result(self) -> Any:
        """What the protocol returned; raises what it raised."""
        assert self.outcome is not None
        if self.outcome.error is not None:
            raise self.outcome.error
        return self.outcome.value

    def _forget_answers(self, raised: BaseException | None) -> None:
        """A protocol may have kept an answer that is an error, and raised and caught it: its traceback then leads to
        the frame that keeps it, and on to the caller's, whose objects would live until the garbage collector comes."""
        for error in self.created_nodes.refusals:
            if error is not raised:
                error.__traceback__ = None

    def break_traceback_cycles(self) -> None:
        """The caller has the error that the call ended with, which does not lead back to itself any more."""
        if self.outcome is not None and self.outcome.error is not None:
            _clear_frames(self.outcome.error.__traceback__)
            self.outcome, self._raised = Outcome(), None

    def abandon_results(self, error: BaseException) -> None:
        """The call ended with ``error``: its ephemerals go, but for what the protocol has left held on purpose."""
        kept = self._kept(error)
        wanted = {step.path for step in kept if self.context.is_active(step.loss)}
        leftovers = self.created_nodes.leftovers(wanted.__contains__)
        losses = [step.loss for step in self.created_nodes.holds if step not in kept]
        if leftovers or losses:
            self.context.abandon_results(leftovers, losses)

    def _kept(self, error: BaseException) -> list[Hold]:
        """The holds that are meant to outlive a call that failed. One that was interrupted keeps what it took after
        that, in its clean-up, as a Condition takes its lock again; none, if the caller did not learn how it ended."""
        if self.abandoned or self._raised is not error:
            return []
        if self._interrupted_at is not None:
            return self.created_nodes.holds[self._interrupted_at :]
        return self.created_nodes.holds if isinstance(error, Exception) else []

    @property
    def is_started(self) -> bool:
        return inspect.getcoroutinestate(self.protocol) != inspect.CORO_CREATED

    def hand_over(
        self, wake: Callable[[], object], call_in_user_thread: Callable[[UserCall, ProtocolRun], object]
    ) -> None:
        """Somebody else drives on, who has no caller to tell the result."""
        self.abandoned, self.wake, self._call = True, wake, call_in_user_thread


def _clear_frames(trace: TracebackType | None) -> None:
    """The frames of the protocol, and of those above it that do not go on: a generator or coroutine of the caller's may
    have caught the error, and wait for something else by now. To clear its frame would end it."""
    inside = False
    while trace is not None:
        code = trace.tb_frame.f_code
        inside = inside or code is ProtocolRun._step.__code__
        if inside or not code.co_flags & SUSPENDABLE:
            with contextlib.suppress(RuntimeError):
                trace.tb_frame.clear()
        trace = trace.tb_next


def drive(task: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> Any:
    """The blocking driver: the protocol's result. ``task.wake`` puts into ``wakeup_queue``. Waits in one place only,
    which a signal of the operating system can interrupt."""
    while not _drive_on(task, wakeup_queue):
        pass
    return task.result()


def _drive_on(task: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> bool:
    """Whether the protocol is over; False also if something interrupted the driving."""
    try:
        while not task.resume():
            _sleep(task, wakeup_queue)
        return True
    except BaseException as error:
        task.context.unlock()
        task.interrupt(error)
        return False


def _sleep(task: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> None:
    task.read_replies(seconds_to_sleep(task))
    with contextlib.suppress(Empty):
        wakeup_queue.get(timeout=seconds_to_sleep(task))


def seconds_to_sleep(task: ProtocolRun) -> float:
    """How long to wait, unless the task is woken, before it is resumed; the log says if it has waited for long."""
    now, until, progress = task.context.now(), task.wait_until, task.progress
    if progress is not None:
        if progress.is_log_due(now):
            task.context.on_long_wait(progress)
        until = deadlines.earliest(until, progress.next_log_at)
    seconds = deadlines.seconds_until(until, now)
    return MAX_SLEEP_S if seconds is None else min(seconds, MAX_SLEEP_S)
