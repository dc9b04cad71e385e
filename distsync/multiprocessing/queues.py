"""Queue, SimpleQueue and JoinableQueue, as ``multiprocessing.queues`` has them.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.

What is in a queue is that of ``distsync.queue``: a Queue of either module with the same name is the same queue. Of
what multiprocessing does, this is different on purpose:

* A bound, and the count of a JoinableQueue, are kept for all processes from the moment that put returns, which takes a
  request in any case. So there the item itself goes with it, and no feeder is needed.
* ``task_done`` counts, and any process may call it for an item that another has got: so a JoinableQueue is a queue with
  a count here. ``distsync.JoinableQueue``, whose items come again when their worker dies, ties each to who got it.
"""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from distsync._client.lifecycle import fork_depth
from distsync._objects.queues import Item, _QueueBase
from distsync._protocols.queues.bulk import Progress, feed
from distsync._protocols.queues.fifo import QueueCore
from distsync.errors import ClientClosedError, PayloadPickleError
from distsync.multiprocessing._feeder_thread import Feeder
from distsync.multiprocessing._stdlib_fallback import stdlib_getattr

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]

#: So long (seconds) a get that does not wait gives the feeder to send what this very process has put before.
READ_OWN_PUTS_S = 0.3

OnError = Callable[[BaseException, Any], object]


def _seconds(block: bool, timeout: float | None) -> float | None:
    """The time-out as multiprocessing takes it: one below zero is none at all."""
    if not block:
        return 0.0
    return None if timeout is None else max(0.0, timeout)


class _Base(_QueueBase[Item]):
    """What the queues here share."""

    def __init__(self, ctx: Any, name: str | None, client: Client | None, path: str | None) -> None:
        self._ctx = ctx
        super().__init__(name, client, path)


class Queue(_Base[Item]):
    """First in, first out; ``put`` leaves the item to a feeder thread and returns at once.

    What the feeder has sent stays until it is got, whoever dies; what it had not sent dies with the process. At its end
    a process waits until all is sent, unless it has called ``cancel_join_thread``.
    Units: ``maxsize`` in items; 0 or less: no bound. With a bound put sends the item itself, and waits while it is
        full. Items pickle, 1,000,000 bytes at most.
    Cost: put 1 request for up to 100 items, apart from the call; with a bound 3, in 1 round trip. get 2, in 1.
    Fair: items that one process puts through one object in the order of its puts; who waits longest gets first.
    Source: recipes.txt, Queues; ``multiprocessing.Queue``.

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
        self._maxsize = maxsize
        self._feeders: dict[int, Feeder] = {}
        super().__init__(ctx, name, client, path)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._maxsize,)

    @property
    def _feeder(self) -> Feeder:
        """That of this process."""
        found = self._feeders.get(fork_depth())
        if found is None:
            made = Feeder()
            found = self._feeders.setdefault(fork_depth(), made)
            if found is made:
                weakref.finalize(self, made.close).atexit = False
        return found

    def _check_open(self) -> Feeder:
        feeder = self._feeder
        if feeder.closed:
            raise ValueError(f"Queue {self!r} is closed")
        return feeder

    def put(self, obj: Item, block: bool = True, timeout: float | None = None) -> None:
        """``obj`` will be in the queue; with a bound it is.

        Units: seconds; None: without end. Only where there is a bound.
        Raises: Full if there was no room, at once if not ``block``, or not in time; ValueError if this process has
            closed the queue. What does not pickle, is too large or cannot be sent is not put, and is reported by
            ``_on_queue_feeder_error`` alone, which prints a traceback. With a bound, what cannot be sent raises.
        On loss: of the connection: the feeder goes on with the next one.
        On cancel: the item is in the queue, or not.
        Cost: none for the caller; with a bound 3 requests, 1 round trip.
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
        for data in _encoded([obj], partial(client.codec.encode, context=path), self._on_queue_feeder_error):
            self._run(core.put(data, bool(block), maxsize=self._maxsize), _seconds(block, timeout))

    def _sender(self) -> Callable[[Sequence[Any]], object]:
        """What the feeder does with items; it does not keep this object."""
        on_error: OnError = self._on_queue_feeder_error
        return partial(_send, self.client, self._core, self.path, on_error, self._feeder)

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """The next item, which is in the queue no more.

        Units: seconds; None: without end.
        Returns: the item. One that this process has put through this object is there at once for it.
        Raises: Empty if there was none, at once if not ``block``, or not in time; ValueError if this process has closed
            the queue; PayloadRefusedError for an item that is unsigned, altered or unreadable, and is gone now.
        On loss: of the session: it goes on.
        On cancel: the item that was on its way goes back to its place.
        Cost: 2 requests, 1 round trip, if there are items (after the first get).
        Fair: who waits longest gets first, after those who come anew in that moment.
        Source: recipes.txt, Queues.
        """
        feeder = self._check_open()
        if not block:
            feeder.flush(READ_OWN_PUTS_S)
        return self._get_now(bool(block), _seconds(block, timeout), self._maxsize)

    def put_nowait(self, obj: Item) -> None:
        """``put(obj, False)``."""
        self.put(obj, False)

    def get_nowait(self) -> Item:
        """``get(False)``."""
        return self.get(False)

    def qsize(self) -> int:
        """How many items are in the queue about now, those included that this process put before through this object.

        On loss: of the connection: it waits for the next one.
        Cost: 3 requests, 1 round trip, after the feeder has sent what there was.
        """
        self._feeder.flush()
        size = int(self._run(self._core.znodes.size()))
        return min(size, self._maxsize) if self._maxsize > 0 else size

    def empty(self) -> bool:
        """Whether there is no item about now.

        Raises: OSError if this process has put something and then closed the queue, as multiprocessing's does.
        Cost: as qsize.
        """
        if self._feeder.used and self._feeder.closed:
            raise OSError(f"Queue {self!r} is closed")
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether a put would have to wait about now. Cost: as qsize; none without a bound."""
        return self._maxsize > 0 and self.qsize() >= self._maxsize

    def close(self) -> None:
        """This process puts and gets no more here; the feeder sends what there is, and ends. Others go on."""
        self._feeder.close()

    def join_thread(self) -> None:
        """All that this process has put is sent. After close only.

        On loss: of the connection: it waits for the next one.
        """
        assert self._feeder.closed, f"Queue {self!r} not closed"
        if not self._feeder.cancelled:
            self._feeder.join()

    def cancel_join_thread(self) -> None:
        """This process does not wait, at its end, for its feeder: what that has not sent then is lost."""
        self._feeder.cancelled = True

    @staticmethod
    def _on_queue_feeder_error(e: BaseException, obj: Any) -> None:
        """Called with what could not be put, and why. A subclass may have its own, as of multiprocessing's."""
        traceback.print_exception(type(e), e, e.__traceback__, file=sys.stderr)


