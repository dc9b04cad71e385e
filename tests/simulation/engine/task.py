"""A task: a thread of a simulated process, which drives protocols step by step.

A step means exactly what distsync._protocols.steps and the blocking driver define. A task is picked
only when the answer to its step is there; everything up to its next await is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from simulation.engine.call_frames import FIRST_CONNECTION_MS, Asked, Frame, Run
from simulation.engine.scheduler import Actor, Timer

from distsync._client.lease.holds import INTERRUPTED
from distsync._protocols import steps
from distsync.errors import ClientClosedError, DeadlineError, UnreachableError

if TYPE_CHECKING:
    from simulation.engine.process import SimProcess


#: The chance that no other actor gets a turn at a step that needs no request.
CONTINUES = 0.85


class Task(Actor):
    """A thread. It has a ``result`` or an ``error`` once it is ``done``."""

    __slots__ = (
        "process", "name", "daemon", "expected", "result", "error", "done", "stack", "at", "interrupted",
        "_resume", "_abandon", "_timer", "_on_deadline", "_overdue", "_stalled_ms", "background",
    )  # fmt: skip

    def __init__(
        self,
        process: SimProcess,
        name: str,
        coroutine: Coroutine[Any, Any, Any],
        timeout: float | None,
        daemon: bool,
        expected: tuple[type[BaseException], ...],
        background: bool,
    ) -> None:
        super().__init__(process.world.scheduler)
        self.process = process
        self.name = f"{process.name}/{name}"
        self.daemon = daemon
        self.expected = expected
        self.background = background
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.interrupted = False
        self.at: Any = "its start"
        self.stack: list[Frame] = []
        self._abandon: Callable[[], None] | None = None
        self._on_deadline: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._overdue: Callable[[], None] | None = None
        self._stalled_ms = 0
        self._push(coroutine, timeout)
        self._resume: tuple[bool, Any] | None = (False, None)
        self.ready()

    def __repr__(self) -> str:
        return f"<Task {self.name}: {'done' if self.done else self.at}>"

    # --- running

    def has_work(self) -> bool:
        return self._resume is not None

    def run(self) -> None:
        failed, value = self._answer()
        self.process.world.current = self
        while self.stack:
            frame = self.stack[-1]
            try:
                step = frame.coroutine.throw(value) if failed else frame.coroutine.send(value)
            except StopIteration as stop:
                failed, value = False, stop.value
            except BaseException as error:
                failed, value = True, error
                self._clean_up_after(frame, error)
            else:
                if isinstance(step, Run):
                    self._push(step.protocol, step.timeout)
                    failed, value = False, None
                    continue
                self._perform(frame, step)
                if not self._continues():
                    return
                failed, value = self._answer()
                continue
            self.stack.pop()
            self._judge_time(frame)
        self._finish(failed, value)

    def stall(self) -> None:
        if not self.stalls:
            self._stalled_ms = self.scheduler.now_ms
        super().stall()

    def unstall(self) -> None:
        """Resume. What arrived in the meantime comes before a timeout, as for a thread that looks at
        the clock only when it runs.
        """
        super().unstall()
        if self.stalls:
            return
        for frame in self.stack:
            frame.excused_ms += self.scheduler.now_ms - self._stalled_ms
        overdue, self._overdue = self._overdue, None
        if overdue is not None:
            overdue()

    def _judge_time(self, frame: Frame) -> None:
        """Check that a call with a deadline ends soon after it, whatever is unreachable."""
        now_ms = self.scheduler.now_ms
        if self.stack:
            self.stack[-1].excused_ms += now_ms - frame.began_ms - frame.excused_ms
        late_ms = frame.late_ms(now_ms - self.process.world.clean_up_ms)
        if late_ms is not None:
            name = getattr(frame.coroutine, "__qualname__", "a call")
            self.process.world.fail(f"{name} of {self.name} ended {late_ms} ms after its deadline")

    def _answer(self) -> tuple[bool, Any]:
        assert self._resume is not None
        answer, self._resume = self._resume, None
        self.rest()
        return answer

    def _continues(self) -> bool:
        """Return whether the task continues at once: a step that was answered at once rarely lets
        others run.
        """
        return self._resume is not None and not self.stalls and self.scheduler.rng.random() < CONTINUES

    def _push(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> None:
        first = not self.process.session.ever_connected
        self.stack.append(Frame(coroutine, timeout, self.scheduler.now_ms, first))

    def _clean_up_after(self, frame: Frame, error: BaseException) -> None:
        """Delete what a failed call created, except what it intentionally still holds."""
        keeper, outliving = self.process.keeper, frame.outliving(error)
        wanted = {step.path for step in outliving if keeper.holds.is_active(step.loss)}
        for leftover in frame.created_nodes.leftovers(wanted.__contains__):
            if keeper.lease.session_id is not None:
                keeper.delete_leftover(leftover, keeper.lease.session_id)
        for step in frame.created_nodes.holds:
            if step not in outliving:
                keeper.holds.mark_lost(step.loss, INTERRUPTED)

    def _finish(self, failed: bool, value: Any) -> None:
        self.done = True
        self.at = "its end"
        self.process.world.note(self.name, "raises" if failed else "returns", value)
        self.error, self.result = (value, None) if failed else (None, value)
        self.process.task_done(self)

    def resume(self, failed: bool, value: Any) -> None:
        """Store the answer to the current step, so that the task can be picked."""
        timer, self._timer, self._abandon, self._on_deadline = self._timer, None, None, None
        self._overdue = None
        if timer is not None:
            timer.cancel()
        self._resume = (failed, value)
        notes = self.process.world.history.notes
        notes.append((self.scheduler.now_ms, self.name, "!" if failed else "=", value))
        self.ready()

    def throw(self, error: BaseException) -> None:
        """Raise ``error`` at the task's current await; the call has a fresh deadline for its clean-up."""
        if self.stack:
            self._abandon_step()
            self.stack[-1].clean_up_from(self.scheduler.now_ms, extend=True)
            self.stack[-1].due_ms = self.stack[-1].deadline_ms
            self.resume(True, error)

    def expire(self) -> None:
        """Make the deadline of the current call now, if it has one. A first connection still gets its
        time.
        """
        if self.stack and self.stack[-1].deadline_ms is not None and self.process.session.ever_connected:
            self.stack[-1].deadline_ms = min(self.stack[-1].deadline_ms, self.scheduler.now_ms)
            self.stack[-1].due_ms = self.stack[-1].deadline_ms
            if self._on_deadline is not None:
                self._on_deadline()

    def _abandon_step(self) -> None:
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()

    def discard(self) -> list[Coroutine[Any, Any, Any]]:
        """Discard the task without running a finally block. Return its coroutines, innermost first, to
        be abandoned.
        """
        self._abandon_step()
        if self._timer is not None:
            self._timer.cancel()
        self._resume = self._overdue = None
        self.rest()
        remains = [frame.coroutine for frame in reversed(self.stack)]
        self.stack.clear()
        return remains

    # --- performing steps

    def _perform(self, frame: Frame, step: Any) -> None:
        self.at = step
        world = self.process.world
        world.history.notes.append((self.scheduler.now_ms, self.name, ">", step))
        perform = PERFORM.get(type(step))
        if perform is not None:
            perform(self, frame, step)
        elif isinstance(step, steps.Request):
            self._ask(frame, (step,), True)
        else:
            self.resume(True, TypeError(f"{step!r} is not a step"))
        world.faults.at_step(self)

    def _ask(self, frame: Frame, requests: tuple[steps.Request[Any], ...], single: bool) -> None:
        """Send the requests back to back; their answers are returned together."""
        if not requests:
            self.resume(False, ())
            return
        asked = Asked(self, frame, len(requests), single)
        self._abandon = asked.abandon
        for request in requests:
            asked.ask(request)
        if asked.missing:
            self._on_deadline = lambda: self._await_grace(frame, requests)
            self._await_grace(frame, requests)

    def _await_grace(self, frame: Frame, requests: tuple[steps.Request[Any], ...]) -> None:
        if frame.deadline_ms is not None:
            limit_ms = frame.deadline_ms + (0 if frame.cleaning else frame.grace_ms)
            if not self.process.session.ever_connected:
                limit_ms = max(limit_ms, frame.began_ms + FIRST_CONNECTION_MS)
            self._at(limit_ms, lambda: self._time_out(frame, DeadlineError(repr(requests[0]))))

    def _time_out(self, frame: Frame, error: Exception) -> None:
        """Raise ``error`` because the deadline has passed; the clean-up that follows gets a deadline
        of its own, once.
        """
        self._abandon_step()
        frame.clean_up_from(self.scheduler.now_ms, extend=False)
        self.resume(True, error)

    def _at(self, due_ms: int, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.process.clockwork.after(due_ms - self.scheduler.now_ms, lambda: self._ring(action))

    def _ring(self, action: Callable[[], None]) -> None:
        if self.stalls:
            self._overdue = action
        else:
            action()

    def _together(self, frame: Frame, step: steps.Pipeline) -> None:
        self._ask(frame, step.requests, False)

    def _wait(self, frame: Frame, step: steps.Wait) -> None:
        signals = step.signals
        if any(signal.fired for signal in signals):
            self.resume(False, steps.WakeReason.SIGNAL)
            return

        def leave() -> None:
            for signal in signals:
                signal.unsubscribe(wake)

        def finish(woke: steps.WakeReason) -> None:
            leave()
            self.resume(False, woke)

        def wake() -> None:
            finish(steps.WakeReason.SIGNAL)

        for signal in signals:
            signal.subscribe(wake)
        self._abandon = leave
        self._limit(frame, step, finish)

    def _limit(self, frame: Frame, step: steps.Wait, finish: Callable[[steps.WakeReason], None]) -> None:
        now_ms, woke = self.scheduler.now_ms, steps.WakeReason.LIMIT
        due_ms = None if step.limit is None else now_ms + max(0, round(step.limit * 1000))
        deadline_ms = frame.deadline_ms
        if deadline_ms is not None and step.allow_grace and not frame.cleaning:
            deadline_ms += frame.grace_ms
        if deadline_ms is not None and (due_ms is None or deadline_ms <= due_ms):
            due_ms, woke = deadline_ms, steps.WakeReason.DEADLINE
        self._on_deadline = lambda: finish(steps.WakeReason.DEADLINE)
        if due_ms is not None and due_ms <= now_ms:
            finish(woke)
        elif due_ms is not None:
            self._at(due_ms, lambda: finish(woke))

    def _connected(self, frame: Frame, step: steps.Connected) -> None:
        session = self.process.session
        if session.connected:
            self.resume(False, session.info)
            return
        if session.closed:
            self.resume(True, ClientClosedError("a connection"))
            return

        def resume(answer: steps.SessionInfo | Exception) -> None:
            if waiting:
                self.resume(isinstance(answer, Exception), answer)

        waiting = [True]
        self._abandon = waiting.clear
        session.waiting.append(resume)
        session.start()
        self._give_up_connecting(frame)

    def _give_up_connecting(self, frame: Frame) -> None:
        """Give up at the deadline. Once per call, a first connection gets its own time, at least
        FIRST_CONNECTION_MS.
        """
        began_ms, due_ms = frame.began_ms, frame.deadline_ms
        late: Exception = DeadlineError("the connection to the server")
        if not self.process.session.ever_connected:
            own_ms = self.process.connect_timeout_ms
            waits = [own_ms, None if due_ms is None else max(due_ms - began_ms, FIRST_CONNECTION_MS)]
            waited_ms = min((wait for wait in waits if wait is not None), default=None)
            due_ms = None if waited_ms is None else began_ms + waited_ms
            late = UnreachableError("the simulated server", (waited_ms or 0) / 1000, "connect_timeout")
        if due_ms is not None:
            self._on_deadline = lambda: self._time_out(frame, late)
            self._at(due_ms, self._on_deadline)

    def _proven(self, frame: Frame, step: steps.SessionAlive) -> None:
        self.resume(False, self.process.session.is_proven(step.session_id, step.fresh))

    def _hold(self, frame: Frame, step: steps.Hold) -> None:
        frame.created_nodes.holds.append(step)
        self.process.keeper.hold(step)
        self.resume(False, None)

    def _unhold(self, frame: Frame, step: steps.StopHolding) -> None:
        self.process.keeper.unhold(step.loss)
        self.resume(False, None)

    def _keep_results(self, frame: Frame, step: steps.KeepResults) -> None:
        frame.created_nodes.keep()
        frame.interrupted_at = None if frame.interrupted_at is None else 0
        self.resume(False, None)

    def _watch_node(self, frame: Frame, step: steps.WatchNode) -> None:
        self.process.keeper.watch(step)
        self.resume(False, None)

    def _report_loss(self, frame: Frame, step: steps.ReportLoss) -> None:
        self.process.keeper.holds.lose_path(step.path)
        self.resume(False, None)

    def _guid(self, frame: Frame, step: steps.Guid) -> None:
        self.resume(False, self.process.world.guid())

    def _background(self, frame: Frame, step: steps.Background) -> None:
        self.process.background(step.coroutine())
        self.resume(False, None)

    def _at_close(self, frame: Frame, step: steps.AtClose) -> None:
        self.process.at_close[object() if step.key is None else step.key] = step.protocol
        self.resume(False, None)

    def _call(self, frame: Frame, step: steps.Call) -> None:
        """Call a user function. If it returns a coroutine, it calls public objects: drive that to its
        end.
        """
        try:
            value = step.function()
        except Exception as error:
            self.resume(True, error)
            return
        if iscoroutine(value):
            self._push(value, None)
            value = None
        self.resume(False, value)


PERFORM: dict[type, Callable[[Task, Frame, Any], None]] = {
    steps.Pipeline: Task._together,
    steps.Wait: Task._wait,
    steps.Connected: Task._connected,
    steps.SessionAlive: Task._proven,
    steps.Hold: Task._hold,
    steps.StopHolding: Task._unhold,
    steps.KeepResults: Task._keep_results,
    steps.ReportLoss: Task._report_loss,
    steps.WatchNode: Task._watch_node,
    steps.Guid: Task._guid,
    steps.Background: Task._background,
    steps.AtClose: Task._at_close,
    steps.Call: Task._call,
}
