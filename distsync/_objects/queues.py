"""Queue, LifoQueue, PriorityQueue and SimpleQueue.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from distsync._client.contender_info import describe
from distsync._objects.base import SharedObject
from distsync._objects.validation import validate_timeout
from distsync._protocols.queues.bulk import Progress, get_many, put_many
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.queues.ordered import OrderedCore, PriorityCore, key_of
from distsync.errors import PayloadRefusedError, ShutDown

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Empty", "Full", "LifoQueue", "PriorityQueue", "Queue", "ShutDown", "SimpleQueue"]

Item = TypeVar("Item")


class _Call(threading.local):
    """How the running thread's call of put or get is to wait."""

    block: bool = True
    timeout: float | None = None


class _QueueBase(SharedObject, Generic[Item]):
    """What all queues share."""

    _kind = "queue"

    @property
    def _core(self) -> QueueCore:
        return self._shared_state(self._make_core)

    def _make_core(self, path: str) -> QueueCore:
        return QueueCore(path, self._receipts)

    def _key(self, item: Item) -> str:
        """What the name of the item carries of its order."""
        return ""

    def _put_now(self, item: Item, block: bool, timeout: float | None, maxsize: int) -> None:
        core = self._core
        data = self.client.codec.encode(item, self.path)
        self._run(core.put(data, block, self._key(item), maxsize, timeout is None), timeout)

    def _get_now(self, block: bool, timeout: float | None, maxsize: int) -> Item:
        data = self._run(self._core.get(describe(), block, maxsize), timeout)
        if data is None:
            raise Empty
        item: Item = self.client.codec.decode(data, self.path)
        return item


