"""Queue, LifoQueue, PriorityQueue and SimpleQueue: drop-in replacements for the queue module."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Sequence
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from distsync._client.contender_info import describe
from distsync._objects.base import SharedObject, explain_outage, pickle_use
from distsync._objects.validation import refuse_container_hooks, refuse_positional, validate_maxsize, validate_timeout
from distsync._protocols.queues.bulk import Progress, get_many, put_many
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.queues.ordered import OrderedCore, PriorityCore, TakenItem, is_class_missing, key_of
from distsync._protocols.steps import Signal
from distsync._signal_handlers import is_from_signal, raise_if_from_handler
from distsync.errors import DeadlineError, PayloadRefusedError, ShutDown

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Empty", "Full", "LifoQueue", "PriorityQueue", "Queue", "ShutDown", "SimpleQueue"]

Item = TypeVar("Item")

#: The methods with which a subclass of ``queue.Queue`` replaces the container of its items.
CONTAINER_HOOKS = ("_init", "_qsize", "_put", "_get")


class _Call(threading.local):
    """How the current thread's call of `put` or `get` waits, for `_put` and `_get`."""

    block: bool = True
    timeout: float | None = None


class Transit(list[tuple[str, bytes]]):
    """The items that a call of `get` has removed from the queue, as paths and data.

    Attributes:
        objects: Objects without a name that were unpickled from them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.objects: list[SharedObject] = []


class _QueueBase(SharedObject, Generic[Item]):
    """Base of all queues."""

    _kind = "queue"

    @property
    def _core(self) -> QueueCore:
        return self._shared_state(self._make_core)

    def _make_core(self, path: str) -> QueueCore:
        return QueueCore(path, self._receipts)

    def _key(self, item: Item) -> str:
        """Return the sort key that the item's znode name contains."""
        return ""

    def _encoded_to_move(self, item: Item) -> bytes:
        """Return the item as bytes, which one process gets, once."""
        try:
            pickle_use.is_moved = True
            return self.client.codec.encode(item, self.path)
        finally:
            pickle_use.is_moved = False

    def _decoded_from_move(self, data: bytes, transit: Transit) -> Item:
        """Return the item in bytes that were removed from the queue."""
        try:
            pickle_use.is_moved, pickle_use.received = True, transit.objects
            item: Item = self.client.codec.decode(data, self.path)
            return item
        finally:
            pickle_use.is_moved, pickle_use.received = False, []

    def _put_now(self, item: Item, block: bool, timeout: float | None, maxsize: int) -> None:
        core = self._core
        data = self._encoded_to_move(item)
        self._run_put(core.put(data, block, self._key(item), maxsize, timeout is None), timeout, maxsize)

    def _run_put(self, protocol: Coroutine[Any, Any, Any], seconds: float | None, maxsize: int) -> Any:
        """Run the protocol of a put, which only asks the server if it has neither a bound nor a timeout."""
        asks = seconds is None and maxsize <= 0
        try:
            return self._ask(protocol) if asks else self._run(protocol, seconds)
        except Full as error:
            raise_if_from_handler(error)
            if asks:
                late = DeadlineError(f"a put into {self.path}")
                explain_outage(self, late)
                raise late from None
            self._late()
            raise

    def _get_now(self, block: bool, timeout: float | None, maxsize: int) -> Item:
        core = self._core
        transit = Transit()
        try:
            data = self._run(core.get(describe(), block, maxsize, transit), timeout)
            if data is None:
                self._late()
                raise Empty
            return self._decoded_from_move(data, transit)
        except BaseException as error:
            self._put_back_if_interrupted(core, transit, error)
            raise

    def _put_back_if_interrupted(self, core: QueueCore, transit: Transit, error: BaseException) -> None:
        """Put items in transit back if ``error`` is an interrupt, and not that of an item.

        This is done in the background, before this process gets another item.
        """
        if transit and is_from_signal(error):
            for each in transit.objects:
                each._return_token()
            settled = Signal()
            core.unsettled.add(settled)
            self.client.background(core.put_back(transit, settled))


