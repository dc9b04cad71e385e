"""The feeder: a thread that sends what put() has left in a buffer, so that put returns at once.

Rules for this file: it knows neither znodes nor pickles; ``send`` does the work.

There is one feeder for each queue object and process: two objects of one name send side by side. A forked child has
none of its parent's, and an empty buffer. The thread does not keep its queue: it ends when that is closed, or nobody
has it any more, and the buffer is empty. The process waits for that at its end, unless this was cancelled.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import util
from queue import SimpleQueue
from typing import Any

from distsync._client import lifecycle

#: So many items are sent at once: several transactions.
MAX_ITEMS = 800

Send = Callable[[Sequence[Any]], object]
"""Sends these items, and reports what cannot be sent; raises nothing."""

_running: weakref.WeakSet[Feeder] = weakref.WeakSet()
_END: Any = object()


class Feeder:
    """What one process has put and not sent yet."""

    def __init__(self) -> None:
        self.closed = False
        #: Whether this process has put anything, through the thread or not.
        self.used = False
        self.cancelled = False
        self._buffer: SimpleQueue[Any] = SimpleQueue()  # a finalizer may put the end into it in any line
        self._changed = threading.Condition(threading.Lock())
        self._unsent = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def put(self, item: Any, queue: object, sender: Callable[[], Send]) -> None:
        """``item`` will be sent; until then somebody has its ``queue``. ``sender`` makes the function to do so.

        Raises: ValueError if it is closed, also since the caller has looked.
        """
        with self._changed:
            if not self.closed:
                if self._thread is None:
                    self._start(sender())
                self._unsent += 1
                self._buffer.put((item, queue))
                return
        raise ValueError(f"Queue {queue!r} is closed")

    def _start(self, send: Send) -> None:
        _running.add(self)
        thread = threading.Thread(target=self._feed, args=(send,), name="QueueFeederThread", daemon=True)
        thread.start()
        self._thread = thread
        util.Finalize(thread, _finish, args=(weakref.ref(self),), exitpriority=-5)

    def _feed(self, send: Send) -> None:
        with self._changed:
            ends = self._thread is not threading.current_thread()  # the start of this one was interrupted
        while not ends:
            items, ends = self._next()
            try:
                send([item for item, _ in items])
            finally:
                with self._changed:
                    self._unsent -= len(items)
                    self._changed.notify_all()
            del items  # and with it what may be the last reference to the queue

    def _next(self) -> tuple[list[Any], bool]:
        """The next items, as soon as there are any, and whether there will be none after them."""
        items = [self._buffer.get()]
        while items[-1] is not _END and len(items) < MAX_ITEMS and not self._buffer.empty():
            items.append(self._buffer.get())
        ends = items[-1] is _END
        if ends:
            with self._changed:  # whoever was putting as it was closed has put now
                while not self._buffer.empty():
                    items.append(self._buffer.get())
        return [item for item in items if item is not _END], ends

    def flush(self, timeout: float | None = None) -> bool:
        """Whether all that was put before is sent, or was reported, in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unsent, timeout)

    def close(self) -> None:
        """Nothing more will be put: the thread sends what there is, and ends. Safe in finalizers."""
        self.closed = True
        self._buffer.put(_END)

    def join(self) -> None:
        """The thread, which was told to end, has ended."""
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            thread.join()

    def finish(self) -> None:
        """At the end of the process: what was put is sent."""
        if not self.cancelled and self._pid == os.getpid():
            self.close()
            self.join()


def _finish(feeder: weakref.ref[Feeder]) -> None:
    """At the end of a process of multiprocessing's."""
    living = feeder()
    if living is not None and living._thread is not threading.current_thread():
        living.finish()


def _finish_all() -> None:
    """At the end of a program, or of a process of ours."""
    for feeder in list(_running):
        feeder.finish()


os.register_at_fork(after_in_child=_running.clear)

lifecycle.before_end(_finish_all)