class Queue(_QueueBase[Item]):
    """First in, first out; as deep as the ensemble's disk. What was put stays until it is got, whoever dies.

    Units: ``maxsize`` in items; 0 or less: no bound. It is this object's own, so all who share a bound give the same.
        Items pickle (or are JSON, as the client says), 1,000,000 bytes at most.
    Cost: put 1 request (3, in 1 round trip, with a bound); get 2, in 1 round trip, if there are items.
    Fair: items in the order of their puts; who waits longest gets first, after those who come anew in that moment.
    Source: recipes.txt, Queues; ``queue.Queue``.

    Znodes: ``<namespace>/queue/<name>/items/<segment>/i_<guid>-<number>``, an item; ``puts``, ``gets``, ``dones``,
        counters; ``state``; ``getters/...``, ephemeral, who waits.

    >>> jobs = Queue(name="jobs")
    >>> jobs.put("first")
    >>> jobs.get()
    'first'
    """

    __module__ = "distsync.queue"

    def __init__(
        self,
        maxsize: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        #: The bound that this object's puts and gets keep; it may be changed at any time, for the calls that follow.
        self.maxsize = maxsize
        self._call = _Call()
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.maxsize,)

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """``item`` is in the queue.

        Units: seconds; None: without end.
        Raises: Full if there was no room, at once if not ``block``, or not in time; ShutDown; PayloadError for an
            item that does not pickle or is too large. Then nothing was put. OutcomeUnknownError when the connection
            broke and the time was over before anybody could know.
        On loss: of the session: it goes on.
        On cancel: the item is in the queue, or not.
        Cost: 1 request; with a bound 3, in 1 round trip. Without a bound and a time-out, what other threads of this
            process put while one is under way goes together: 1 request for up to 100.
        Source: recipes.txt, Queues.
        """
        if self.maxsize <= 0 and timeout is not None and timeout < 0:
            timeout = None  # the stdlib looks at it only where there is a bound
        self._call.block, self._call.timeout = bool(block), validate_timeout(timeout, "queue", block)
        self._put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """The next item, which is in the queue no more.

        Units: seconds; None: without end.
        Returns: the item.
        Raises: Empty if there was none, at once if not ``block``, or not in time; ShutDown if it is empty and was
            shut down; PayloadRefusedError for an item that is unsigned, altered or unreadable, and is gone now.
        On loss: of the session: it goes on.
        On cancel: the item that was on its way goes back to its place. As with the standard library, one that has come
            is gone if the interrupt strikes in the last instructions of the call; a JoinableQueue gives it to another.
        Cost: 2 requests, 1 round trip, if there are items (after the first get).
        Fair: who waits longest gets first, after those who come anew in that moment.
        Source: recipes.txt, Queues.
        """
        self._call.block, self._call.timeout = bool(block), validate_timeout(timeout, "queue", block)
        return self._get()

    def _put(self, item: Item) -> None:
        """What a subclass may do before an item is put: it calls this."""
        self._put_now(item, self._call.block, self._call.timeout, self.maxsize)

    def _get(self) -> Item:
        """What a subclass may do around a get: it calls this."""
        return self._get_now(self._call.block, self._call.timeout, self.maxsize)

    def put_nowait(self, item: Item) -> None:
        """``put(item, block=False)``."""
        self.put(item, block=False)

    def get_nowait(self) -> Item:
        """``get(block=False)``."""
        return self.get(block=False)

    def put_many(self, items: Iterable[Item], block: bool = True, timeout: float | None = None) -> None:
        """All ``items`` are in the queue, in their order: up to 100 with one request, all of these or none.

        Units: seconds for all of them; None: without end.
        Raises: as `put`; the error's ``put`` says how many of the first items are surely in the queue. PayloadError if
            any of them does not pickle or is too large: then nothing was put.
        On loss: of the session: it goes on.
        On cancel: the first batches are in the queue, the others not.
        Cost: 1 request for each 100 items or 900 kB (3 more where a segment is full, and once in the
            life of a queue); with a bound as `put`, each.
        Source: recipes.txt, Queues.
        """
        core, maxsize = self._core, self.maxsize
        seconds = (
            validate_timeout(timeout, "queue", block) if maxsize > 0 else timeout if timeout and timeout > 0 else None
        )
        context, codec = self.path, self.client.codec
        encoded = [(self._key(item), codec.encode(item, context)) for item in items]
        progress = Progress()
        try:
            self._run(put_many(core, encoded, bool(block), progress, maxsize), seconds)
        except BaseException as error:
            error.put = progress.put  # type: ignore[attr-defined]
            raise

    def get_many(self, n: int, block: bool = True, timeout: float | None = None) -> list[Item]:
        """The next items, ``n`` at most and 100 at most, which are in the queue no more, all of these or none.

        Units: seconds; None: without end.
        Returns: one item at least; as many as are there now, up to the end of a segment.
        Raises: as `get`. If one of them is refused, it is gone, and the error's ``got`` has those that came with it.
        On loss: of the session: it goes on.
        On cancel: the items that were on their way go back to their places.
        Cost: 2 requests, 2 round trips, if there are items; for a first call, and after a batch of large items (100 of
            10 kB, say), 1 request, and 1 for each item. A LifoQueue, and a PriorityQueue, get one at a time.
        Fair: as `get`.
        Source: recipes.txt, Queues.
        """
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"n must be an int, not {type(n).__name__}")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        seconds, core = validate_timeout(timeout, "queue", block), self._core
        found = self._run(get_many(core, n, describe(), bool(block), self.maxsize), seconds)
        if found is None:
            raise Empty
        return self._all_decoded(found)

    def _all_decoded(self, found: list[bytes]) -> list[Item]:
        got: list[Item] = []
        refused: PayloadRefusedError | None = None
        for data in found:
            try:
                got.append(self.client.codec.decode(data, self.path))
            except PayloadRefusedError as error:
                refused = error
        if refused is not None:
            refused.got = got  # type: ignore[attr-defined]
            raise refused
        return got

    def qsize(self) -> int:
        """How many items are in the queue about now. Cost: 3 requests, 1 round trip."""
        size = int(self._read(self._core.znodes.size()))
        return min(size, self.maxsize) if self.maxsize > 0 else size

    def empty(self) -> bool:
        """Whether there is no item about now. Cost: 3 requests, 1 round trip."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether a put would have to wait about now. Cost: 3 requests, 1 round trip; none without a bound."""
        return self.maxsize > 0 and self.qsize() >= self.maxsize

    def task_done(self) -> None:
        """One item that was got is done.

        Raises: ValueError if all that were ever put are done already.
        Cost: 1 request if this process got as many items as it calls this, else 4; what several threads call while one
            is under way goes as 1.
        """
        if not self._run(self._core.task_done()):
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Every item that was put is done.

        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 3 requests, 1 watch; as many for each task_done while it waits.
        """
        self._run(self._core.join())

    def shutdown(self, immediate: bool = False) -> None:
        """No item can be put any more; getters get what is left, with ``immediate`` nothing, and then ShutDown.

        Cost: 1 request; with ``immediate`` 5, and 2 for each item that is thrown away.
        Source: ``queue.Queue.shutdown`` of Python 3.13, here on every Python.
        """
        self._run(self._core.shutdown(immediate, self.maxsize))

    @property
    def is_shutdown(self) -> bool:
        """Whether it was shut down. Cost: 1 request."""
        return bool(self._read(self._core.is_shutdown()))

    @property
    def unfinished_tasks(self) -> int:
        """How many items were put and are not done. Cost: 3 requests, 1 round trip."""
        return int(self._read(self._core.znodes.unfinished()))


class LifoQueue(Queue[Item]):
    """Last in, first out.

    Units: as Queue; some 10,000 items at most, since all names are in one znode.
    Cost: put 1 request (3 with a bound); get 3.
    Fair: as Queue.
    Source: recipes.txt, Queues; ``queue.LifoQueue``.

    Znodes: as Queue, with one segment.

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
    """The least item first; of equal ones the one that was put first.

    Units: as Queue; some 10,000 items at most, since all names are in one znode.
    Raises: TypeError at ``get`` where items do not compare.
    Cost: put 1 request (3 with a bound); get 3, and 1 for each item (once a process) that a number, or the number
        that a tuple begins with, does not put in order.
    Fair: as Queue.
    Source: recipes.txt, Priority Queues; ``queue.PriorityQueue``.

    Znodes: as Queue, with one segment; the name of an item carries its number.

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


class SimpleQueue(_QueueBase[Item]):
    """First in, first out, without a bound and without task_done.

    Units, Cost, Fair, Znodes: as Queue.
    Source: recipes.txt, Queues; ``queue.SimpleQueue``.

    >>> inbox = SimpleQueue(name="inbox")
    >>> inbox.put("hello")
    >>> inbox.get()
    'hello'
    """

    __module__ = "distsync.queue"
    _kind = "simple_queue"

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """``item`` is in the queue; ``block`` and ``timeout`` are ignored, as there is always room.

        In a finalizer that the garbage collector happens to run inside of distsync it is only on its way to the queue.

        Raises, On loss, On cancel, Cost, Source: as Queue.put.
        """
        if self.client.may_wait():
            self._put_now(item, True, None, 0)
        else:
            data = self.client.codec.encode(item, self.path)
            self.client.background(self._core.put(data))

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """The next item, which is in the queue no more.

        Units, Returns, Raises, On loss, On cancel, Cost, Fair, Source: as Queue.get.
        """
        return self._get_now(bool(block), validate_timeout(timeout, "queue", block), 0)

    def put_nowait(self, item: Item) -> None:
        """``put(item)``."""
        self.put(item)

    def get_nowait(self) -> Item:
        """``get(block=False)``."""
        return self.get(block=False)

    def qsize(self) -> int:
        """How many items are in the queue about now. Cost: 3 requests, 1 round trip."""
        return int(self._read(self._core.znodes.size()))

    def empty(self) -> bool:
        """Whether there is no item about now. Cost: 3 requests, 1 round trip."""
        return self.qsize() == 0