def _encoded(objs: Sequence[Any], encode: Callable[[Any], bytes], on_error: OnError) -> list[bytes]:
    """Those that pickle; the others are reported."""
    data: list[bytes] = []
    for obj in objs:
        try:
            data.append(encode(obj))
        except PayloadPickleError as error:
            on_error(error.__cause__ or error, obj)
        except Exception as error:
            on_error(error, obj)
    return data


def _send(client: Client, core: QueueCore, path: str, on_error: OnError, feeder: Feeder, objs: Sequence[Any]) -> None:
    """In the feeder: these are in the queue, or were reported."""
    kept: list[Any] = []

    def encode(obj: Any) -> bytes:
        data = client.codec.encode(obj, path)
        kept.append(obj)
        return data

    items = _encoded(objs, encode, on_error)
    progress = Progress()
    try:
        if items:
            client.run(feed(core, items, progress))
    except ClientClosedError as error:
        if not feeder.cancelled:
            _report(error, kept[progress.put :], on_error)
    except Exception as error:
        _report(error, kept[progress.put :], on_error)


def _report(error: BaseException, objs: Sequence[Any], on_error: OnError) -> None:
    for obj in objs:
        on_error(error, obj)


class JoinableQueue(Queue[Item]):
    """A Queue that counts what is put and not done; ``join`` waits until nothing is.

    An item counts from its put on: put returns when it is in the queue. Any process may say that one is done. One whose
    worker dies is never done, as with multiprocessing; with ``distsync.JoinableQueue`` another worker gets it.
    Units: as Queue.
    Cost: put 1 request, with a bound 3 in 1 round trip; get 2, in 1; task_done 1.
    Fair: as Queue.
    Source: recipes.txt, Queues; ``multiprocessing.JoinableQueue``.

    >>> jobs = JoinableQueue(name="counted")
    >>> jobs.put("first")
    >>> jobs.get()
    'first'
    >>> jobs.task_done(); jobs.join()
    """

    def put(self, obj: Item, block: bool = True, timeout: float | None = None) -> None:
        """``obj`` is in the queue, and counted.

        Units, On loss, On cancel, Source: as Queue.put.
        Raises: as Queue.put with a bound.
        Cost: 1 request; with a bound 3, in 1 round trip.
        """
        self._check_open().used = True
        self._put_at_once(obj, block, timeout)

    def task_done(self) -> None:
        """One item more is done.

        Raises: ValueError if all that were ever put are done already.
        Cost: 1 request if this process got as many items as it calls this, else 4.
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


class SimpleQueue(_Base[Item]):
    """First in, first out, without a bound, a feeder and time-outs: ``put`` returns when the item is in the queue.

    Units: items pickle, 1,000,000 bytes at most.
    Cost: put 1 request; get 2, in 1 round trip.
    Fair: as Queue.
    Source: recipes.txt, Queues; ``multiprocessing.SimpleQueue``.

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
        """``obj`` is in the queue.

        Raises: PayloadError for an item that does not pickle or is too large; OSError if this process has closed it.
        On loss, On cancel: as ``distsync.queue.Queue.put``.
        Cost: 1 request.
        """
        self._check_open()
        self._put_now(obj, True, None, 0)

    def get(self) -> Item:
        """The next item, as soon as there is one.

        Raises: as Queue.get, and OSError if this process has closed it.
        Cost, On loss, On cancel, Fair: as Queue.get.
        """
        self._check_open()
        return self._get_now(True, None, 0)

    def empty(self) -> bool:
        """Whether there is no item about now. Cost: 3 requests, 1 round trip."""
        self._check_open()
        return int(self._run(self._core.znodes.size())) == 0

    def close(self) -> None:
        """This process puts and gets no more here. Others go on. Cost: no request."""
        self._closed_in = fork_depth()


__getattr__ = stdlib_getattr("multiprocessing.queues", __name__)
