"""Thread for the user's callbacks: a slow callback delays only other callbacks."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

from distsync._client.own_threads import join

logger = logging.getLogger("distsync.client")


class Dispatcher:
    """Calls functions one after another, in a daemon thread that `prepare` starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._start_lock = threading.RLock()  # reentrant for signal handlers
        self._thread: threading.Thread | None = None
        self._stopped = False

    def prepare(self) -> None:
        """Start the thread. From then on ``call`` works in any thread, and while a lock is held."""
        with self._start_lock:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    self._thread.start()
                except Exception:  # no thread is available
                    self._thread = None
                    raise

    def call(self, function: Callable[[], object]) -> None:
        """Call ``function`` soon. Its error is passed to threading.excepthook."""
        self._waiting.put(function)

    def _run(self) -> None:
        while (function := self._waiting.get()) is not None:
            try:
                function()
            except BaseException:
                _report()
            del function

    def is_current(self) -> bool:
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def stop(self, seconds: float) -> None:
        """End the thread after the pending functions, waiting for up to ``seconds``."""
        with self._start_lock:
            self._stopped = True
        self._waiting.put(None)
        if self._thread is not None and not self.is_current():
            join(self._thread, seconds)


def _report() -> None:
    """Report the current exception like one that ends a thread.

    The hook may be the program's own, and raise. This thread must not end then: the next callback
    may report a loss.
    """
    try:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
    except BaseException as error:
        logger.error("threading.excepthook failed to report the exception of a callback: %r", error)
