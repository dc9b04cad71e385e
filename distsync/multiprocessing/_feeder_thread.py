"""The feeder: a thread that sends the items that ``put()`` has left in a buffer.

So ``put()`` returns at once. Each queue object has one feeder in each process, and two objects of
one name send concurrently. A forked child starts without its parent's feeder, and with an empty
buffer. The thread does not reference its queue. It ends when the queue is closed or deleted, and
the buffer is empty. The process waits for this at its end, unless the wait was cancelled.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import util
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from distsync import _log_thread
from distsync._client import lifecycle
from distsync._client.outage_limit import OutageLimit
from distsync._log import OwnLogger

if TYPE_CHECKING:
    from distsync._client.client import Client

logger = OwnLogger("distsync.multiprocessing")

#: Maximum number of items that are sent at once, in several transactions.
MAX_ITEMS = 800

Send = Callable[[Sequence[Any]], object]
"""Sends these items, and reports those that cannot be sent. Raises nothing."""

_running: weakref.WeakSet[Feeder] = weakref.WeakSet()
_END: Any = object()


class Feeder:
    """The items that one process has put into a queue object and not sent yet."""

    def __init__(self) -> None:
        self.closed = False
        #: Whether this process has put anything, through the thread or not.
        self.used = False
        self.cancelled = False
        self._has_ended = False
        self._buffer: SimpleQueue[Any] = SimpleQueue()  # a finalizer may put _END into it at any line
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._unsent = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        #: The client and the path of the queue; None until the thread is started.
        self.destination: tuple[Client, str] | None = None

    def put(self, item: Any, queue: object, sender: Callable[[], Send]) -> None:
        """Add an item to the buffer, and start the thread if necessary.

        Args:
            item: The item.
            queue: The queue object, which is referenced until the item is sent.
            sender: Returns the function that sends items, for the thread.

        Raises:
            ValueError: The feeder is closed, perhaps since the caller checked it, or the process ends. A
                daemon thread of the program gets no error then, as in the standard library, nor does a
                log handler for a record of distsync.
        """
        with self._lock:
            if not (self.closed or self._has_ended):
                if self._thread is None:
                    self._start(sender())
                self._unsent += 1
                self._buffer.put((item, queue))
                return
        if not self.closed and _log_thread.is_handling():  # a record of the end, for which it is too late
            return
        if not self.closed and self._thread is not threading.current_thread():
            lifecycle.end_daemon_thread()
        raise ValueError(f"Queue {queue!r} is closed")

    def _start(self, send: Send) -> None:
        _running.add(self)
        thread = threading.Thread(target=self._feed, args=(send,), name="QueueFeederThread", daemon=True)
        thread.start()
        self._thread = thread
        util.Finalize(thread, _finish, args=(weakref.ref(self),), exitpriority=-5)

    def _feed(self, send: Send) -> None:
        with self._lock:
            ends = self._thread is not threading.current_thread()  # the start of this one was interrupted
        while not ends:
            items, ends = self._next()
            try:
                send([item for item, _ in items])
            finally:
                with self._lock:
                    self._unsent -= len(items)
                    self._changed.notify_all()
            del items  # it may contain the last reference to the queue

    def _next(self) -> tuple[list[Any], bool]:
        """Wait for items; return them, and whether the feeder has ended."""
        items = [self._buffer.get()]
        while items[-1] is not _END and len(items) < MAX_ITEMS and not self._buffer.empty():
            items.append(self._buffer.get())
        ends = items[-1] is _END
        if ends:
            with self._lock:  # a put that was concurrent with close() has ended
                while not self._buffer.empty():
                    items.append(self._buffer.get())
        return [item for item in items if item is not _END], ends

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all items put before are sent or reported.

        Args:
            timeout: Maximum wait in seconds; None waits forever.

        Returns:
            True if all are sent; False on timeout.
        """
        with self._lock:
            return self._changed.wait_for(lambda: not self._unsent, timeout)

    def close(self) -> None:
        """Accept no more items; the thread sends the buffered ones, and ends. Safe in finalizers."""
        self.closed = True
        self._buffer.put(_END)

    def join(self) -> bool:
        """Wait until the thread has ended. Call `close` first.

        Returns:
            True if it has. False if no server answers, which is logged.
        """
        thread, destination = self._thread, self.destination
        if thread is None or destination is None or self._pid != os.getpid():
            return True
        client, path = destination
        limit = OutageLimit(client)
        if limit.join(thread):
            return True
        logger.warning("%d items of the queue %s were not sent: %s", self._unsent, path, limit.reason)
        return False

    def finish(self) -> None:
        """Send all items at the end of the process, unless the wait was cancelled."""
        if not self.cancelled and self._pid == os.getpid():
            self._has_ended = True  # not closed: other threads may still get
            self._buffer.put(_END)
            self.cancelled = not self.join()


def _finish(feeder: weakref.ref[Feeder]) -> None:
    """Finish a feeder at the end of a child process of multiprocessing."""
    living = feeder()
    if living is not None and living._thread is not threading.current_thread():
        living.finish()


def _finish_all() -> None:
    """Finish all feeders at the end of a program, or of a child process of distsync."""
    for feeder in list(_running):
        feeder.finish()


lifecycle.on_fork_in_child(_running.clear)
lifecycle.before_end(_finish_all)
