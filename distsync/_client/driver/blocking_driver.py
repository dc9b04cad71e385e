"""Blocking driver: run a protocol in the calling thread, performing the steps that it awaits.

A ProtocolRun never waits. Its driver does: `drive` in this module, asyncio_driver.py, or the
client's background thread. The driver resumes the run when ``wake`` has been called or
``wait_until`` has passed. Everything that a run needs from the client is passed in
(`DriverContext`).

A signal handler can raise KeyboardInterrupt at any line that runs in the main thread. So a znode or
hold is recorded (`CreatedNodes`) before it is requested. An interrupt is thrown into the protocol,
which is then driven on through its ``finally`` blocks.

Python 3.10 may raise a second KeyboardInterrupt even at the first line of an exception handler,
unless that line is a ``try``, or at the exit of a ``with`` block, which is then skipped. An
interrupted thread therefore releases the locks that it may still hold (`unlock`).
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from os import getpid
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from distsync._client import deadlines, lifecycle
from distsync._client.driver.created_nodes import CreatedNodes
from distsync._client.driver.driver_context import DriverContext, ProtocolCoroutine
from distsync._client.driver.pending_steps import (
    AwaitConnection,
    AwaitSignal,
    Pending,
    RequestInFlight,
    Resolved,
    UserCall,
)
from distsync._client.transport.reply_futures import Outcome
from distsync._client.wait_log import WaitProgress
from distsync._protocols.steps import (
    AtClose,
    Background,
    Call,
    Connected,
    Guid,
    Hold,
    KeepResults,
    Pipeline,
    ReportLoss,
    Request,
    SessionAlive,
    StopHolding,
    Wait,
    WatchNode,
)
from distsync._signal_handlers import handler_frame, is_interrupt, raise_if_from_handler
from distsync.errors import ClientClosedError, DeadlineError

#: A protocol that still awaits steps after this many interrupts and expired deadlines is
#: aborted, because its clean-up would never end.
MAX_IGNORED_INTERRUPTS = 100

#: The longest single sleep, in seconds; the C API rejects very long timeouts.
MAX_SLEEP_S = 86_400.0

#: Code flags of functions whose frames can be suspended.
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_PACKAGE = __file__[: -len("_client/driver/blocking_driver.py")]
#: Folders of coroutines that are protocols or parts of them. The objects for asyncio are callers.
PROTOCOL_FOLDERS = tuple(f"{_PACKAGE}{each}" for each in ("_protocols/", "_client/", "_objects/base.py"))


class ProtocolRun:
    """A running protocol. Only one thread at a time may call `resume`."""

    def __init__(
        self,
        protocol: ProtocolCoroutine,
        context: DriverContext,
        deadline: float | None,
        wake: Callable[[], object],
        call_in_user_thread: Callable[[UserCall, ProtocolRun], object] = lambda called, run: called.execute(),
    ) -> None:
        self.protocol = protocol
        self.context = context
        self.deadline = deadline
        #: Seconds after the deadline for which the reply to a request in flight is still awaited.
        self.grace = deadlines.GRACE_S
        self.wake = wake
        self.cleaning = False
        #: Whether to wait for ``wake`` even if a reply is already there, so that concurrent
        #: runs continue in the order of their replies.
        self.yield_between_steps = False
        #: Whether a thread is inside this run and may hold locks. A finalizer in that thread
        #: must not acquire them.
        self.driving = False
        self.abandoned = False
        self.thread, self._pid = threading.get_ident(), getpid()
        self.created_nodes = CreatedNodes()
        #: What to log if the wait is long; None logs nothing.
        self.progress: WaitProgress | None = None
        self.outcome: Outcome | None = None
        self._call = call_in_user_thread
        self._pending: Pending = Resolved()
        self._interrupt: BaseException | None = None
        self._raised: BaseException | None = None
        self._raised_interrupt = False
        self._interrupted_at: int | None = None
        self._refused = 0

    def resume(self) -> bool:
        """Run the protocol until it has to wait. Return whether it has ended."""
        try:
            self.driving = True
            while self.outcome is None:
                outcome = self._pending.known
                if outcome is None or self._interrupt is not None:
                    outcome = self._poll()
                if outcome is None:
                    return False
                self._step(outcome)
                del outcome
                if self.yield_between_steps and self.outcome is None and isinstance(self._pending, RequestInFlight):
                    return False
            self._pending = Resolved()
            self._drop_tracebacks(self.outcome.error)
            return True
        finally:
            self.driving = False

    @property
    def wait_until(self) -> float | None:
        """When to resume even if ``wake`` has not been called; None for never."""
        return self._pending.limit

    @property
    def waits_for_replies(self) -> bool:
        """Whether the protocol waits for replies to requests."""
        return isinstance(self._pending, RequestInFlight)

    @property
    def is_idle(self) -> bool:
        """Whether the protocol waits for a signal or a connection, not for a reply."""
        return isinstance(self._pending, (AwaitSignal, AwaitConnection))

    def read_replies(self, seconds: float) -> None:
        """Let the calling thread, which is about to sleep, read replies for up to ``seconds``."""
        try:
            self.driving = True
            self.context.read_replies(self._pending.replies, seconds)
        finally:
            self.driving = False

    @property
    def is_settled(self) -> bool:
        """Whether the protocol has succeeded, or waits for a signal with all replies received."""
        if self.outcome is not None:
            return self.outcome.error is None
        return isinstance(self._pending, AwaitSignal) and not self.cleaning

    def interrupt(self, error: BaseException) -> None:
        """Throw ``error`` into the protocol at its next step, and grant it time to clean up."""
        self._interrupt = error
        self.wake()

    def abort(self, error: BaseException) -> None:
        """End the protocol now, without waiting: each step that it has to wait for raises ``error``.

        A suspended coroutine that is freed gets a GeneratorExit instead, and must not await anything then.
        """
        while self.outcome is None:
            if not self.is_started:
                self.protocol.close()
                return
            self.interrupt(error)
            with contextlib.suppress(Exception):  # a request could not be sent
                self.resume()

    def _poll(self) -> Outcome | None:
        """Return the outcome of the pending step, or None if there is none yet."""
        if self._interrupt is not None:
            return self._interrupted()
        outcome = self._pending.outcome()
        if outcome is not None and isinstance(self._pending, UserCall):
            self._extend_deadline(self._pending.began)
        limit = self._pending.limit
        if outcome is None and limit is not None and self.context.now() >= limit:
            outcome = self._pending.expire()
            if isinstance(outcome.error, DeadlineError):
                self._begin_clean_up()
        return outcome

    def _extend_deadline(self, began: float) -> None:
        """Let the protocol publish the result of a user function that outlasted the deadline.

        If the function began in time, the call continues as a non-blocking one would: its
        deadline is now, with the grace period of a non-blocking call.
        """
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
        """Run the protocol from this await to the next one, under the client's mutex."""
        if self._must_abort():
            self._give_up(outcome)
            return
        try:
            with self.context.mutex:
                step = (
                    self.protocol.send(outcome.value) if outcome.error is None else self.protocol.throw(outcome.error)
                )
        except StopIteration as stop:
            if stop.__traceback__ is not None and stop.__traceback__.tb_next is not None:
                raise  # a signal handler raised it: the end of a protocol adds no frame
            self.outcome = Outcome(stop.value)
        except BaseException as error:
            if not self._has_ended:
                raise  # the interrupt hit the driver, after the protocol had awaited its next step
            # Decided here: the caller gets the error before the clean-up, and may clear its traceback.
            self._raised, self._raised_interrupt = error, is_interrupt(error)
            self.outcome = Outcome(error=error)
        else:
            self._pending = self._start(step)
        finally:
            del outcome  # breaks a reference cycle: an error's traceback refers to this frame

    def _must_abort(self) -> bool:
        """Return whether the protocol cannot continue.

        It ignores interrupts, it has ended without recording its outcome, or it belongs to the
        parent of a fork.
        """
        if self._pid != getpid():
            lifecycle.notice_fork()
            return True
        # The same as _has_ended, without a call: this is done for each step.
        return self.protocol.cr_frame is None or self._refused > MAX_IGNORED_INTERRUPTS  # type: ignore[attr-defined]

    @property
    def _has_ended(self) -> bool:
        return self.protocol.cr_frame is None  # type: ignore[attr-defined]  # the same as CORO_CLOSED, without a call

    def _give_up(self, outcome: Outcome) -> None:
        error = ClientClosedError("a call that began before a fork") if self._pid != getpid() else outcome.error
        self.outcome = Outcome(error=error or RuntimeError("the outcome of the protocol was lost"))
        with contextlib.suppress(RuntimeError):
            self.protocol.close()

    def _start(self, step: Any) -> Pending:
        """Start performing ``step``."""
        if isinstance(step, Request):
            return RequestInFlight(self, step, (step,))
        if isinstance(step, Wait):
            waiting = AwaitSignal(self, step)
            self._refuse_endless_wait(step)
            return waiting
        if isinstance(step, Connected):
            return AwaitConnection(self)
        if isinstance(step, Pipeline):
            return RequestInFlight(self, step, step.requests) if step.requests else Resolved(())
        if isinstance(step, Call):
            called = UserCall(step, self.context.now())
            self._pending = called
            self.driving = False
            self._call(called, self)
            self.driving = True
            if self.progress is not None:
                self.progress.restart()
            return called
        return Resolved(self._run_inline(step))

    def _refuse_endless_wait(self, step: Wait) -> None:
        """Interrupt the protocol with OverflowError if it would wait with a timeout above TIMEOUT_MAX.

        The standard library refuses such a timeout too, and only if it has to wait.
        """
        if self.deadline is None or self.cleaning or any(signal.fired for signal in step.signals):
            return
        seconds = self.deadline - self.context.now()
        if seconds > deadlines.TIMEOUT_MAX:
            self.interrupt(deadlines.timeout_too_large(seconds))

    def _run_inline(self, step: Any) -> Any:
        """Perform a step that does not wait, and return its result."""
        context = self.context
        if isinstance(step, SessionAlive):
            return context.is_proven(step.session_id, step.fresh)
        if isinstance(step, Guid):
            return context.guid()
        if isinstance(step, Hold):
            self.created_nodes.holds.append(step)
            return context.hold(step)
        if isinstance(step, StopHolding):
            return context.unhold(step.loss)
        if isinstance(step, KeepResults):
            return self._keep_results()
        if isinstance(step, ReportLoss):
            return context.mark_lost(step.path)
        if isinstance(step, WatchNode):
            return context.watch_hold(step.loss, step.on_data)
        if isinstance(step, Background):
            return context.background(step.protocol)
        if isinstance(step, AtClose):
            return context.at_close(step.protocol, step.key)
        raise TypeError(f"a protocol awaited {step!r}, which is not a step")

    def _keep_results(self) -> None:
        self.created_nodes.keep()
        self._interrupted_at = None if self._interrupted_at is None else 0

    def result(self) -> Any:
        """Return what the protocol returned, or raise what it raised."""
        assert self.outcome is not None
        if self.outcome.error is not None:
            raise self.outcome.error
        return self.outcome.value

    def _drop_tracebacks(self, raised: BaseException | None) -> None:
        """Drop the tracebacks of all error replies but ``raised``.

        A protocol may have raised and caught such an error while a frame still refers to it.
        The traceback refers back to that frame and to the caller's frames, whose objects would
        stay alive until the next garbage collection.
        """
        for error in self.created_nodes.errors:
            if error is not raised:
                error.__traceback__ = None

    def break_traceback_cycles(self) -> None:
        """Clear the frames through which the error of a failed call refers to itself.

        To be called once the error has been handed to the caller.
        """
        if self.outcome is not None and self.outcome.error is not None:
            _clear_frames(self.outcome.error.__traceback__)
            self.outcome, self._raised = Outcome(), None

    def abandon_results(self, error: BaseException) -> None:
        """Clean up after a call that ended with ``error``.

        Its ephemeral znodes are deleted and its holds end, except those that are meant to
        outlive the call, and those that a later call has joined.
        """
        outliving = self._outliving_holds(error)
        with self.context.mutex:  # so that no call joins a hold in between
            kept = [step for step in self.created_nodes.holds if step in outliving or step.loss.is_joined]
            wanted = {step.path for step in kept if self.context.is_active(step.loss)}
            leftovers = self.created_nodes.leftovers(wanted.__contains__)
            losses = [step.loss for step in self.created_nodes.holds if step not in kept]
            if leftovers or losses:
                self.context.abandon_results(leftovers, losses)

    def _outliving_holds(self, error: BaseException) -> list[Hold]:
        """Return the holds that outlive a call that ended with ``error``.

        An interrupted call keeps what it acquired during its clean-up, as a Condition
        re-acquires its lock. A call keeps nothing if the caller does not get the error that the
        protocol raised.
        """
        if self.abandoned or self._raised is not error:
            return []
        if self._interrupted_at is not None:
            return self.created_nodes.holds[self._interrupted_at :]
        return [] if self._raised_interrupt else self.created_nodes.holds

    @property
    def is_started(self) -> bool:
        return inspect.getcoroutinestate(self.protocol) != inspect.CORO_CREATED

    def hand_over(
        self, wake: Callable[[], object], call_in_user_thread: Callable[[UserCall, ProtocolRun], object]
    ) -> None:
        """Let another driver take over, which has no caller to return the result to."""
        self.abandoned, self.wake, self._call = True, wake, call_in_user_thread


