"""Steps in progress: their outcome so far, and when to stop waiting for it. Nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from distsync._client import deadlines
from distsync._client.driver.created_nodes import CreatedNodes
from distsync._client.driver.driver_context import DriverContext
from distsync._client.transport.reply_futures import Outcome, ReplyFuture
from distsync._client.wait_log import WaitProgress
from distsync._protocols.steps import Call, Listing, Request, Signal, Step, Wait, WakeReason
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError


class RunState(Protocol):
    """The part of ProtocolRun that pending steps use."""

    context: DriverContext
    created_nodes: CreatedNodes
    cleaning: bool
    deadline: float | None
    grace: float
    progress: WaitProgress | None
    wake: Callable[[], object]


class Pending:
    """A step in progress. ``limit`` is when it expires; None for never."""

    limit: float | None = None

    replies: Sequence[ReplyFuture] = ()
    """The replies that it waits for."""

    known: Outcome | None = None
    """The outcome of a step that does not wait."""

    def outcome(self) -> Outcome | None:
        """Return the outcome, or None if there is none yet."""
        raise NotImplementedError

    def expire(self) -> Outcome:
        """Drop the step because ``limit`` has passed, and return its outcome."""
        raise NotImplementedError

    def drop(self) -> None:
        """Stop waiting. A request that was sent may still be executed."""


class Resolved(Pending):
    """A step whose outcome is already known."""

    def __init__(self, value: Any = None) -> None:
        self.known = Outcome(value)

    def outcome(self) -> Outcome | None:
        return self.known


class RequestInFlight(Pending):
    """Requests whose replies are outstanding."""

    def __init__(self, run: RunState, step: Step[Any], requests: Sequence[Request[Any]]) -> None:
        self._run, self._step = run, step
        for request in requests:
            run.created_nodes.record_request(request)
        self._batch = run.context.submit(requests, run.wake)
        self.replies = self._batch.replies

    @property
    def limit(self) -> float | None:  # type: ignore[override]
        run = self._run
        grace = 0.0 if run.cleaning else run.grace
        return None if run.deadline is None else run.deadline + grace

    def outcome(self) -> Outcome | None:
        outcomes = self._batch.outcomes
        if outcomes is None:
            return None
        for reply, outcome in zip(self._batch.replies, outcomes, strict=True):
            self._run.created_nodes.record_reply(reply.request, outcome.value, outcome.error)
            if self._run.progress is not None and type(outcome.value) is Listing:
                self._run.progress.listed(reply.request.path, outcome.value)
        if isinstance(self._step, Request):
            return outcomes[0]
        return Outcome(tuple(outcome.error or outcome.value for outcome in outcomes))

    def expire(self) -> Outcome:
        self.drop()
        unanswered = [reply.request for reply in self._batch.replies if reply.outcome is None]
        outcome = deadline_outcome(
            ", ".join(f"{type(request).__name__} {request.path}" for request in unanswered) or "the reply"
        )
        if not any(reply.sent_at for reply in self._batch.replies):
            outcome.error.sent = False  # type: ignore[union-attr]
        return outcome

    def drop(self) -> None:
        self._run.context.withdraw(self._batch)


class AwaitSignal(Pending):
    """A wait for any of several signals, or for a limit."""

    def __init__(self, run: RunState, step: Wait) -> None:
        own_limit = None if step.limit is None else run.context.now() + step.limit
        deadline = run.deadline
        if deadline is not None and step.allow_grace and not run.cleaning:
            deadline += run.grace
        self.limit = deadlines.earliest(own_limit, deadline)
        self._reason_at_limit = WakeReason.LIMIT if self.limit == own_limit else WakeReason.DEADLINE
        self._run, self._signals = run, step.signals
        for signal in self._signals:
            signal.subscribe(run.wake)

    def outcome(self) -> Outcome | None:
        for signal in self._signals:
            if signal.fired:
                self.drop()
                return Outcome(WakeReason.SIGNAL)
        return None

    def expire(self) -> Outcome:
        self.drop()
        return Outcome(self._reason_at_limit)

    def drop(self) -> None:
        for signal in self._signals:
            signal.unsubscribe(self._run.wake)


class AwaitConnection(Pending):
    """A wait for a connected session."""

    def __init__(self, run: RunState) -> None:
        self.limit = run.deadline
        self._run = run
        self._changes: Signal | None = None

    def outcome(self) -> Outcome | None:
        context = self._run.context
        try:
            session = context.session()
            if session is None and (self._changes is None or self._changes.fired):
                self.drop()
                self._changes = context.session_changes()
                self._changes.subscribe(self._run.wake)
                session = context.session()  # it may have been connected before the subscription
        except Exception as error:
            raise_if_from_handler(error)
            self.drop()
            return Outcome(error=error)
        if session is None:
            return None
        self.drop()
        return Outcome(session)

    def expire(self) -> Outcome:
        self.drop()
        return deadline_outcome("the connection to the server")

    def drop(self) -> None:
        if self._changes is not None:
            self._changes.unsubscribe(self._run.wake)


class UserCall(Pending):
    """A call of the user's function, which the driver executes."""

    def __init__(self, step: Call, began: float) -> None:
        self.began = began
        self._function = step.function
        self._outcome: Outcome | None = None
        self.is_notice = step.is_notice

    def skip(self) -> None:
        """Let the protocol continue before the function returns."""
        self._outcome = self._outcome or Outcome()

    def execute(self) -> None:
        try:
            self._outcome = Outcome(self._function())
        except BaseException as error:
            self._outcome = Outcome(error=error)

    def outcome(self) -> Outcome | None:
        return self._outcome


def deadline_outcome(awaited: str) -> Outcome:
    """Return the outcome of a step whose deadline has passed."""
    return Outcome(error=DeadlineError(awaited))
