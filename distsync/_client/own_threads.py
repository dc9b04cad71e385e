"""Threads that distsync starts.

Whether the current thread is one of them is decided without ``threading.current_thread``. That does
not know a thread at its first line, at which the garbage collector may run a finalizer. Identifiers
of threads are reused after their end.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class OwnThread(threading.Thread):
    """A thread that knows whether it has ended."""

    has_ended = False

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.has_ended = True

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread, at any line of it."""
        return self.ident == threading.get_ident() and not self.has_ended


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait for up to ``seconds`` until ``thread`` has ended. A thread that failed to start has."""
    with suppress(RuntimeError):
        thread.join(seconds)
