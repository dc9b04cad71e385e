"""Start order of the tasks of one event loop that call the same object.

Requests that are sent in order are executed in order, so that tasks enqueue in the order of their
calls. One case breaks this: if the first task has to create the parent znodes, a later task finds
them and overtakes it. Tasks therefore start one at a time, until one task of this loop has found
or created all that the object needs.

Each object here belongs to one loop, and is used in the thread of that loop only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any


class FifoLock:
    """A lock that is granted in FIFO order."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Acquire the lock."""
        if not self._held:
            self._held = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()
            raise
        finally:
            self._waiting.remove(turn)

    @property
    def is_free(self) -> bool:
        """Whether `acquire` does not wait."""
        return not self._held

    def release(self) -> None:
        """Release the lock, granting it to the next waiter."""
        turn = next((turn for turn in self._waiting if not turn.done()), None)
        if turn is None:
            self._held = False
        else:
            turn.set_result(None)


class ObjectQueue(FifoLock):
    """The queue of calls on one object; ``ready`` once the znodes that the object needs exist."""

    ready = False


class LoopOrder:
    """The start order of all tasks of one loop."""

    def __init__(self) -> None:
        #: Held while a task starts a client.
        self.starting = FifoLock()
        #: By the shared state of the object, for as long as that exists.
        self.queues: weakref.WeakKeyDictionary[Any, ObjectQueue] = weakref.WeakKeyDictionary()


_orders: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopOrder] = weakref.WeakKeyDictionary()


def orders() -> LoopOrder:
    """Return the LoopOrder of the running loop."""
    loop = asyncio.get_running_loop()
    found = _orders.get(loop)
    return _orders.setdefault(loop, LoopOrder()) if found is None else found


class QueueTurn:
    """A call's turn in an ObjectQueue, which ends once no other call can overtake it."""

    def __init__(self, queue: ObjectQueue) -> None:
        self._queue = queue
        self._entered = False

    async def enter(self, timeout: float | None = None) -> None:
        """Wait for the turn, at most ``timeout`` seconds. Raises asyncio.TimeoutError."""
        if timeout is None or self._queue.is_free:
            await self._queue.acquire()
        else:
            await asyncio.wait_for(self._queue.acquire(), timeout)
        self._entered = True

    def leave_if_ready(self, ready: bool) -> None:
        """End the turn if the object is ``ready``, or was made so by an earlier call."""
        self._queue.ready = self._queue.ready or ready
        if self._queue.ready:
            self.leave()

    def leave(self) -> None:
        """End the turn. Idempotent."""
        if self._entered:
            self._entered = False
            self._queue.release()
