"""The tasks of one loop begin in the order in which they come, also with what has still to be made.

Rules for this file: no znode and no client; each object here belongs to one loop, and only its thread touches it.

What is sent in order is answered in order, so tasks stand in a line as they came. Not so where the first of them finds
that the znodes above it have to be made: who comes a moment later finds them there, and would overtake it. So with an
object that nobody of this loop has come through to, they begin one at a time.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any


class FifoLock:
    """One at a time, first come, first served."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """It is our turn, until we leave."""
        if not self._taken:
            self._taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        finally:
            self._waiting.remove(turn)

    def leave(self) -> None:
        """It is the next one's turn."""
        turn = next((turn for turn in self._waiting if not turn.done()), None)
        if turn is None:
            self._taken = False
        else:
            turn.set_result(None)


class ObjectQueue(FifoLock):
    """What the calls about one object go through; ``known`` once one of them found all that it needed."""

    known = False


class LoopOrder:
    """What the tasks of one loop have to know of each other."""

    def __init__(self) -> None:
        #: Of those that start a client.
        self.starting = FifoLock()
        #: By what is known in this process about an object, and as long as it is.
        self.doors: weakref.WeakKeyDictionary[Any, ObjectQueue] = weakref.WeakKeyDictionary()


_orders: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopOrder] = weakref.WeakKeyDictionary()


def orders() -> LoopOrder:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _orders.get(loop)
    return _orders.setdefault(loop, LoopOrder()) if found is None else found


class QueueTurn:
    """A call's turn at its door, which it leaves as soon as nobody can overtake it any more."""

    def __init__(self, queue: ObjectQueue) -> None:
        self._queue = queue
        self._ours = False

    async def come(self) -> None:
        await self._queue.enter()
        self._ours = True

    def go(self, known: bool) -> None:
        """``known``: the call has what it needs, or waits for an event."""
        self._queue.known = self._queue.known or known
        if self._queue.known:
            self.leave()

    def leave(self) -> None:
        """The call is over, if not before."""
        if self._ours:
            self._ours = False
            self._queue.leave()