def _clear_frames(trace: TracebackType | None) -> None:
    """Clear the frames of the protocol, and those of its callers that have ended.

    A generator or coroutine among the callers may have caught the error and be suspended again.
    Clearing its frame would close it. One that has thrown the error into the call comes behind the
    frames of the protocol. The frame of a signal handler is kept, because it tells whose error this is.
    """
    inside, handler = False, handler_frame(trace)
    while trace is not None and trace.tb_frame is not handler:
        code = trace.tb_frame.f_code
        inside = inside or code is ProtocolRun._step.__code__
        if not code.co_flags & SUSPENDABLE or (inside and code.co_filename.startswith(PROTOCOL_FOLDERS)):
            with contextlib.suppress(RuntimeError):
                trace.tb_frame.clear()
        trace = trace.tb_next


def drive(run: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> Any:
    """Drive a protocol to its end, in the calling thread, and return its result.

    ``run.wake`` must put an item into ``wakeup_queue``. A signal can interrupt the wait.
    """
    interrupt: BaseException | None = None
    latest: BaseException | None = None
    try:
        while (latest := _drive_on(run, wakeup_queue)) is not None:
            interrupt = latest
        if interrupt is not None:  # whatever the protocol has made of it
            raise interrupt
        return run.result()
    finally:
        del interrupt, latest  # breaks a reference cycle: an error's traceback refers to this frame


def _drive_on(run: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> BaseException | None:
    """Drive until the protocol ends, and return None, or until an interrupt, and return that."""
    try:
        while not run.resume():
            _sleep(run, wakeup_queue)
        return None
    except BaseException as error:
        run.context.unlock()
        run.interrupt(error)
        return error


def _sleep(run: ProtocolRun, wakeup_queue: SimpleQueue[Any]) -> None:
    run.read_replies(seconds_to_sleep(run))
    try:
        wakeup_queue.get(timeout=seconds_to_sleep(run))
    except Empty as error:
        raise_if_from_handler(error)


def seconds_to_sleep(run: ProtocolRun) -> float:
    """Return how long to wait for a wake-up before resuming. Log the wait if it is long."""
    now, until, progress = run.context.now(), run.wait_until, run.progress
    if progress is not None:
        if progress.is_log_due(now):
            run.context.on_long_wait(progress)
        until = deadlines.earliest(until, progress.next_log_at)
    seconds = deadlines.seconds_until(until, now)
    return MAX_SLEEP_S if seconds is None else min(seconds, MAX_SLEEP_S)
