"""The progress bar of a pool on a terminal. Imported only for a terminal, because rich may not be installed."""

from __future__ import annotations

import os
import sys
import weakref
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from distsync.multiprocessing._pool.progress import ProgressState, can_draw, duration_text

#: Seconds between two looks, and between two redraws if only the time has changed.
LOOK_S, REDRAW_S = 0.1, 1.0
#: Maximum and minimum width of the bar itself; it is left out if there is less room.
MAX_WIDTH, MIN_WIDTH = 40, 5


class _Console(Console):
    """A console that never hides the cursor: a program that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class TerminalBar:
    """A progress bar on a terminal. The output of the program appears above it.

    Args:
        title: Text before the bar.
        stream: The terminal.
    """

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title, self._stream = title, stream
        self._live: Live | None = None
        self._shown: ProgressState | None = None
        #: The replaced streams of ``sys``, by name: each with its replacement first.
        self._replaced: dict[str, tuple[object, object]] = {}
        self.pause_s = 0.0
        _bars.add(self)

    def show(self, state: ProgressState) -> None:
        """Draw the bar if it has changed.

        Args:
            state: How far the pool is.
        """
        self.pause_s = LOOK_S
        if self._is_current(state):
            return
        if self._live is None:
            self._start()
        self._draw(state)

    def end(self, state: ProgressState) -> None:
        """Draw the bar a last time, and leave it as it is.

        Args:
            state: How far the pool has come.
        """
        if self._live is None:
            self._start()
        self._draw(state, is_last=True)

    def close(self) -> None:
        """Restore what the program prints to."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._replaced.clear()

    def _is_current(self, state: ProgressState) -> bool:
        """Return whether what is drawn is good enough."""
        shown = self._shown
        if shown is None:
            return False
        if (shown.count_text(), shown.errors) != (state.count_text(), state.errors):
            return False
        return state.is_idle or state.seconds - shown.seconds < REDRAW_S

    def _start(self) -> None:
        console = _Console(file=self._stream, force_terminal=True)
        before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        prints_here = can_draw(before["stdout"], os.environ.get("TERM"))  # output to a file or a pipe must arrive there
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=prints_here,
            redirect_stderr=before["stderr"] is self._stream,
        )
        self._live.start()
        self._replaced = {
            name: (getattr(sys, name), old) for name, old in before.items() if getattr(sys, name) is not old
        }

    def _draw(self, state: ProgressState, is_last: bool = False) -> None:
        assert self._live is not None
        self._shown = state
        self._live.update(self._row(state, is_last, self._live.console.width), refresh=True)

    def _row(self, state: ProgressState, is_last: bool, width: int) -> Table:
        """Return the line to draw."""
        texts = [Text(self._title), Text(state.count_text(), "green")]
        texts.append(Text(state.rate_text(), "cyan"))
        texts.append(Text(state.errors_text(), "red"))
        texts.append(Text(duration_text(state.seconds) if is_last else state.left_text(), "yellow"))
        texts.append(Text("" if is_last else state.workers_text(), "dim"))
        texts = [text for text in texts if text.plain]
        while len(texts) > 1 and _width_of(texts) > width:  # a number that is cut off would be a wrong one
            texts.pop(-1 if len(texts) > 2 else 0)
        room = min(MAX_WIDTH, width - _width_of(texts) - 1)
        cells: list[Text | ProgressBar] = [*texts]
        if room >= MIN_WIDTH:
            cells.insert(1, ProgressBar(max(1, state.total), state.done, room))
        row = Table.grid(padding=(0, 1, 0, 0))
        for _ in cells:
            row.add_column(no_wrap=True, overflow="crop")
        row.add_row(*cells)
        return row

    def _after_fork(self) -> None:
        """Let a forked child print to where the program prints, and never draw."""
        for name, (ours, before) in self._replaced.items():
            if getattr(sys, name) is ours:
                setattr(sys, name, before)
        self._replaced.clear()


def _width_of(texts: list[Text]) -> int:
    return sum(text.cell_len for text in texts) + len(texts) - 1


_bars: weakref.WeakSet[TerminalBar] = weakref.WeakSet()


def _restore_in_child() -> None:
    for bar in list(_bars):
        bar._after_fork()


os.register_at_fork(after_in_child=_restore_in_child)
