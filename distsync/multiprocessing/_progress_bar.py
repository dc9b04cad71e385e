"""How far a pool is, on stderr.

Rules for this file: the one of this package that knows rich, which is not there unless it was asked for.
"""

from __future__ import annotations

import threading
from typing import Any


class Bar:
    """A bar that counts items: those that were done, of those that were put so far. Raises ModuleNotFoundError."""

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
        """So many more are to be done."""
        with self._lock:
            self._total += items
            self._show()

    def done(self, items: int) -> None:
        """So many more are done."""
        with self._lock:
            self._done += items
            self._show()

    def _show(self) -> None:
        if self._row is None and not self._closed:
            self._shown.start()  # not before there is something to show: worker processes are started without a display
            self._row = self._shown.add_task(self._title, total=0)
        self._shown.update(self._row, completed=self._done, total=self._total)

    def close(self) -> None:
        """The bar stands as it is."""
        with self._lock:
            self._closed = True
            self._shown.stop()