class Queue(_QueueBase[Item]):
    """A FIFO queue shared by threads, processes and hosts, like ``queue.Queue``.

    An item stays in the queue until a consumer gets it, even if its producer exits. An unbounded
    queue is limited only by the capacity of the ensemble.

    Items are encoded by the client's codec, pickle by default. An encoded item may be almost
    1,000,000 bytes long.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared:
            give the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `put` costs 1 request, or 3 in 1 round trip with a bound. `get` costs 2 in 1 round trip if
        items are waiting.

        Items leave the queue in the order in which they were put. Getters are served in FIFO
        order; a getter that arrives while an item is available may overtake them.
        If the first one does not take an item within a tenth of the session timeout, another gets it.

        A subclass may override ``_put`` and ``_get`` if it calls those of Queue. One that replaces
        the container of the items, as with ``_init`` in the standard library, raises TypeError.

        Znodes below ``<namespace>/queue/<name>``: ``items/<segment>/i_<guid>-<number>``, one for
        each item; ``puts``, ``gets`` and ``dones``, counters; ``state``, open or shut down;
        ``getters/...``, ephemeral, one for each waiting getter.

        Source: ZooKeeper recipes, "Queues"; ``queue.Queue``.

    Example:
        >>> jobs = Queue(name="jobs")
        >>> jobs.put("first")
        >>> jobs.get()
        'first'
    """

    __module__ = "distsync.queue"

    #: The hooks that calls of this class use.
    _extensible_hooks: tuple[str, ...] = ("_put", "_get")

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        refuse_container_hooks(cls, Queue, CONTAINER_HOOKS, cls._extensible_hooks)

    def __init__(
        self,
        maxsize: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        #: The bound of this object's puts and gets. A change applies to subsequent calls.
        self.maxsize = validate_maxsize(maxsize)
        self._call = _Call()
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.maxsize,)

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue, waiting for room if the queue is bounded and full.

        Nothing was put if this raises Full, ShutDown or PayloadError.

        Args:
            item: The item to put.
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.

        Raises:
            Full: There was no room, or no connection, in time.
            ShutDown: The queue was shut down.
            PayloadError: The item cannot be encoded, or is too large.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and the
                item may or may not have been put.
            ValueError: ``timeout`` is negative and the queue is bounded.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be put. Only without a bound and ``timeout``. Subclass of TimeoutError.

        Note:
            Costs 1 request, or 3 in 1 round trip with a bound. Without a bound and a timeout,
            items that other threads of this process put while a request is in flight are sent
            together, up to 100 in 1 request.

            If the session ends, the call continues in the next one. If interrupted, the item
            may or may not be in the queue.

            Source: ZooKeeper recipes, "Queues".
        """
        if self.maxsize <= 0 and timeout is not None and not timeout >= 0:
            timeout = None  # like the standard library, which checks it only with a bound
        self._call.block, self._call.timeout = bool(block), validate_timeout(timeout, "queue", block)
        self._put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Remove and return the next item, waiting for one if the queue is empty.

        Args:
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.

        Returns:
            The item.

        Raises:
            Empty: No item became available in time.
            ShutDown: The queue is empty and was shut down.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.
            OutcomeUnknownError: The session ended before the reply, and an item may or may not
                have been removed.
            ValueError: ``timeout`` is negative.

        Note:
            Costs 2 requests in 1 round trip if items are waiting. The first call costs more.

            Getters are served in FIFO order; a getter that arrives while an item is available
            may overtake them.

            If the session ends, the call continues in the next one. If interrupted, or late, an item
            in transit is put back in its place, before this process gets another one. As in the
            standard library, an item is lost if the interrupt hits between the return of the call
            and the assignment by its caller; a JoinableQueue would redeliver it.

            Source: ZooKeeper recipes, "Queues".
        """
        self._call.block, self._call.timeout = bool(block), validate_timeout(timeout, "queue", block)
        return self._get()

    def _put(self, item: Item) -> None:
        """Put an item. A subclass may extend this to do something before each put."""
        self._put_now(item, self._call.block, self._call.timeout, self.maxsize)

    def _get(self) -> Item:
        """Get an item. A subclass may extend this to do something around each get."""
        return self._get_now(self._call.block, self._call.timeout, self.maxsize)

    def put_nowait(self, item: Item) -> None:
        """Put an item without waiting, like ``put(item, block=False)``.

        Args:
            item: The item to put.

        Raises:
            Full: There was no room, or no connection.

        Note:
            Costs as many requests as `put`.
        """
        self.put(item, block=False)

    def get_nowait(self) -> Item:
        """Remove and return the next item without waiting, like ``get(block=False)``.

        Returns:
            The item.

        Raises:
            Empty: No item is available.

        Note:
            Costs as many requests as `get`.
        """
        return self.get(block=False)

    def put_many(self, items: Iterable[Item], block: bool = True, timeout: float | None = None) -> None:
        """Put several items, in order, in batches of up to 100.

        Each batch is put as a whole or not at all. With a bound, items are put one by one.

        If the call fails while putting, the error's attribute ``put`` is the number of items,
        counted from the first, that are certainly in the queue.

        Args:
            items: The items to put.
            block: Whether to wait for room, if the queue is bounded.
            timeout: Maximum wait for all items together, in seconds. None waits forever, and so
                does 0 without a bound.

        Raises:
            Full: There was no room, or no connection, in time.
            ShutDown: The queue was shut down.
            PayloadError: An item cannot be encoded, or is too large. Nothing was put.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and a
                batch may or may not have been put.
            ValueError: ``timeout`` is negative and the queue is bounded.
            DeadlineError: No server answered within the client's default timeout, and a batch may
                or may not be put. Only without a bound and ``timeout``. Subclass of TimeoutError.

        Note:
            Costs 1 request for each 100 items or 900 kB, and 3 more when a segment is full and
            once in the life of a queue. With a bound, each item costs as much as a `put`.

            If the session ends, the call continues in the next one. If interrupted, the first
            batches are in the queue and the others are not.

            Source: ZooKeeper recipes, "Queues".
        """
        core, maxsize = self._core, self.maxsize
        seconds = (
            validate_timeout(timeout, "queue", block) if maxsize > 0 else timeout if timeout and timeout > 0 else None
        )
        encoded = [(self._key(item), self._encoded_to_move(item)) for item in items]
        progress = Progress()
        try:
            self._run_put(put_many(core, encoded, bool(block), progress, maxsize), seconds, maxsize)
        except BaseException as error:
            error.put = progress.put  # type: ignore[attr-defined]
            raise

    def get_many(self, n: int, block: bool = True, timeout: float | None = None) -> list[Item]:
        """Remove and return the next items in one transaction, waiting if the queue is empty.

        Args:
            n: Maximum number of items. At most 100 are returned even if it is greater.
            block: Whether to wait.
            timeout: Maximum wait for the first item, in seconds; 0 does not wait, None waits
                forever.

        Returns:
            At least one item. There may be fewer than ``n`` even if more are in the queue, for
            example at the end of an internal folder of items. A LifoQueue and a PriorityQueue return exactly one.

        Raises:
            TypeError: ``n`` is not an int.
            ValueError: ``n`` is less than 1, or ``timeout`` is negative.
            Empty: No item became available in time.
            ShutDown: The queue is empty and was shut down.
            PayloadRefusedError: An item is unsigned, altered or unreadable. It has been removed.
                The error's attribute ``got`` contains the other items.
            OutcomeUnknownError: The session ended before the reply, and items may or may not have
                been removed.

        Note:
            Costs 2 requests in 2 round trips if items are waiting. The first call costs 1 request
            and 1 more for each item. So does a call whose items may exceed 1 MiB together, judging
            by the largest item of the previous call.

            Getters are served in FIFO order, as by `get`.

            If the session ends, the call continues in the next one. If interrupted, items in
            transit are put back in their places.

            Source: ZooKeeper recipes, "Queues".
        """
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"n must be an int, not {type(n).__name__}")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        seconds, core = validate_timeout(timeout, "queue", block), self._core
        transit = Transit()
        try:
            found = self._run(get_many(core, n, describe(), bool(block), self.maxsize, transit), seconds)
            if found is None:
                self._late()
                raise Empty
            return self._all_decoded(found, transit)
        except BaseException as error:
            self._put_back_if_interrupted(core, transit, error)
            raise

    def _all_decoded(self, found: list[bytes], transit: Transit) -> list[Item]:
        got: list[Item] = []
        refused: BaseException | None = None
        for data in found:
            try:
                got.append(self._decoded_from_move(data, transit))
            except BaseException as error:  # an item can call sys.exit() when it is unpickled
                if is_from_signal(error):
                    raise
                refused = error
        if refused is not None:
            refused.got = got  # type: ignore[attr-defined]
            raise refused
        return got

    def qsize(self) -> int:
        """Return the approximate number of items.

        Returns:
            The number of items. An item whose `put` still waits for room is not counted.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        size = int(self._ask(self._core.size()))
        return min(size, self.maxsize) if self.maxsize > 0 else size

    def empty(self) -> bool:
        """Return whether the queue is empty, which may change at any time.

        Returns:
            True if the queue is empty.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        return self.qsize() == 0

    def full(self) -> bool:
        """Return whether the queue is full, which may change at any time.

        Returns:
            True if the queue is bounded and full.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip, and no request without a bound.
        """
        return self.maxsize > 0 and self.qsize() >= self.maxsize

    def task_done(self) -> None:
        """Mark an item that was got as done, for `join`.

        Raises:
            ValueError: It was called more times than items were put.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be done. Subclass of TimeoutError.

        Note:
            Costs 1 request for an item that this process got, otherwise 4. Concurrent calls of
            several threads are sent together, in 1 request.
        """
        if not self._ask(self._core.task_done()):
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Wait until all items that were put have been marked as done.

        Note:
            Costs 3 requests and 1 watch, and as many again for each `task_done` during the wait.

            If the session ends, the wait continues in the next one. If interrupted, nothing is
            left behind.
        """
        self._run(self._core.join())

    def shutdown(self, immediate: bool = False) -> None:
        """Shut the queue down: `put` raises ShutDown, and so does `get` once the queue is empty.

        Args:
            immediate: Whether to remove the remaining items, and mark them as done.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the queue may
                or may not be shut down. Subclass of TimeoutError.

        Note:
            Costs 1 request. With ``immediate``, it costs 4, and 2 more for each item.

            Source: ``queue.Queue.shutdown`` of Python 3.13, available here on every Python.
        """
        self._ask(self._core.shutdown(immediate, self.maxsize))

    @property
    def is_shutdown(self) -> bool:
        """Whether the queue was shut down.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 1 request.
        """
        return bool(self._ask(self._core.is_shutdown()))

    @property
    def unfinished_tasks(self) -> int:
        """The number of items that were put and are not done.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        return int(self._ask(self._core.znodes.unfinished()))


