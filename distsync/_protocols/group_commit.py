"""What piles up behind one transaction in flight goes as the next one: the calls of a process's threads, together.

Source: group commit, as databases have it; recipes.txt, "Queues" are what it is for.

Rules for this file: pure; it does not know what is carried, nor how many of it fit into a transaction.

Who comes while nobody is on the way goes at once, in his own call. Who comes meanwhile waits; all who wait are carried
by a protocol in the background, so that no Ctrl-C or deadline of one of them concerns another: whoever gives up before
his load has left takes it back; what has left arrives, or not, as if he had gone alone, and is not sent again. Whom a
transaction fails for is found out by carrying each load of it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from distsync._protocols.receipts import Abandoned, StillNeeded, always
from distsync._protocols.steps import Background, Protocol, Signal, Wait, WakeReason
from distsync.errors import ClientClosedError, DistsyncError, OutcomeUnknownError, ShutDown

#: Nobody waits longer for one who went alone: his thread may be in a signal handler, which waits for others.
PATIENCE_S = 0.25

Payload = TypeVar("Payload")
Result = TypeVar("Result")


class PendingCall(Generic[Payload, Result]):
    """A call that waits for its load to be carried; ``cancelled`` once it waits no more."""

    def __init__(self, load: Payload) -> None:
        self.load = load
        self.cancelled = False
        self.completed = Signal()
        self.error: BaseException | None = None
        self.result: Result | None = None

    def complete(self, result: Result | None, error: BaseException | None = None) -> None:
        """That is what came of it, unless something has before."""
        if not self.completed.fired:
            self.result, self.error = result, error
            self.completed.fire()


class GroupCommitter(Generic[Payload, Result]):
    """What the threads of one process carry together. ``commit_batch`` does it in one transaction, all or nothing, and
    says what came of each; it sends nothing any more once they are not all ``still_needed``, and raises Abandoned.
    ``batch_size`` says how many of these loads, the first ones, fit into one."""

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
        """Nobody is on the way or waits."""
        return self._in_flight is None and not self._is_scheduled and not self.waiting

    async def send(self, load: Payload) -> Result:
        """``load`` was carried: what came of it. Raises what carrying it alone would; DeadlineError never, but
        OutcomeUnknownError if the deadline comes when it has left, so not for who has one."""
        if self._in_flight is None and not self._is_scheduled:
            return await self._alone(load)
        call: PendingCall[Payload, Result] = PendingCall(load)
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

    async def _alone(self, load: Payload) -> Result:
        crossing = Signal()
        try:
            self._in_flight = crossing
            (result,) = await self._commit_batch((load,), always)
            return result
        finally:
            self._in_flight = None
            crossing.fire()

    def _cancel(self, call: PendingCall[Payload, Result]) -> None:
        call.cancelled = True
        if call in self.waiting:
            self.waiting.remove(call)

    async def _schedule(self) -> None:
        """Somebody carries what waits. Whoever is interrupted here has called all the same: others rely on it."""
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            await Background(self._commit_all())
        except BaseException:
            await Background(self._commit_all())
            raise

    async def _commit_all(self) -> None:
        """In the background, once at a time: until nobody waits any more."""
        if self._is_committing:
            return
        self._is_committing = True
        try:
            while self._in_flight is not None and await Wait(self._in_flight, limit=PATIENCE_S) is not WakeReason.LIMIT:
                pass
            while self.waiting:
                number = self._batch_size([each.load for each in self.waiting])
                await self._commit_some([self.waiting.popleft() for _ in range(number)])
        finally:
            self._is_scheduled = self._is_committing = False
            while self.waiting:
                self.waiting.popleft().complete(None, ClientClosedError("a call that waits"))

    async def _commit_some(self, calls: Sequence[PendingCall[Payload, Result]]) -> None:
        pending = [each for each in calls if not each.cancelled]
        try:
            while pending and not await self._is_committed(pending):
                pending = [each for each in pending if not each.cancelled]
        finally:
            for each in calls:
                each.complete(None, ClientClosedError("a call that waits"))

    async def _is_committed(self, calls: Sequence[PendingCall[Payload, Result]]) -> bool:
        """Whether they have landed. False: somebody has gone before anything was done for them."""
        try:
            loads = [each.load for each in calls]
            results = await self._commit_batch(loads, lambda: not any(each.cancelled for each in calls))
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
