"""The progress bar of a pool, on stderr, drawn by rich, which is imported only if it is needed."""

from __future__ import annotations

import threading
from typing import Any


class Bar:
    """A progress bar that counts finished items of all items put so far.

    Args:
        title: Text before the bar.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """

    def __init__(self, title: str) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError as error:
            raise ModuleNotFoundError("progress=True needs rich: pip install distsync[cli]", name="rich") from error
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._shown: Any = Progress(*columns, console=Console(stderr=True))
        self._title, self._row = title, None
        self._total = self._done = 0
        self._lock = threading.Lock()
        self._closed = False

    def begun(self, items: int) -> None:
        """Count more items as put.

        Args:
            items: Number of items.
        """
        with self._lock:
            self._total += items
            self._show()

    def done(self, items: int) -> None:
        """Count more items as finished.

        Args:
            items: Number of items.
        """
        with self._lock:
            self._done += items
            self._show()

    def _show(self) -> None:
        if self._row is None and not self._closed:
            self._shown.start()  # not earlier, so that the worker processes are started without a display
            self._row = self._shown.add_task(self._title, total=0)
        self._shown.update(self._row, completed=self._done, total=self._total)

    def close(self) -> None:
        """Stop the bar, and leave it as it is."""
        with self._lock:
            self._closed = True
            self._shown.stop()
