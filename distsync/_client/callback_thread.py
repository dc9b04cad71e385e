"""The thread in which the user's callbacks run: one slow callback delays other callbacks only.

Rules for this file: it knows functions, and nothing of sessions.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

from distsync._client.own_threads import join

logger = logging.getLogger("distsync.client")


class Dispatcher:
    """Calls functions one after another, in a daemon thread that is started for the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._starting = threading.RLock()  # a signal handler may come in between
        self._thread: threading.Thread | None = None
        self._stopped = False

    def prepare(self) -> None:
        """The thread is there; ``call`` then works in any thread, and while a lock is held."""
        with self._starting:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                try:
                    self._thread.start()
                except Exception:  # there is none to be had now
                    self._thread = None
                    raise

    def call(self, function: Callable[[], object]) -> None:
        """``function`` will be called; what it raises is reported as a thread's death is."""
        self._waiting.put(function)

    def _work(self) -> None:
        while (function := self._waiting.get()) is not None:
            try:
                function()
            except BaseException:
                _report()
            del function

    def is_current(self) -> bool:
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def stop(self, seconds: float) -> None:
        """What waits is still called, for so long at most."""
        with self._starting:
            self._stopped = True
        self._waiting.put(None)
        if self._thread is not None and not self.is_current():
            join(self._thread, seconds)


def _report() -> None:
    """The exception that is being handled, as that of a thread that dies of it. The hook may be a program's own, and
    this thread outlives what that raises: the next callback may be the one that tells of a loss."""
    try:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
    except BaseException as error:
        logger.error("threading.excepthook raised an exception while it reported one of a callback: %r", error)
