"""Outstanding requests: one ReplyFuture for each request, one Batch for each step.

kazoo calls ``set`` or ``set_exception`` in its connection thread, so nothing here blocks. The first
outcome counts. A thread that reads the replies to its own batch may be interrupted at any line;
that batch then has no waiter any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distsync._protocols.steps import Request


class Outcome(NamedTuple):
    """A value, or an error."""

    value: Any = None
    error: BaseException | None = None


class ReplyFuture:
    """The reply to one request. Replaces kazoo's AsyncResult."""

    __slots__ = ("request", "outcome", "sent_at", "session_id", "_on_settled", "_on_response")

    def __init__(self, request: Request[Any], on_settled: Callable[[], None]) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.sent_at = 0.0
        self.session_id: int | None = None
        self._on_settled = on_settled
        self._on_response: Callable[[ReplyFuture, Any, BaseException | None], None] | None = None

    def on_response(self, callback: Callable[[ReplyFuture, Any, BaseException | None], None]) -> None:
        """Set the callback that turns kazoo's response into an outcome, and settles the reply."""
        self._on_response = callback

    def set(self, response: Any = None) -> None:
        if self._on_response:
            self._on_response(self, response, None)

    def set_exception(self, error: BaseException) -> None:
        if self._on_response:
            self._on_response(self, None, error)

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome, unless there is one."""
        if self.outcome is None:
            self.outcome = outcome
            # Called once, and dropped with its reference to the batch, so that the requests and
            # their watches are freed at once.
            on_settled, self._on_settled = self._on_settled, _already_settled
            on_settled()


def _already_settled() -> None:
    """Do nothing: the batch already counts this reply."""


class Batch:
    """Requests that were sent together; ``wake`` is called once all replies are settled."""

    __slots__ = ("replies", "_unsettled", "_wake")

    def __init__(self, requests: Sequence[Request[Any]], wake: Callable[[], object]) -> None:
        self._unsettled = [None] * len(requests)
        self._wake = wake
        self.replies = [ReplyFuture(request, self._on_reply_settled) for request in requests]

    def _on_reply_settled(self) -> None:
        # list.pop is atomic; replies may be settled in several threads.
        if self._unsettled:
            self._unsettled.pop()
        if not self._unsettled:
            self._wake()

    @property
    def outcomes(self) -> list[Outcome] | None:
        """The outcomes of all requests; None until all are settled."""
        outcomes = [reply.outcome for reply in self.replies if reply.outcome is not None]
        return outcomes if len(outcomes) == len(self.replies) else None
