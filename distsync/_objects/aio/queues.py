"""Queue, LifoQueue and PriorityQueue of ``distsync.asyncio``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from queue import Full
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from distsync._client.contender_info import describe
from distsync._objects import queues
from distsync._objects.aio.base import AsyncObject
from distsync._objects.validation import refuse_container_hooks
from distsync._protocols.queues.fifo import QueueCore
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ShutDown

if TYPE_CHECKING:
    from distsync._client.client import Client

Item = TypeVar("Item")

#: The methods with which a subclass of ``asyncio.Queue`` replaces the container of its items.
CONTAINER_HOOKS = ("_init", "_put", "_get")

if hasattr(asyncio, "QueueShutDown"):
    QueueShutDown: type[Exception] = asyncio.QueueShutDown
else:

    class _QueueShutDown(Exception):
        """The queue was shut down; like ``asyncio.QueueShutDown`` of Python 3.13."""

    _QueueShutDown.__name__ = _QueueShutDown.__qualname__ = "QueueShutDown"
    _QueueShutDown.__module__ = "distsync.asyncio"
    QueueShutDown = _QueueShutDown


class Queue(AsyncObject, Generic[Item]):
    """A FIFO queue shared by tasks, processes and hosts, like ``asyncio.Queue``.

    An item stays in the queue until a consumer gets it, even if its producer exits. An unbounded
    queue is limited only by the capacity of the ensemble. Items are encoded by the client's codec,
    pickle by default.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared: give
            the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.

    Note:
        `put` costs 1 request, or 3 in 1 round trip with a bound. `get` costs 2 in 1 round trip if
        items are waiting.

        Items leave the queue in the order in which they were put. Getters are served in FIFO order;
        a getter that arrives while an item is available may overtake them.
        If the first one does not take an item within a tenth of the session timeout, another gets it.

        A subclass that replaces the container of the items, with ``_init``, ``_put`` or ``_get``, raises
        TypeError.

        Znodes: those of ``distsync.queue.Queue``.

        Source: ZooKeeper recipes, "Queues"; ``asyncio.Queue``.

    Example:
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

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        refuse_container_hooks(cls, Queue, CONTAINER_HOOKS)

    def __init__(
        self,
        maxsize: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._init_sync(maxsize, name=name, client=client, path=path)

    @property
    def maxsize(self) -> int:
        """The bound of this object's puts and gets; 0 or less means unbounded."""
        return int(self._sync.maxsize)

    async def put(self, item: Item) -> None:
        """Put an item into the queue, waiting for room if the queue is bounded and full.

        Args:
            item: The item to put.

        Raises:
            QueueShutDown: The queue was shut down.
            PayloadError: The item cannot be encoded, or is too large.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be put. Only without a bound. Subclass of TimeoutError.

        Note:
            Costs 1 request, or 3 in 1 round trip with a bound. Without a bound, items that other
            tasks and threads of this process put while a request is in flight are sent together, up
            to 100 in 1 request.

            If the session ends, the call continues in the next one. If cancelled, the item may or
            may not be in the queue. If cancelled while it waits for room, it removes the item before
            the call ends, unless another client has got it or no server answers for a second.

            Source: ZooKeeper recipes, "Queues".
        """
        await self._ready()
        try:
            call = self._ask if self.maxsize <= 0 else self._await
            await call(self._putting(item, True))
        except ShutDown:
            raise QueueShutDown from None

    async def get(self) -> Item:
        """Remove and return the next item, waiting for one if the queue is empty.

        Returns:
            The item.

        Raises:
            QueueShutDown: The queue is empty and was shut down.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.

        Note:
            Costs 2 requests in 1 round trip if items are waiting. The first call costs more.

            Getters are served in FIFO order; a getter that arrives while an item is available may
            overtake them.

            If the session ends, the call continues in the next one. If cancelled, an item in
            transit is put back in its place, before the call ends unless no server answers for a
            second. A get at the same time, of another task or process, may get a later item.

            Source: ZooKeeper recipes, "Queues".
        """
        await self._ready()
        core: QueueCore = self._sync._core
        transit = queues.Transit()
        try:
            data = await self._await(core.get(describe(), True, self.maxsize, transit))
            return self._decoded(data, transit)
        except ShutDown:
            raise QueueShutDown from None
        except BaseException as error:
            self._sync._put_back_if_interrupted(core, transit, error)
            raise

    def put_nowait(self, item: Item) -> None:
        """Put an item without waiting for room.

        Args:
            item: The item to put.

        Raises:
            QueueFull: There is no room.
            QueueShutDown: The queue was shut down.
            PayloadError: The item cannot be encoded, or is too large.

        Note:
            Costs 1 request, or 6 in 2 round trips with a bound. The event loop waits for them, so
            prefer ``await put(item)``.
        """
        try:
            self._run_blocking(self._putting(item, False), 0.0)
        except Full as error:
            raise_if_from_handler(error)
            self._sync._late()
            raise asyncio.QueueFull from None
        except ShutDown:
            raise QueueShutDown from None

    def get_nowait(self) -> Item:
        """Remove and return the next item without waiting for one.

        Returns:
            The item.

        Raises:
            QueueEmpty: No item is available.
            QueueShutDown: The queue is empty and was shut down.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.

        Note:
            Costs 2 requests in 1 round trip. The event loop waits for them, so prefer ``await
            get()``.
        """
        core: QueueCore = self._sync._core
        transit = queues.Transit()
        try:
            data = self._run_blocking(core.get(describe(), False, self.maxsize, transit), 0.0)
            if data is None:
                self._sync._late()
                raise asyncio.QueueEmpty
            return self._decoded(data, transit)
        except ShutDown:
            raise QueueShutDown from None
        except BaseException as error:
            self._sync._put_back_if_interrupted(core, transit, error)
            raise

    def _putting(self, item: Item, blocking: bool) -> Coroutine[Any, Any, None]:
        twin = self._sync
        data = twin._encoded_to_move(item)
        putting: Coroutine[Any, Any, None] = twin._core.put(data, blocking, twin._key(item), self.maxsize, blocking)
        return putting

    def _decoded(self, data: bytes, transit: queues.Transit) -> Item:
        item: Item = self._sync._decoded_from_move(data, transit)
        return item

    def qsize(self) -> int:
        """Return the approximate number of items.

        Returns:
            The number of items.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs 3 requests in 1 round trip, for which the event loop waits.
        """
        size = int(self._run_blocking(self._sync._core.size()))
        return min(size, self.maxsize) if self.maxsize > 0 else size

    def empty(self) -> bool:
        """Return whether the queue is empty, which may change at any time.

        Returns:
            True if it is empty.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs 3 requests in 1 round trip, for which the event loop waits.
        """
        return self.qsize() == 0

    def full(self) -> bool:
        """Return whether the queue is full, which may change at any time.

        Returns:
            True if it is full.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs no request without a bound, and 3 requests in 1 round trip with one, for which the
            event loop waits.
        """
        return self.maxsize > 0 and self.qsize() >= self.maxsize

    def task_done(self) -> None:
        """Mark an item that was got as done, for `join`.

        Raises:
            ValueError: It was called more times than items were put.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be done. Subclass of TimeoutError.

        Note:
            Costs 1 request for an item that this process got, for which the event loop does not
            wait. Otherwise it costs 4, for which it does.
        """
        core = self._sync._core
        if core.taken_not_done > 0:
            self._run_in_background(core.task_done())
        elif not self._run_blocking(core.task_done()):
            raise ValueError("task_done() called too many times")

    async def join(self) -> None:
        """Wait until all items that were put have been marked as done.

        Note:
            Costs 3 requests and 1 watch, and as many again for each `task_done` during the wait.

            If the session ends, the wait continues in the next one. If cancelled, nothing is left
            behind.
        """
        await self._ready()
        await self._await(self._sync._core.join())

    def shutdown(self, immediate: bool = False) -> None:
        """Shut the queue down.

        `put` then raises QueueShutDown, and so does `get` once the queue is empty.

        Args:
            immediate: Whether to remove the remaining items, and mark them as done.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the queue may
                or may not be shut down. Subclass of TimeoutError.

        Note:
            Costs 1 request. With ``immediate``, it costs 4, and 2 more for each item. The event
            loop waits for them; with ``immediate`` as long as it takes, even during an outage.

            Source: ``asyncio.Queue.shutdown`` of Python 3.13, available here on every Python.
        """
        protocol = self._sync._core.shutdown(immediate, self.maxsize)
        if immediate:
            self._sync._ask(protocol)
        else:
            self._run_blocking(protocol)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} maxsize={self.maxsize!r} name={self.name!r}>"

    def __str__(self) -> str:
        return f"<{type(self).__name__} maxsize={self.maxsize!r} name={self.name!r}>"


