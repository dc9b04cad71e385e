"""The numbers of a pool's progress, and their texts."""

from __future__ import annotations

import io
import logging

import pytest

from distsync.multiprocessing._pool import progress_display
from distsync.multiprocessing._pool.progress import MIN_PERIOD_S, ProgressMeter, ProgressState, can_draw, duration_text
from distsync.multiprocessing._pool.progress_display import FIRST_LINE_S, MAX_PAUSE_S, ProgressDisplay, ProgressLog


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (ProgressState(0, 0), "0 of 0 items done, 0 workers"),
        (ProgressState(0, 30, local=1), "0 of 30 items done (0 %), 1 worker"),
        (
            ProgressState(1200, 5000, True, 3, 120.4, 10.0, 4, 8),
            "1,200 of 5,000 items done (24 %), 120/s, 3 errors, 0:00:32 left, 4 local + 8 remote workers",
        ),
        (
            ProgressState(10, 40, False, 1, 0.25, 40.0, 2),
            "10 of more than 40 items done, 4.0 s each, 1 error, 2 workers",
        ),
        (ProgressState(29, 30, rate=2.0, local=1), "29 of 30 items done (96 %), 2.0/s, 0:00:00 left, 1 worker"),
        (ProgressState(30, 30, rate=2.0, local=1), "30 of 30 items done (100 %), 2.0/s, 1 worker"),
    ],
)
def test_line_of_a_state(state: ProgressState, line: str) -> None:
    assert state.line() == line


def test_last_line_has_the_average_of_the_whole_time() -> None:
    state = ProgressState(1000, 1000, rate=7.0, seconds=20.0, local=3)
    assert state.last_line() == "ended with 1,000 of 1,000 items done in 0:00:20, 50/s, no errors"
    assert ProgressState(1, 2, errors=1).last_line() == "ended with 1 of 2 items done in 0:00:00, 1 error"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (61, "0:01:01"), (360_000, "100:00:00"), (1e12, "277,777:46:40")]
)
def test_duration_text(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_time_left_is_unknown_without_a_rate_or_a_total() -> None:
    assert ProgressState(1, 3, rate=2.0).seconds_left == 1.0
    assert ProgressState(1, 3).seconds_left is None
    assert ProgressState(0, 3, rate=0.0).seconds_left is None
    assert ProgressState(1, 3, is_total_known=False, rate=2.0).seconds_left is None
    assert ProgressState(3, 3, rate=2.0).seconds_left is None


def play(meter: ProgressMeter, begin: float, seconds: int, done: int, rate: float, total: int) -> ProgressState:
    """Measure every second, and return the last state."""
    state = meter.measure(begin, done, total)
    for second in range(1, seconds + 1):
        state = meter.measure(begin + second, done + int(second * rate), total)
    return state


def test_rate_is_the_average_at_first_and_follows_a_change() -> None:
    meter = ProgressMeter()
    assert meter.measure(100.0, 0, 10_000).rate is None
    assert play(meter, 100.0, 5, 0, 10, 10_000).rate == pytest.approx(10)
    assert play(meter, 105.0, 3 * int(MIN_PERIOD_S), 50, 100, 10_000).rate == pytest.approx(100, rel=0.15)


def test_rate_of_items_that_take_minutes_is_steady() -> None:
    """With a fixed period, the rate would be near 0 before each item, and far too high after it."""
    meter, rates = ProgressMeter(), list[float]()
    for second in range(3600):
        state = meter.measure(float(second), second // 60, 1000)
        if second > 1800:
            rates.append(state.rate or 0.0)
    assert 0.7 / 60 < min(rates) <= max(rates) < 1.3 / 60


def test_time_without_unfinished_items_does_not_count() -> None:
    meter = ProgressMeter()
    meter.measure(0.0, 0, 10)
    before = meter.measure(5.0, 10, 10)
    assert before.seconds == 5.0
    assert meter.measure(1000.0, 10, 10).rate == before.rate
    assert meter.measure(2000.0, 10, 20).seconds == 5.0
    assert meter.measure(2005.0, 20, 20).rate == pytest.approx(2.0)


def test_item_that_is_finished_before_it_is_counted_is_in_the_total() -> None:
    state = ProgressMeter().measure(0.0, 3, 2)
    assert (state.done, state.total) == (3, 3)


@pytest.mark.parametrize(("kind", "expected"), [("xterm", True), (None, True), ("dumb", False), ("unknown", False)])
def test_bar_is_drawn_on_a_terminal_only(kind: str | None, expected: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    closed = Terminal()
    closed.close()
    assert can_draw(Terminal(), kind) is expected
    assert not any(can_draw(stream, kind) for stream in (None, object(), io.StringIO()))


class Source:
    """A pool whose progress is set."""

    has_stopped = False
    unsent = (0, False)

    def unsent_items(self) -> tuple[int, bool]:
        return self.unsent

    def worker_counts(self) -> tuple[int, int | None]:
        return 2, None


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> ProgressDisplay:
    monkeypatch.setattr(progress_display.sys, "stderr", io.StringIO())
    monkeypatch.setattr(ProgressDisplay, "_start", lambda self: None)
    made = ProgressDisplay(None)
    made.watch(Source())
    return made


def test_display_counts_items_put_finished_failed_and_unsent(display: ProgressDisplay) -> None:
    source = Source()
    display.watch(source)
    source.unsent = 100, True
    for _ in range(5):
        display.begun(4)
    display.done(4)
    display.done(4)
    display.failed()
    state = display._look()
    assert (state.done, state.total, state.is_total_known, state.errors, state.local) == (8, 120, False, 1, 2)
    source.has_stopped = True
    state = display._look()
    assert (state.done, state.total, state.is_total_known) == (8, 120, True)


def test_line_is_logged_after_growing_pauses_and_not_while_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "distsync.multiprocessing")
    log, pauses = ProgressLog("pool p"), list[float]()
    for done in range(5):
        pauses.append(log.pause_s)
        log.show(ProgressState(done, 5, local=1))
    assert pauses == [FIRST_LINE_S, 20.0, 40.0, MAX_PAUSE_S, MAX_PAUSE_S]
    for _ in range(3):
        log.show(ProgressState(5, 5, local=1))
    log.end(ProgressState(5, 5))
    lines = caplog.messages
    assert len(lines) == 7
    assert lines[1] == "pool p: 1 of 5 items done (20 %), 1 worker"
    assert lines[-1] == "pool p ended with 5 of 5 items done in 0:00:00, no errors"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (100, f"tasks {'━' * 40} 60/60 37/s 5 errors 2 workers"),
        (46, "tasks ━━━━━━━━━━ 60/60 37/s 5 errors 2 workers"),
        (40, "tasks 60/60 37/s 5 errors 2 workers"),
        (34, "tasks ━━━━━━━━ 60/60 37/s 5 errors"),
        (16, "tasks 60/60 37/s"),
        (8, "60/60"),
    ],
)
def test_bar_leaves_out_what_has_no_room(width: int, line: str) -> None:
    pytest.importorskip("rich", reason="the extra cli is not installed")
    from rich.console import Console

    from distsync.multiprocessing._pool.progress_bar import TerminalBar

    console = Console(file=io.StringIO(), width=width)
    bar = TerminalBar("tasks", io.StringIO())
    console.print(bar._row(ProgressState(60, 60, True, 5, 37.0, 2.0, 2), False, width))
    assert console.file.getvalue() == f"{line}\n"  # type: ignore[attr-defined]
