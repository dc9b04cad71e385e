"""What ``progress=True`` of a pool does: a thread that looks at the pool, and draws a bar or logs a line.

The threads of the pool only append numbers to a list. Nothing that the display does, or that a slow
terminal keeps it from doing, delays a task or its result.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Protocol

from distsync import _log_thread
from distsync._client.clocks import wait_clock
from distsync._import_gate import importing
from distsync._log import OwnLogger
from distsync.multiprocessing._pool.progress import ProgressMeter, ProgressState, can_draw

#: Seconds until the first line is logged, and the longest pause between two. Each pause is twice as long
#: as the one before.
FIRST_LINE_S, MAX_PAUSE_S = 10.0, 60.0
#: Maximum wait in seconds for the display at the end of the pool.
END_S = 2.0

logger = OwnLogger("distsync.multiprocessing")


class ProgressSource(Protocol):
    """A pool whose progress is shown."""

    @property
    def has_stopped(self) -> bool:
        """Whether the pool was terminated, or has ended."""

    def unsent_items(self) -> tuple[int, bool]:
        """Return how many items wait to be encoded, as far as is known, and whether there may be more."""

    def worker_counts(self) -> tuple[int, int | None]:
        """Return the number of local workers, and of workers elsewhere; None if there can be none."""


class ProgressView(Protocol):
    """What the progress is shown on."""

    @property
    def pause_s(self) -> float:
        """Seconds until the next call of `show`."""

    def show(self, state: ProgressState) -> None: ...

    def end(self, state: ProgressState) -> None: ...

    def close(self) -> None: ...


class ProgressLog:
    """Lines in the log, for programs that have no terminal.

    Args:
        title: What the lines begin with.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._was_idle = False
        self.pause_s = FIRST_LINE_S

    def show(self, state: ProgressState) -> None:
        """Log a line, unless nothing has happened since all items were finished.

        Args:
            state: How far the pool is.
        """
        if not (self._was_idle and state.is_idle):
            logger.info("%s: %s", self._title, state.line())
            self.pause_s = min(2 * self.pause_s, MAX_PAUSE_S)
        self._was_idle = state.is_idle

    def end(self, state: ProgressState) -> None:
        """Log the last line, and wait until the program's handlers have it.

        Args:
            state: How far the pool has come.
        """
        logger.info("%s %s", self._title, state.last_line())
        _log_thread.flush(END_S / 2)

    def close(self) -> None:
        """Do nothing."""


#: For each process the display that draws on the terminal. A forked child has the entry of its parent, too.
_drawing: dict[int, ProgressDisplay] = {}


class ProgressDisplay:
    """Shows the progress of one pool from its first task on.

    If another pool of this process has a bar on the terminal then, it is shown by lines in the log.

    Args:
        name: Name of the pool; None if it has none.

    Raises:
        ModuleNotFoundError: stderr is a terminal, and rich is not installed.
    """

    def __init__(self, name: str | None) -> None:
        self._name, self._view = name, _new_view(name)
        self._meter = ProgressMeter()
        self._source: ProgressSource | None = None
        #: Numbers of items that were put and that are finished, and one element for each error.
        self._put: deque[int] = deque()
        self._finished: deque[int] = deque()
        self._failures: deque[None] = deque()
        self._total = self._done = self._errors = self._last_total = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._is_over = self._is_late = False
        self._pid = os.getpid()

    def watch(self, source: ProgressSource) -> None:
        """Set the pool to show.

        Args:
            source: The pool.
        """
        self._source = source

    def begun(self, items: int) -> None:
        """Count more items as put. Only one thread calls this.

        Args:
            items: Number of items.
        """
        if not self._is_over:
            self._put.append(items)
            if self._thread is None:
                self._start()

    def done(self, items: int) -> None:
        """Count more items as finished.

        Args:
            items: Number of items.
        """
        if not self._is_over:
            self._finished.append(items)

    def failed(self) -> None:
        """Count an error."""
        if not self._is_over:
            self._failures.append(None)

    def close(self) -> None:
        """Show the end, and wait a moment until it is shown. Does nothing in a forked child."""
        if self._pid != os.getpid():
            return
        self._closing.set()
        thread = self._thread
        if thread is None:
            self._is_over = True
        elif thread is not threading.current_thread():
            thread.join(END_S)
            self._is_late = thread.is_alive()

    def _start(self) -> None:
        """Start the thread; not earlier, because a pool that is not used shows nothing."""
        if not isinstance(self._view, ProgressLog) and _drawing.setdefault(self._pid, self) is not self:
            self._view = _new_log(self._name)
        self._thread = threading.Thread(target=self._run, name="distsync-pool-progress", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there are too many threads, or the program ends
            self._thread, self._is_over = None, True
            self._leave_terminal()

    def _leave_terminal(self) -> None:
        if _drawing.get(self._pid) is self:
            del _drawing[self._pid]

    def _run(self) -> None:
        view = self._view
        try:
            self._look()  # from now on, the time counts
            while not self._closing.wait(view.pause_s):
                view.show(self._look())
            if not self._is_late:
                view.end(self._look())
        except Exception as error:  # the terminal is gone, for example
            logger.warning("the progress of a pool is not shown any more: %s: %s", type(error).__name__, error)
        finally:
            self._is_over = True
            with suppress(Exception):
                view.close()
            self._leave_terminal()

    def _look(self) -> ProgressState:
        """Return how far the pool is."""
        source = self._source
        assert source is not None
        self._total += _drain(self._put)
        self._done += _drain(self._finished)
        while self._failures:
            self._failures.pop()
            self._errors += 1
        total, may_grow = self._total, False
        if source.has_stopped:  # the items that it has not begun are not finished either
            total = max(total, self._last_total)
        else:
            unsent, may_grow = source.unsent_items()
            total += unsent
        self._last_total = total
        local, remote = source.worker_counts()
        return self._meter.measure(
            wait_clock(),
            self._done,
            total,
            is_total_known=not may_grow,
            errors=self._errors,
            local=local,
            remote=remote,
        )


def _drain(numbers: deque[int]) -> int:
    """Remove all numbers, and return their sum."""
    total = 0
    while numbers:
        total += numbers.popleft()
    return total


def _new_log(name: str | None) -> ProgressLog:
    return ProgressLog("pool" if name is None else f"pool {name}")


def _new_view(name: str | None) -> ProgressView:
    """Return a bar if stderr is a terminal, and otherwise the log."""
    stream: Any = sys.stderr
    if not can_draw(stream, os.environ.get("TERM")):
        return _new_log(name)
    try:
        with importing():
            from distsync.multiprocessing._pool.progress_bar import TerminalBar
    except ImportError as error:
        raise ModuleNotFoundError(
            "progress=True needs rich on a terminal: pip install distsync[cli]", name="rich"
        ) from error
    return TerminalBar("tasks" if name is None else name, stream)
