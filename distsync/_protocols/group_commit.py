"""Group commit: calls that arrive during a transaction share the next one.

A call that arrives while nothing is in flight commits immediately, in its own thread. The calls
that arrive in the meantime are committed together by a protocol in the background, so that an
interrupt or a deadline of one call does not affect the others. A call that ends before its payload
was sent withdraws it. A payload that was sent is not sent again.

If a transaction fails, each of its payloads is committed separately, to find out which calls fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from distsync._protocols.receipts import Abandoned, StillNeeded, always
from distsync._protocols.steps import Background, Protocol, Signal, Wait, WakeReason
from distsync.errors import ClientClosedError, DistsyncError, OutcomeUnknownError, ShutDown

#: Maximum wait in seconds for a call that commits in its own thread. That thread may be in a signal
#: handler that waits for one of the other calls.
PATIENCE_S = 0.25

Payload = TypeVar("Payload")
Result = TypeVar("Result")


class PendingCall(Generic[Payload, Result]):
    """A call that waits for its payload to be committed."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.cancelled = False
        self.completed = Signal()
        self.error: BaseException | None = None
        self.result: Result | None = None

    def complete(self, result: Result | None, error: BaseException | None = None) -> None:
        """Set the outcome, unless it is set already."""
        if not self.completed.fired:
            self.result, self.error = result, error
            self.completed.fire()


class GroupCommitter(Generic[Payload, Result]):
    """Group commit for the threads of one process.

    Args:
        commit_batch: ``commit_batch(payloads, still_needed)`` commits the payloads in one
            transaction and returns a result for each. It raises Abandoned instead of sending
            anything once ``still_needed()`` is False.
        batch_size: Returns how many of the payloads, from the first on, fit into one transaction.
    """

    def __init__(
        self,
        commit_batch: Callable[[Sequence[Payload], StillNeeded], Protocol[Sequence[Result]]],
        batch_size: Callable[[Sequence[Payload]], int],
    ) -> None:
        self._commit_batch = commit_batch
        self._batch_size = batch_size
        self._in_flight: Signal | None = None
        self._is_scheduled = False
        self._is_committing = False
        self.waiting: deque[PendingCall[Payload, Result]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no transaction is in flight and no call waits."""
        return self._in_flight is None and not self._is_scheduled and not self.waiting

    async def send(self, payload: Payload) -> Result:
        """Commit ``payload`` and return its result, or raise the error of its commit.

        If the deadline passes, raise OutcomeUnknownError rather than DeadlineError, even if the
        payload was withdrawn, so a caller with a deadline should not use this.
        """
        if self._in_flight is None and not self._is_scheduled:
            return await self._commit_alone(payload)
        call: PendingCall[Payload, Result] = PendingCall(payload)
        self.waiting.append(call)
        try:
            await self._schedule()
            woke = await Wait(call.completed)
        except BaseException:
            self._cancel(call)
            raise
        if woke is WakeReason.DEADLINE and not call.completed.fired:
            self._cancel(call)
            raise OutcomeUnknownError("a transaction", "the group commit", "deadline")
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]

    async def _commit_alone(self, payload: Payload) -> Result:
        in_flight = Signal()
        try:
            self._in_flight = in_flight
            (result,) = await self._commit_batch((payload,), always)
            return result
        finally:
            self._in_flight = None
            in_flight.fire()

    def _cancel(self, call: PendingCall[Payload, Result]) -> None:
        call.cancelled = True
        if call in self.waiting:
            self.waiting.remove(call)

    async def _schedule(self) -> None:
        """Start the background protocol, also if interrupted here: other calls rely on it."""
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            await Background(self._commit_all())
        except BaseException:
            await Background(self._commit_all())
            raise

    async def _commit_all(self) -> None:
        """Commit until no call waits. Runs in the background, one at a time."""
        if self._is_committing:
            return
        self._is_committing = True
        try:
            while self._in_flight is not None and await Wait(self._in_flight, limit=PATIENCE_S) is not WakeReason.LIMIT:
                pass
            while self.waiting:
                number = self._batch_size([each.payload for each in self.waiting])
                await self._commit_some([self.waiting.popleft() for _ in range(number)])
        finally:
            self._is_scheduled = self._is_committing = False
            while self.waiting:
                self.waiting.popleft().complete(None, ClientClosedError("a waiting call"))

    async def _commit_some(self, calls: Sequence[PendingCall[Payload, Result]]) -> None:
        pending = [each for each in calls if not each.cancelled]
        try:
            while pending and not await self._is_committed(pending):
                pending = [each for each in pending if not each.cancelled]
        finally:
            for each in calls:
                each.complete(None, ClientClosedError("a waiting call"))

    async def _is_committed(self, calls: Sequence[PendingCall[Payload, Result]]) -> bool:
        """Commit the payloads of ``calls``.

        Return False if one of them ended before anything was sent.
        """
        try:
            payloads = [each.payload for each in calls]
            results = await self._commit_batch(payloads, lambda: not any(each.cancelled for each in calls))
            for each, result in zip(calls, results, strict=True):
                each.complete(result)
        except Abandoned:
            return False
        except (DistsyncError, ShutDown) as error:
            if len(calls) == 1 or isinstance(error, (OutcomeUnknownError, ClientClosedError)):
                for each in calls:
                    each.complete(None, type(error)(*error.args))
            else:
                for each in calls:
                    await self._commit_some([each])
        return True
