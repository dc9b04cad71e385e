"""Queue, SimpleQueue and JoinableQueue: drop-in replacements for ``multiprocessing.queues``.

A Queue of this module and a Queue of ``distsync.queue`` with the same name are the same queue. Two
things differ from multiprocessing on purpose:

* A bound, and the count of a JoinableQueue, are valid for all processes as soon as ``put()``
  returns. This takes a request in any case, so the item is sent with it, and no feeder thread is
  needed.
* ``task_done()`` only counts, and any process may call it for an item that another process got.
  ``distsync.JoinableQueue`` ties each item to its consumer, and redelivers it if the consumer
  exits.
"""

from __future__ import annotations

import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from distsync._client.deadlines import limit_calls
from distsync._client.lifecycle import fork_depth
from distsync._objects.base import ask_timeout_of
from distsync._objects.queues import Item, _QueueBase
from distsync._objects.validation import validate_maxsize
from distsync._protocols.queues.bulk import Progress, feed
from distsync._protocols.queues.fifo import QueueCore
from distsync._signal_handlers import is_from_handler
from distsync.errors import ClientClosedError, DeadlineError, PayloadPickleError
from distsync.multiprocessing._feeder_thread import Feeder
from distsync.multiprocessing._stdlib_names import stdlib_getattr

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]

#: Seconds for which a non-blocking get waits for the feeder to send the items of this process.
READ_OWN_PUTS_S = 0.3

OnError = Callable[[BaseException, Any], object]


def _seconds(block: bool, timeout: float | None) -> float | None:
    """Return the timeout in seconds, or None to wait forever. Negative timeouts are 0."""
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


class _Base(_QueueBase[Item]):
    """Base of the queues."""

    _needs_name = False  # passed to children

    def __init__(self, ctx: Any, name: str | None, client: Client | None, path: str | None) -> None:
        self._ctx = ctx
        super().__init__(name, client, path)