class LifoQueue(Queue[Item]):
    """A LIFO queue shared by threads, processes and hosts, like ``queue.LifoQueue``.

    It holds about 10,000 items at most, because all of them are children of one znode.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared:
            give the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `put` costs 1 request, or 3 with a bound; `get` costs 3 if items are waiting.

        Getters are served as by Queue. The znodes are those of Queue, with one segment.

        Source: ZooKeeper recipes, "Queues"; ``queue.LifoQueue``.

    Example:
        >>> pile = LifoQueue(name="pile")
        >>> pile.put(1); pile.put(2)
        >>> pile.get()
        2
    """

    __module__ = "distsync.queue"
    _kind = "lifo_queue"

    def _make_core(self, path: str) -> QueueCore:
        return OrderedCore(path, self._receipts)


class PriorityQueue(Queue[Item]):
    """A priority queue shared by threads, processes and hosts, like ``queue.PriorityQueue``.

    `get` returns the smallest item, and among equal items the one that was put first. The queue
    holds about 10,000 items at most, because all of them are children of one znode.

    Items are compared by `get`, because a `put` that did so would have to read the queue. If two of
    them cannot be compared, one `get` removes one of the two, the one that fewer of the other items
    can be compared with or that was put later, and raises the error of the comparison, TypeError
    for instance. The error's attribute ``item`` is that item. All other items stay.

    An item whose class cannot be imported by a process that calls `get` stays for other processes.
    `get` raises PayloadRefusedError once, and that process ignores the item from then on.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared:
            give the same one to all objects of this name that put or get.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `put` costs 1 request, or 3 with a bound; `get` costs 3 if items are waiting. Items whose
        order is not decided by a number are read to be compared, for 1 request each, once per
        process. The number is the item itself, or the first element of a tuple or list.

        Getters are served as by Queue. The znodes are those of Queue, with one segment; the name
        of an item's znode contains its number.

        Source: ZooKeeper recipes, "Priority Queues"; ``queue.PriorityQueue``.

    Example:
        >>> tasks = PriorityQueue(name="tasks")
        >>> tasks.put((2, "later")); tasks.put((1, "sooner"))
        >>> tasks.get()
        (1, 'sooner')
    """

    __module__ = "distsync.queue"
    _kind = "priority_queue"

    def _make_core(self, path: str) -> QueueCore:
        codec = self.client.codec
        return PriorityCore(path, self._receipts, lambda _, data: codec.decode(data, path))

    def _key(self, item: Item) -> str:
        return key_of(item)

    def _decoded_from_move(self, data: bytes, transit: Transit) -> Item:
        """Return the item; raise the error of its comparison if it was removed because of that."""
        assert isinstance(data, TakenItem)
        try:
            item = super()._decoded_from_move(data, transit)
        except PayloadRefusedError as error:
            core = self._core
            if is_class_missing(error) and isinstance(core, PriorityCore):
                self.client.background(self._as_member(core.return_unreadable(data)))
            raise
        if data.error is not None:
            data.error.__dict__["item"] = item
            raise data.error
        return item


