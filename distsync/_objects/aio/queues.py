"""Queue, LifoQueue and PriorityQueue of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from queue import Full
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from distsync._client.contender_info import describe
from distsync._objects import queues
from distsync._objects.aio.base import AsyncObject
from distsync.errors import ShutDown

if TYPE_CHECKING:
    from distsync._client.client import Client

Item = TypeVar("Item")

if hasattr(asyncio, "QueueShutDown"):
    QueueShutDown: type[Exception] = asyncio.QueueShutDown
else:

    class _QueueShutDown(Exception):
        """Raised by put and get of a queue that was shut down: as ``asyncio.QueueShutDown`` of Python 3.13."""

    _QueueShutDown.__name__ = _QueueShutDown.__qualname__ = "QueueShutDown"
    _QueueShutDown.__module__ = "distsync.asyncio"
    QueueShutDown = _QueueShutDown


class Queue(AsyncObject, Generic[Item]):
    """First in, first out; as deep as the ensemble's disk. What was put stays until it is got, whoever dies.

    Units: ``maxsize`` in items; 0 or less: no bound. Items pickle (or are JSON, as the client says).
    Cost: put 1 request (3, in 1 round trip, with a bound); get 2, in 1 round trip, if there are items.
    Fair: items in the order of their puts; who waits longest gets first, after those who come anew in that moment.
    Source: recipes.txt, Queues; ``asyncio.Queue``.

    Znodes: as ``distsync.queue.Queue``.

    >>> async def main():
    ...     jobs = Queue(name="jobs")
    ...     await jobs.put("first")
    ...     print(await jobs.get())
    >>> asyncio.run(main())
    first
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = queues.Queue
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self,
        maxsize: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._init_sync(math.ceil(maxsize), name=name, client=client, path=path)

    @property
    def maxsize(self) -> int:
        """The bound that this object's puts and gets keep."""
        return int(self._sync.maxsize)

    async def put(self, item: Item) -> None:
        """``item`` is in the queue.

        Raises: QueueShutDown; PayloadError for an item that does not pickle or is too large.
        On loss: of the session: it goes on.
        On cancel: the item is in the queue, or not.
        Cost: 1 request; with a bound 3, in 1 round trip. Without a bound, what other tasks and threads of this process
            put while one is under way goes together: 1 request for up to 100.
        Source: recipes.txt, Queues.
        """
        await self._ready()
        try:
            await self._await(self._putting(item, True))
        except ShutDown:
            raise QueueShutDown from None

    async def get(self) -> Item:
        """The next item, which is in the queue no more.

        Returns: the item.
        Raises: QueueShutDown if it is empty and was shut down; PayloadRefusedError for an item that is unsigned,
            altered or unreadable, and is gone now.
        On loss: of the session: it goes on.
        On cancel: the item that was on its way goes back to its place.
        Cost: 2 requests, 1 round trip, if there are items (after the first get).
        Fair: who waits longest gets first, after those who come anew in that moment.
        Source: recipes.txt, Queues.
        """
        await self._ready()
        try:
            return self._decoded(await self._await(self._sync._core.get(describe(), True, self.maxsize)))
        except ShutDown:
            raise QueueShutDown from None

    def put_nowait(self, item: Item) -> None:
        """``item`` is in the queue.

        Raises: QueueFull if there is no room; QueueShutDown; PayloadError.
        Cost: 1 request; with a bound 6, in 2 round trips. The loop waits for them: better is ``await put(item)``.
        """
        try:
            self._run_blocking(self._putting(item, False), 0.0)
        except Full:
            raise asyncio.QueueFull from None
        except ShutDown:
            raise QueueShutDown from None

    def get_nowait(self) -> Item:
        """The next item.

        Raises: QueueEmpty if there is none; QueueShutDown if it is empty and was shut down.
        Cost: 2 requests, 1 round trip, for which the loop waits: better is ``await get()``.
        """
        try:
            data = self._run_blocking(self._sync._core.get(describe(), False, self.maxsize), 0.0)
        except ShutDown:
            raise QueueShutDown from None
        if data is None:
            raise asyncio.QueueEmpty
        return self._decoded(data)

    def _putting(self, item: Item, blocking: bool) -> Coroutine[Any, Any, None]:
        twin = self._sync
        data = twin.client.codec.encode(item, twin.path)
        putting: Coroutine[Any, Any, None] = twin._core.put(data, blocking, twin._key(item), self.maxsize, blocking)
        return putting

    def _decoded(self, data: bytes) -> Item:
        item: Item = self.client.codec.decode(data, self.path)
        return item

    def qsize(self) -> int:
        """How many items are in the queue about now. Cost: 3 requests, 1 round trip, for which the loop waits."""
        size = int(self._run_blocking(self._sync._core.znodes.size()))
        return min(size, self.maxsize) if self.maxsize > 0 else size

    def empty(self) -> bool:
        """Whether there is no item about now. Cost: as qsize."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether a put would have to wait about now. Cost: as qsize; none without a bound."""
        return self.maxsize > 0 and self.qsize() >= self.maxsize

    def task_done(self) -> None:
        """One item that was got is done.

        Raises: ValueError if all that were ever put are done already.
        Cost: 1 request if this process got as many items as it calls this, and the loop does not wait for it; else 4,
            for which it does.
        """
        core = self._sync._core
        if core.outstanding > 0:
            self._run_in_background(core.task_done())
        elif not self._run_blocking(core.task_done()):
            raise ValueError("task_done() called too many times")

    async def join(self) -> None:
        """Every item that was put is done.

        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 3 requests, 1 watch; as many for each task_done while it waits.
        """
        await self._ready()
        await self._await(self._sync._core.join())

    def shutdown(self, immediate: bool = False) -> None:
        """No item can be put any more; getters get what is left, with ``immediate`` nothing, and then QueueShutDown.

        Cost: 1 request; with ``immediate`` 5, and 2 for each item that is thrown away. The loop waits for them, with
            ``immediate`` as long as it takes, through an outage too.
        Source: ``asyncio.Queue.shutdown`` of Python 3.13, here on every Python.
        """
        client, protocol = self.client, self._sync._core.shutdown(immediate, self.maxsize)
        client.run(protocol, None if immediate else client.settings.session_timeout, self._sync)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} maxsize={self.maxsize!r} name={self.name!r}>"

    def __str__(self) -> str:
        return f"<{type(self).__name__} maxsize={self.maxsize!r} name={self.name!r}>"


class LifoQueue(Queue[Item]):
    """Last in, first out.

    Units, Fair, Znodes: as ``distsync.queue.LifoQueue``.
    Cost: put 1 request (3 with a bound); get 3.
    Source: recipes.txt, Queues; ``asyncio.LifoQueue``.

    >>> async def main():
    ...     pile = LifoQueue(name="pile")
    ...     for number in (1, 2):
    ...         await pile.put(number)
    ...     print(await pile.get())
    >>> asyncio.run(main())
    2
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = queues.LifoQueue


class PriorityQueue(Queue[Item]):
    """The least item first; of equal ones the one that was put first.

    Units, Raises, Fair, Znodes: as ``distsync.queue.PriorityQueue``.
    Cost: put 1 request (3 with a bound); get 3.
    Source: recipes.txt, Priority Queues; ``asyncio.PriorityQueue``.

    >>> async def main():
    ...     tasks = PriorityQueue(name="tasks")
    ...     for task in (2, "later"), (1, "sooner"):
    ...         await tasks.put(task)
    ...     print(await tasks.get())
    >>> asyncio.run(main())
    (1, 'sooner')
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = queues.PriorityQueue
