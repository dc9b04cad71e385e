"""Calls of a task: each has a deadline, a record of the znodes that it created, and requests in
progress.

Deadlines and the record are those of distsync._client, which the blocking driver uses as well. The
answers to one Pipeline arrive in the order of its requests, because a session answers in order.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distsync._client.deadlines import CLEAN_UP_S, grace_of
from distsync._client.driver.created_nodes import CreatedNodes
from distsync._protocols import steps

if TYPE_CHECKING:
    from simulation.engine.session import Submission
    from simulation.engine.task import Task

#: Steps that are recorded in ``created_nodes``.
TRACKED = frozenset({steps.Create, steps.Multi, steps.Delete})

CLEAN_UP_MS = round(CLEAN_UP_S * 1000)
#: Minimum time for a first connection, whatever the timeout of the call.
FIRST_CONNECTION_MS = 1_000

#: Time within which any thread that can run has run, however the schedule chooses.
TURN_MS = 200


@dataclass(frozen=True)
class Run(steps.Step[Any]):
    """A call of a public object: drive ``protocol`` with a deadline of its own. For bodies of tasks,
    not for protocols.
    """

    protocol: Coroutine[Any, Any, Any] = field(repr=False)
    timeout: float | None = None


class Frame:
    """A call: its coroutine, its deadline, the ephemeral znodes that it created, and its holds."""

    __slots__ = (
        "began_ms", "cleaning", "coroutine", "deadline_ms", "due_ms", "excused_ms", "grace_ms", "interrupted_at",
        "created_nodes", "most_late_ms",
    )  # fmt: skip

    def __init__(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None, now_ms: int, first: bool) -> None:
        self.coroutine = coroutine
        self.deadline_ms = None if timeout is None else now_ms + max(0, round(timeout * 1000))
        self.due_ms = self.deadline_ms
        """When the call has to end; changes after an interrupt."""
        self.began_ms = now_ms
        self.excused_ms = 0
        """For how long its thread got no CPU time, or was in a user function."""
        self.grace_ms = round(grace_of(timeout) * 1000)
        self.most_late_ms = max(self.grace_ms, FIRST_CONNECTION_MS if first else 0) + TURN_MS
        self.created_nodes = CreatedNodes()
        self.cleaning = False
        self.interrupted_at: int | None = None

    def late_ms(self, now_ms: int) -> int | None:
        """Return by how much the call, which has ended, exceeds what is allowed, or None."""
        if self.due_ms is None:
            return None
        late_ms = now_ms - self.due_ms - self.excused_ms
        return late_ms if late_ms > self.most_late_ms else None

    def clean_up_from(self, now_ms: int, extend: bool) -> None:
        """Give the call time to clean up, after an exception was thrown into it; more than once only
        with ``extend``.
        """
        if self.interrupted_at is None:
            self.interrupted_at = len(self.created_nodes.holds)
        if extend or not self.cleaning:
            self.cleaning = True
            self.deadline_ms = now_ms + CLEAN_UP_MS

    def outliving(self, error: BaseException) -> list[steps.Hold]:
        """Return the holds that outlive the call, which ended with ``error``.

        After an interrupt, these are the ones taken during clean-up, as by a Condition that
        re-acquires its lock.
        """
        if self.interrupted_at is not None:
            return self.created_nodes.holds[self.interrupted_at :]
        return self.created_nodes.holds if isinstance(error, Exception) else []


class Asked:
    """Requests in progress whose answers are returned together."""

    __slots__ = ("answers", "frame", "missing", "session", "single", "submissions", "task")

    def __init__(self, task: Task, frame: Frame, number: int, single: bool) -> None:
        self.task = task
        self.frame = frame
        self.session = task.process.session
        self.single = single
        self.missing = number
        self.answers: list[Any] = []
        self.submissions: list[Submission] = []

    def ask(self, request: steps.Request[Any]) -> None:
        if type(request) in TRACKED:
            self.frame.created_nodes.record_request(request)
        self.submissions.append(self.session.submit(request, self._answered))

    def abandon(self) -> None:
        """Discard the answers."""
        self.missing = 0
        self.session.withdraw(self.submissions)

    def _answered(self, submission: Submission, answer: Any) -> None:
        if not self.missing:
            return
        self.answers.append(answer)
        self.missing -= 1
        if type(submission.step) in TRACKED:
            error = answer if isinstance(answer, BaseException) else None
            self.frame.created_nodes.record_reply(submission.step, None if error else answer, error)
        if not self.missing:
            failed = self.single and isinstance(answer, BaseException)
            self.task.resume(failed, answer if self.single else tuple(self.answers))
