"""Threads that distsync starts.

Whether the current thread is one of them is decided with the standard library alone: ``threading.current_thread`` does
not know a thread in its first line, in which the garbage collector may run a finalizer, and an identifier is reused
after a thread ends.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class OwnThread(threading.Thread):
    """A thread that knows whether it has ended."""

    over = False

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.over = True

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread, in whichever line of it."""
        return self.ident == threading.get_ident() and not self.over


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait until ``thread`` has ended, ``seconds`` at most. A thread whose start failed has ended."""
    with suppress(RuntimeError):
        thread.join(seconds)
