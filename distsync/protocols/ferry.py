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

from distsync.errors import ClientClosedError, DistsyncError, OutcomeUnknownError, ShutDown
from distsync.protocols.commit import Unwanted, Wanted, always
from distsync.session.steps import Background, Protocol, Signal, Wait, Woke

#: Nobody waits longer for one who went alone: his thread may be in a signal handler, which waits for others.
PATIENCE_S = 0.25

Load = TypeVar("Load")
Result = TypeVar("Result")


class Passenger(Generic[Load, Result]):
    """A call that waits for its load to be carried; ``gone`` once it waits no more."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.gone = False
        self.landed = Signal()
        self.error: BaseException | None = None
        self.result: Result | None = None

    def land(self, result: Result | None, error: BaseException | None = None) -> None:
        """That is what came of it, unless something has before."""
        if not self.landed.fired:
            self.result, self.error = result, error
            self.landed.fire()


class Ferry(Generic[Load, Result]):
    """What the threads of one process carry together. ``carry`` does it in one transaction, all or nothing, and says
    what came of each; it sends nothing any more once they are not all ``wanted``, and raises Unwanted. ``first`` says
    how many of these loads, the first ones, fit into one."""

    def __init__(
        self,
        carry: Callable[[Sequence[Load], Wanted], Protocol[Sequence[Result]]],
        first: Callable[[Sequence[Load]], int],
    ) -> None:
        self._carry = carry
        self._first = first
        self._crossing: Signal | None = None
        self._called = False
        self._carrying = False
        self.waiting: deque[Passenger[Load, Result]] = deque()

    @property
    def idle(self) -> bool:
        """Nobody is on the way or waits."""
        return self._crossing is None and not self._called and not self.waiting

    async def send(self, load: Load) -> Result:
        """``load`` was carried: what came of it. Raises what carrying it alone would; DeadlineError never, but
        OutcomeUnknownError if the deadline comes when it has left, so not for who has one."""
        if self._crossing is None and not self._called:
            return await self._alone(load)
        passenger: Passenger[Load, Result] = Passenger(load)
        self.waiting.append(passenger)
        try:
            await self._call()
            woke = await Wait(passenger.landed)
        except BaseException:
            self._take_back(passenger)
            raise
        if woke is Woke.DEADLINE and not passenger.landed.fired:
            self._take_back(passenger)
            raise OutcomeUnknownError("a transaction", "the ferry", "deadline")
        if passenger.error is not None:
            raise passenger.error
        return passenger.result  # type: ignore[return-value]

    async def _alone(self, load: Load) -> Result:
        crossing = Signal()
        try:
            self._crossing = crossing
            (result,) = await self._carry((load,), always)
            return result
        finally:
            self._crossing = None
            crossing.fire()

    def _take_back(self, passenger: Passenger[Load, Result]) -> None:
        passenger.gone = True
        if passenger in self.waiting:
            self.waiting.remove(passenger)

    async def _call(self) -> None:
        """Somebody carries what waits. Whoever is interrupted here has called all the same: others rely on it."""
        if self._called:
            return
        self._called = True
        try:
            await Background(self._carry_all())
        except BaseException:
            await Background(self._carry_all())
            raise

    async def _carry_all(self) -> None:
        """In the background, once at a time: until nobody waits any more."""
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._crossing is not None and await Wait(self._crossing, limit=PATIENCE_S) is not Woke.LIMIT:
                pass
            while self.waiting:
                number = self._first([each.load for each in self.waiting])
                await self._carry_some([self.waiting.popleft() for _ in range(number)])
        finally:
            self._called = self._carrying = False
            while self.waiting:
                self.waiting.popleft().land(None, ClientClosedError("a call that waits"))

    async def _carry_some(self, passengers: Sequence[Passenger[Load, Result]]) -> None:
        left = [each for each in passengers if not each.gone]
        try:
            while left and not await self._carried(left):
                left = [each for each in left if not each.gone]
        finally:
            for each in passengers:
                each.land(None, ClientClosedError("a call that waits"))

    async def _carried(self, passengers: Sequence[Passenger[Load, Result]]) -> bool:
        """Whether they have landed. False: somebody has gone before anything was done for them."""
        try:
            loads = [each.load for each in passengers]
            results = await self._carry(loads, lambda: not any(each.gone for each in passengers))
            for each, result in zip(passengers, results, strict=True):
                each.land(result)
        except Unwanted:
            return False
        except (DistsyncError, ShutDown) as error:
            if len(passengers) == 1 or isinstance(error, (OutcomeUnknownError, ClientClosedError)):
                for each in passengers:
                    each.land(None, type(error)(*error.args))
            else:
                for each in passengers:
                    await self._carry_some([each])
        return True