class Queue(_Base[Item]):
    """A FIFO queue shared by processes and hosts, like ``multiprocessing.Queue``.

    ``put()`` passes the item to a feeder thread and returns at once. A sent item stays in the queue
    until a consumer gets it, even if its producer exits. An item that was not sent yet is lost if
    its process is killed. At its end, a process waits until all its items are sent, unless it has
    called `cancel_join_thread`.

    With a bound, ``put()`` itself sends the item, and waits while the queue is full.

    Items are encoded by the client's codec, pickle by default. An encoded item may be almost
    1,000,000 bytes long.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared: give
            the same one to all objects of this name that put or get.
        ctx: The context that creates the queue. It has no effect.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.

    Note:
        `put` costs 1 request for each 100 items, sent in the background; with a bound, 3 requests
        in 1 round trip. `get` costs 2 requests in 1 round trip if items are waiting.

        Items that one process puts with one object leave the queue in that order. Getters are
        served in FIFO order.

        Znodes: those of ``distsync.queue.Queue``.

        Source: ZooKeeper recipes, "Queues"; ``multiprocessing.Queue``.

    Example:
        >>> jobs = Queue(name="jobs")
        >>> jobs.put("first")
        >>> jobs.get()
        'first'
        >>> jobs.close(); jobs.join_thread()
    """

    _kind = "queue"

    def __init__(
        self,
        maxsize: int = 0,
        *,
        ctx: Any = None,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._maxsize = validate_maxsize(maxsize)
        self._feeders: dict[int, Feeder] = {}
        super().__init__(ctx, name, client, path)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._maxsize,)

    @property
    def _feeder(self) -> Feeder:
        """The feeder of this process."""
        found = self._feeders.get(fork_depth())
        if found is None:
            made = Feeder()
            found = self._feeders.setdefault(fork_depth(), made)
            if found is made:
                weakref.finalize(self, made.close).atexit = False
        return found

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the queue and its items for all processes; the next use creates it afresh.

        Items that this process has put with this object are sent before, and are deleted too.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            TypeError: ``timeout`` is not a number.
            DeadlineError: The queue was not deleted in time. Subclass of TimeoutError.
            ValueError: The given path contains other objects. Nothing was deleted.
            StillUsedError: Other processes keep putting or getting.
            AccessDeniedError: An ACL denies the access.

        Note:
            Costs, losses and interrupts are those of ``distsync.queue.Queue.destroy``.
        """
        seconds = ask_timeout_of(self.client, timeout)
        with limit_calls(seconds):
            if not self._feeder.flush(seconds):
                raise DeadlineError(f"sending the items of {self.path}")
            super().destroy(-1)

    def _check_open(self) -> Feeder:
        feeder = self._feeder
        if feeder.closed:
            raise ValueError(f"Queue {self!r} is closed")
        return feeder

    _stdlib_name = "Queue"

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that isinstance() accepts too: that of multiprocessing, which logging.config requires."""
        kind: type = getattr(sys.modules.get("multiprocessing.queues"), self._stdlib_name, type(self))
        return kind

    def put(self, obj: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue. With a bound, wait for room if the queue is full.

        Without a bound, the feeder thread sends the item. An item that cannot be encoded or sent is
        not put, and is reported to ``_on_queue_feeder_error`` only, which prints a traceback. With
        a bound, an item that cannot be sent raises.

        Args:
            obj: The item to put.
            block: Whether to wait for room, if the queue is bounded.
            timeout: Maximum wait for room in seconds, if the queue is bounded; 0 or less does not
                wait, None waits forever.

        Raises:
            Full: There was no room, or no connection, in time. Only with a bound.
            ValueError: This process has closed the queue.
            ShutDown: The queue was shut down. Only with a bound.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and the
                item may or may not have been put. Only with a bound.

        Note:
            Costs no request in this thread; with a bound, 3 requests in 1 round trip.

            If the connection is lost, the feeder continues with the next one. If interrupted, the
            item may or may not be in the queue.

            Source: ``multiprocessing.Queue.put``.
        """
        feeder = self._check_open()
        feeder.used = True
        if self._maxsize > 0:
            self._put_at_once(obj, block, timeout)
        else:
            feeder.put(obj, self, self._sender)

    def _put_at_once(self, obj: Item, block: bool, timeout: float | None) -> None:
        client, path = self.client, self.path
        core = self._core
        seconds = _seconds(block, timeout)
        for data in _encoded([obj], partial(client.codec.encode, context=path), self._on_queue_feeder_error):
            self._run_put(core.put(data, bool(block), maxsize=self._maxsize), seconds, self._maxsize)

    def _sender(self) -> Callable[[Sequence[Any]], object]:
        """Return the function that sends items in the feeder. It does not reference this object."""
        on_error: OnError = self._on_queue_feeder_error
        self._feeder.destination = self.client, self.path
        return partial(_send, self.client, self._core, self.path, self._joining(True), on_error, self._feeder)

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Remove and return the next item, waiting for one if the queue is empty.

        An item that this process put with this object is available to it at once.

        Args:
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            The item.

        Raises:
            Empty: No item became available in time.
            ValueError: This process has closed the queue.
            ShutDown: The queue is empty and was shut down.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.
            OutcomeUnknownError: The session ended before the reply, and an item may or may not have
                been removed.

        Note:
            Costs 2 requests in 1 round trip if items are waiting. The first call costs more.

            Getters are served in FIFO order; a getter that arrives while an item is available may
            overtake them.

            If the session ends, the call continues in the next one. If interrupted, an item in
            transit is put back in its place.

            Source: ZooKeeper recipes, "Queues".
        """
        feeder = self._check_open()
        if not block:
            feeder.flush(READ_OWN_PUTS_S)
        return self._get_now(bool(block), _seconds(block, timeout), self._maxsize)

    def put_nowait(self, obj: Item) -> None:
        """Put an item without waiting, like ``put(obj, False)``.

        Args:
            obj: The item to put.

        Raises:
            Full: There was no room, or no connection. Only with a bound.
            ValueError: This process has closed the queue.
        """
        self.put(obj, False)

    def get_nowait(self) -> Item:
        """Remove and return the next item without waiting, like ``get(False)``.

        Returns:
            The item.

        Raises:
            Empty: No item is available.
            ValueError: This process has closed the queue.
        """
        return self.get(False)

    def qsize(self) -> int:
        """Return the approximate number of items, including those that this object has put.

        Returns:
            The number of items, which may change at any time.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip, after the feeder has sent its items.

            If the connection is lost, this waits for the next one.
        """
        seconds = ask_timeout_of(self.client, None)
        if not self._feeder.flush(seconds):
            raise DeadlineError(f"sending the items of {self.path}")
        size = int(self._ask(self._core.size()))
        return min(size, self._maxsize) if self._maxsize > 0 else size

    def empty(self) -> bool:
        """Return whether the queue is empty, which may change at any time.

        Returns:
            True if the queue is empty.

        Raises:
            OSError: This process has put an item and then closed the queue, as in multiprocessing.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip, after the feeder has sent its items.
        """
        if self._feeder.used and self._feeder.closed:
            raise OSError(f"Queue {self!r} is closed")
        return self.qsize() == 0

    def full(self) -> bool:
        """Return whether the queue is full, which may change at any time.

        Returns:
            True if the queue is full; False without a bound.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip; none without a bound.
        """
        return self._maxsize > 0 and self.qsize() >= self._maxsize

    def close(self) -> None:
        """Close the queue for this process. The feeder sends its items and ends.

        Other processes can still use the queue.

        Note:
            Costs no request.
        """
        self._feeder.close()

    def join_thread(self) -> None:
        """Wait until all items that this process has put are sent. Call `close` first.

        Raises:
            AssertionError: The queue is not closed.

        Note:
            If the connection is lost, this waits for the next one, and for the session timeout at most.
            The logger ``distsync.multiprocessing`` then warns of the items that were not sent.
        """
        assert self._feeder.closed, f"Queue {self!r} not closed"
        if not self._feeder.cancelled:
            self._feeder.join()

    def cancel_join_thread(self) -> None:
        """Do not wait for the feeder at the end of this process. Items not sent by then are lost."""
        self._feeder.cancelled = True

    @staticmethod
    def _on_queue_feeder_error(e: BaseException, obj: Any) -> None:
        """Print the error of an item that could not be put. A subclass may override this."""
        traceback.print_exception(type(e), e, e.__traceback__, file=sys.stderr)


def _encoded(objs: Sequence[Any], encode: Callable[[Any], bytes], on_error: OnError) -> list[bytes]:
    """Return the encoded items, and report those that cannot be encoded. An interrupt is raised."""
    data: list[bytes] = []
    for obj in objs:
        try:
            data.append(encode(obj))
        except PayloadPickleError as error:
            on_error(error.__cause__ or error, obj)
        except BaseException as error:  # a method of the item calls sys.exit(), for example; this thread must not end
            if threading.current_thread() is threading.main_thread() and (
                isinstance(error, KeyboardInterrupt) or is_from_handler(error)
            ):
                raise
            on_error(error, obj)
    return data


def _send(
    client: Client,
    core: QueueCore,
    path: str,
    as_member: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
    on_error: OnError,
    feeder: Feeder,
    objs: Sequence[Any],
) -> None:
    """Put items into the queue, in the feeder, and report those that cannot be put."""
    kept: list[Any] = []

    def encode(obj: Any) -> bytes:
        data = client.codec.encode(obj, path)
        kept.append(obj)
        return data

    items = _encoded(objs, encode, on_error)
    progress = Progress()
    try:
        if items:
            client.run(as_member(feed(core, items, progress)))
    except ClientClosedError as error:
        if not feeder.cancelled:
            _report(error, kept[progress.put :], on_error)
    except Exception as error:
        _report(error, kept[progress.put :], on_error)


def _report(error: BaseException, objs: Sequence[Any], on_error: OnError) -> None:
    for obj in objs:
        on_error(error, obj)


class JoinableQueue(Queue[Item]):
    """A Queue that counts unfinished items, like ``multiprocessing.JoinableQueue``.

    An item is counted when ``put()`` returns, because then it is in the queue. Any process may mark
    an item as done. An item whose consumer exits stays unfinished, as in multiprocessing;
    ``distsync.JoinableQueue`` delivers it to another consumer.

    Args:
        maxsize: Maximum number of items; 0 or less means unbounded. The bound is not shared: give
            the same one to all objects of this name that put or get.
        ctx: The context that creates the queue. It has no effect.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: ``maxsize`` is not a number, or both a name and a path are given.

    Note:
        `put` costs 1 request, or 3 in 1 round trip with a bound. `get` costs 2 requests in 1 round
        trip if items are waiting. `task_done` costs 1 request.

        Fairness and znodes are those of Queue.

        Source: ZooKeeper recipes, "Queues"; ``multiprocessing.JoinableQueue``.

    Example:
        >>> jobs = JoinableQueue(name="counted")
        >>> jobs.put("first")
        >>> jobs.get()
        'first'
        >>> jobs.task_done(); jobs.join()
    """

    _stdlib_name = "JoinableQueue"

    def put(self, obj: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue and count it, waiting for room if the queue is bounded and full.

        An item that cannot be encoded is not put, and is reported to ``_on_queue_feeder_error``
        only, which prints a traceback. An item that cannot be sent raises.

        Args:
            obj: The item to put.
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Raises:
            Full: There was no room, or no connection, in time.
            ValueError: This process has closed the queue.
            ShutDown: The queue was shut down.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and the
                item may or may not have been put.

        Note:
            Costs 1 request, or 3 in 1 round trip with a bound.

            If the connection is lost, the call continues with the next one. If interrupted, the
            item may or may not be in the queue.

            Source: ``multiprocessing.Queue.put``.
        """
        self._check_open().used = True
        self._put_at_once(obj, block, timeout)

    def task_done(self) -> None:
        """Mark an item that was got as done, for `join`.

        Raises:
            ValueError: It was called more times than items were put.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be done. Subclass of TimeoutError.

        Note:
            Costs 1 request if this process got at least as many items as it marked as done,
            otherwise 4.
        """
        if not self._ask(self._core.task_done()):
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Wait until all items that were put have been marked as done.

        Note:
            Costs 3 requests and 1 watch, and as many again for each `task_done` during the wait.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.
        """
        self._run(self._core.join())


class SimpleQueue(_Base[Item]):
    """An unbounded FIFO queue without a feeder thread, like ``multiprocessing.SimpleQueue``.

    The item is in the queue when ``put()`` returns. There are no timeouts.

    Items are encoded by the client's codec, pickle by default. An encoded item may be almost
    1,000,000 bytes long.

    Args:
        ctx: The context that creates the queue. It has no effect.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        `put` costs 1 request. `get` costs 2 requests in 1 round trip if items are waiting.

        Fairness and znodes are those of Queue.

        Source: ZooKeeper recipes, "Queues"; ``multiprocessing.SimpleQueue``.

    Example:
        >>> inbox = SimpleQueue(name="inbox")
        >>> inbox.put("hello")
        >>> inbox.get()
        'hello'
    """

    _kind = "simple_queue"

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, client: Client | None = None, path: str | None = None
    ) -> None:
        self._closed_in: int | None = None
        super().__init__(ctx, name, client, path)

    def _check_open(self) -> None:
        if self._closed_in == fork_depth():
            raise OSError(f"SimpleQueue {self.name!r} is closed")

    def put(self, obj: Item) -> None:
        """Put an item into the queue.

        Args:
            obj: The item to put.

        Raises:
            PayloadError: The item cannot be encoded, or is too large.
            OSError: This process has closed the queue.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be put. Subclass of TimeoutError.

        Note:
            Costs 1 request.

            If the session ends, the call continues in the next one. If interrupted, the item may or
            may not be in the queue.
        """
        self._check_open()
        self._put_now(obj, True, None, 0)

    def get(self) -> Item:
        """Remove and return the next item, waiting for one if the queue is empty.

        Returns:
            The item.

        Raises:
            OSError: This process has closed the queue.
            ShutDown: The queue is empty and was shut down.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has been removed.
            OutcomeUnknownError: The session ended before the reply, and an item may or may not have
                been removed.

        Note:
            Costs, fairness and interrupts are as for Queue.get.
        """
        self._check_open()
        return self._get_now(True, None, 0)

    def empty(self) -> bool:
        """Return whether the queue is empty, which may change at any time.

        Returns:
            True if the queue is empty.

        Raises:
            OSError: This process has closed the queue.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 3 requests in 1 round trip.
        """
        self._check_open()
        return int(self._ask(self._core.size())) == 0

    def close(self) -> None:
        """Close the queue for this process. Other processes can still use it.

        Note:
            Costs no request.
        """
        self._closed_in = fork_depth()


__getattr__ = stdlib_getattr("multiprocessing.queues", __name__)
