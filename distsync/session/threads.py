"""Threads of our own, and whether one of them is the running one.

Rules for this file: the standard library only. ``threading.current_thread`` does not know a thread in its first line,
in which the garbage collector may run a finalizer; and an identifier is used again once its thread has ended.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class OwnThread(threading.Thread):
    """A daemon that knows when it is over."""

    over = False

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.over = True

    def is_current(self) -> bool:
        """Whether the caller runs in this thread; from any line of it."""
        return self.ident == threading.get_ident() and not self.over


def join(thread: threading.Thread, seconds: float) -> None:
    """It is over, or the time; also one whose start failed."""
    with suppress(RuntimeError):
        thread.join(seconds)