class SimpleQueue(_QueueBase[Item]):
    """An unbounded FIFO queue shared by threads, processes and hosts, like ``queue.SimpleQueue``.

    It has no ``task_done()`` and ``join()``. Its `put` may be called in finalizers.

    Args:
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Costs, fairness and znodes are those of an unbounded Queue.

        Source: ZooKeeper recipes, "Queues"; ``queue.SimpleQueue``.

    Example:
        >>> inbox = SimpleQueue(name="inbox")
        >>> inbox.put("hello")
        >>> inbox.get()
        'hello'
    """

    __module__ = "distsync.queue"
    _kind = "simple_queue"

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        refuse_positional(self, _)
        super().__init__(name, client, path, acl)

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue.

        This may be called in a finalizer that interrupts another call of distsync. It then
        returns at once, and the item is put in the background.

        Args:
            item: The item to put.
            block: Ignored, because there is always room.
            timeout: Ignored, because there is always room.

        Raises:
            PayloadError: The item cannot be encoded, or is too large.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be put. Subclass of TimeoutError.

        Note:
            Costs 1 request.

            If the session ends, the call continues in the next one. If interrupted, the item
            may or may not be in the queue.

            Source: ZooKeeper recipes, "Queues".
        """
        if self.client.may_wait():
            self._put_now(item, True, None, 0)
        else:
            data = self._encoded_to_move(item)
            self.client.background(self._as_member(self._core.put(data)))

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Remove and return the next item, waiting for one if the queue is empty.

        Args:
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.

        Returns:
            The item.

        Raises:
            Empty: No item became available in time.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.
            OutcomeUnknownError: The session ended before the reply, and an item may or may not
                have been removed.
            ValueError: ``timeout`` is negative.

        Note:
            Costs, fairness and interrupts are as for Queue.get.

            Source: ZooKeeper recipes, "Queues".
        """
        return self._get_now(bool(block), validate_timeout(timeout, "simple_queue", block), 0)

    def put_nowait(self, item: Item) -> None:
        """Put an item, like ``put(item)``.

        Args:
            item: The item to put.
        """
        self.put(item)

    def get_nowait(self) -> Item:
        """Remove and return the next item without waiting, like ``get(block=False)``.

        Returns:
            The item.

        Raises:
            Empty: No item is available.
        """
        return self.get(block=False)

    def qsize(self) -> int:
        """Return the approximate number of items.

        Returns:
            The number of items, which may change at any time.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        return int(self._ask(self._core.size()))

    def empty(self) -> bool:
        """Return whether the queue is empty, which may change at any time.

        Returns:
            True if the queue is empty.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        return self.qsize() == 0
