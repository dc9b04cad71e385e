"""What was asked and is to be answered: one PendingReply per request on the wire, one Batch per step.

Rules for this file: pure. kazoo calls ``set`` or ``set_exception`` in its connection thread, so nothing here waits
or takes a lock; the first answer counts. A thread that reads the answers to its own batch may be interrupted in any
line of this file: nobody waits for that batch then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distsync._protocols.steps import Request


class Outcome(NamedTuple):
    """How something ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None


class PendingReply:
    """The answer to one request, when it comes. Stands in for kazoo's AsyncResult, without its thread."""

    __slots__ = ("request", "outcome", "sent_at", "session_id", "_answered", "_on_response")

    def __init__(self, request: Request[Any], answered: Callable[[], None]) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.sent_at = 0.0
        self.session_id: int | None = None
        self._answered = answered
        self._on_response: Callable[[PendingReply, Any, BaseException | None], None] | None = None

    def on_response(self, callback: Callable[[PendingReply, Any, BaseException | None], None]) -> None:
        """Who is to make an outcome of kazoo's response."""
        self._on_response = callback

    def set(self, response: Any = None) -> None:
        if self._on_response:
            self._on_response(self, response, None)

    def set_exception(self, error: BaseException) -> None:
        if self._on_response:
            self._on_response(self, None, error)

    def settle(self, outcome: Outcome) -> None:
        """This is the outcome, unless there is one."""
        if self.outcome is None:
            self.outcome = outcome
            # Told once, and the batch let go: what was asked is freed at once, its watch with it.
            answered, self._answered = self._answered, _already_answered
            answered()


def _already_answered() -> None:
    """Who waits for the reply knows it already."""


class Batch:
    """Requests that were sent together; ``wake`` is called once all are answered."""

    __slots__ = ("replies", "_open", "_wake")

    def __init__(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> None:
        self._open = [None] * len(requests)
        self._wake = wake
        self.replies = [PendingReply(request, self._one_answered) for request in requests]

    def _one_answered(self) -> None:
        # list.pop is one operation, whichever threads the answers come in.
        if self._open:
            self._open.pop()
        if not self._open:
            self._wake()

    @property
    def outcomes(self) -> list[Outcome] | None:
        """None until all are answered."""
        outcomes = [reply.outcome for reply in self.replies if reply.outcome is not None]
        return outcomes if len(outcomes) == len(self.replies) else None