class LifoQueue(Queue[Item]):
    """A LIFO queue shared by tasks, processes and hosts, like ``asyncio.LifoQueue``.

    It holds about 10,000 items at most, because all of them are children of one znode.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared: give
            the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.

    Note:
        `put` costs 1 request, or 3 with a bound; `get` costs 3 if items are waiting.

        Fairness and znodes are those of ``distsync.queue.LifoQueue``.

        Source: ZooKeeper recipes, "Queues"; ``asyncio.LifoQueue``.

    Example:
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
    """A priority queue shared by tasks, processes and hosts, like ``asyncio.PriorityQueue``.

    `get` returns the smallest item, and among equal items the one that was put first. The queue
    holds about 10,000 items at most, because all of them are children of one znode.

    If two items cannot be compared, one `get` removes one of them, and raises the error of the
    comparison, TypeError for instance, whose attribute ``item`` is that item. An item whose class
    cannot be imported by a process stays for others: `get` raises PayloadRefusedError once, and that
    process ignores the item from then on. Both are described in ``distsync.queue.PriorityQueue``.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared: give
            the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.

    Note:
        `put` costs 1 request, or 3 with a bound; `get` costs 3 if items are waiting.

        Further costs, fairness and znodes are those of ``distsync.queue.PriorityQueue``.

        Source: ZooKeeper recipes, "Priority Queues"; ``asyncio.PriorityQueue``.

    Example:
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
