"""``progress=True`` of a pool: a bar on a terminal, lines in the log elsewhere, and never in the way of a task."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.reached import requests_of
from helpers.remote_functions import pool as remote_pool
from helpers.subprocesses import ROOT
from helpers.timing import PATIENCE, eventually

from distsync._client.client import Client
from distsync._protocols.pool import workers
from distsync._protocols.steps import Signal
from distsync.futures import Executor
from distsync.multiprocessing import get_context
from distsync.multiprocessing._pool import progress_display
from distsync.multiprocessing._pool.pool_worker import new_core
from distsync.multiprocessing.pool import Pool
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal, and what is written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._main, side = pty.openpty()
        self.stream = open(side, "w", encoding="utf-8", buffering=1)
        self._read = bytearray()
        self._reader = threading.Thread(target=self._run, daemon=True)

    def use(self, read: bool = True) -> None:
        """Make this stderr, and read what is written. pytest sets another stderr after the fixtures."""
        self._monkeypatch.setattr(sys, "stderr", self.stream)
        if read:
            self.read()

    def read(self) -> None:
        """Read what is written."""
        self._reader.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(self._main, 4096):
                self._read += data

    def fill(self) -> None:
        """Write as much as fits, so that the next writer waits."""
        os.set_blocking(self.stream.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.stream.fileno(), b"." * 100)
        os.set_blocking(self.stream.fileno(), True)

    def hang_up(self) -> None:
        """End the terminal, as the end of a connection does."""
        os.close(self._main)
        self._main = -1

    @property
    def raw(self) -> str:
        return self._read.decode(errors="replace")

    @property
    def text(self) -> str:
        """The output without colours and movements of the cursor."""
        return ESCAPES.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """The lines as they are shown in the end."""
        return [line.split("\r")[-1].rstrip() for line in self.text.replace("\r\n", "\n").split("\n")]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        if self._reader.ident is not None:
            self._reader.join()
        if self._main >= 0:
            os.close(self._main)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Yield a terminal."""
    pytest.importorskip("rich", reason="the extra cli is not installed")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    made = Terminal(monkeypatch)
    yield made
    monkeypatch.undo()
    made.close()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Make stderr a file, and let lines be logged without long pauses."""
    monkeypatch.setattr(progress_display, "can_draw", lambda *_: False)
    monkeypatch.setattr(progress_display, "FIRST_LINE_S", 0.01)
    monkeypatch.setattr(progress_display, "MAX_PAUSE_S", 0.01)
    caplog.set_level(logging.INFO, "distsync.multiprocessing")
    return caplog


def fail(number: int) -> int:
    raise ValueError(number)


def stdout_and_pid(_: int) -> tuple[str, int]:
    return type(sys.stdout).__name__, os.getpid()


# ---- off a terminal


def check_lines(logged: pytest.LogCaptureFixture, name: str | None) -> None:
    with Pool(1, name=name, progress=True) as pool:
        assert pool.map(remote_pool.slow_square, range(10), 1) == [number**2 for number in range(10)]
        with pytest.raises(ValueError, match="3"):
            pool.apply(fail, (3,))
        eventually(lambda: any("11 of 11 items done (100 %)" in line for line in logged.messages))
        pool.close()
        pool.join()
        messages = list(logged.messages)
    subject = "pool" if name is None else "pool thumbs"
    workers_text = "1 worker" if name is None else r"1 local \+ 0 remote workers"
    pattern = rf"{subject}: \d+ of 1[01] items done \(\d+ %\),.* left, {workers_text}"
    assert any(re.fullmatch(pattern, line) for line in messages)
    assert re.fullmatch(rf"{subject} ended with 11 of 11 items done in 0:\d\d:\d\d, .*, 1 error", messages[-1])
    assert logged.messages == messages, "something was logged after the end"


def test_lines_are_logged_off_a_terminal(unreachable: Client, logged: pytest.LogCaptureFixture) -> None:
    check_lines(logged, None)


@pytest.mark.slow_on("zookeeper")
def test_lines_of_a_pool_with_a_name_tell_workers_apart(client: Client, logged: pytest.LogCaptureFixture) -> None:
    check_lines(logged, "thumbs")


def test_total_of_a_map_is_known_before_its_tasks_are_sent(
    unreachable: Client, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distsync.multiprocessing._pool.pipe_caller.UNDER_WAY", 4)
    with Pool(1, progress=True) as pool:
        pool.map(remote_pool.slow_square, range(12), 1)
    assert {re.findall(r"of ([\w ]+) items", line)[0] for line in logged.messages} == {"12"}


def test_total_has_all_items_of_jobs_that_wait_for_others(
    unreachable: Client, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each counted as one item, and an iterable of known length as one of unknown length."""
    monkeypatch.setattr("distsync.multiprocessing._pool.pipe_caller.UNDER_WAY", 4)
    begun, may_end, ended = tmp_path / "begun", tmp_path / "may_end", tmp_path / "ended"
    with Pool(1, progress=True) as pool:
        results: list[Any] = [pool.apply_async(remote_pool.wait_for_file, (begun, may_end, ended))]
        iterators = [pool.imap(remote_pool.square, range(10)), pool.imap(remote_pool.square, range(15), 4)]
        results += [pool.map_async(remote_pool.square, range(20), 1), pool.map_async(remote_pool.square, range(30), 7)]
        results += [pool.starmap_async(pow, [(2, 3)] * 4), pool.apply_async(remote_pool.square, (3,))]
        iterators.append(pool.imap_unordered(remote_pool.square, [1, 2, 3]))
        eventually(lambda: any("0 of 84 items done" in line for line in logged.messages))
        results.append(pool.map_async(remote_pool.square, iter(range(6)), 2))
        iterators.append(pool.imap(remote_pool.square, iter(range(5)), 2))
        eventually(lambda: any("0 of more than 90 items done" in line for line in logged.messages))
        may_end.touch()
        assert [len(list(each)) for each in iterators] == [10, 15, 3, 5]
        for each in results:
            each.get(PATIENCE)
        pool.close()
        pool.join()
    assert "ended with 95 of 95 items" in logged.messages[-1]


def test_total_of_an_iterable_that_is_not_read_to_its_end_is_not_known(
    unreachable: Client, logged: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        gate.wait()
        yield 2

    with Pool(1, progress=True) as pool:
        results = pool.imap(remote_pool.square, numbers())
        assert next(results) == 1
        eventually(lambda: any("1 of more than 1 items done" in line for line in logged.messages))
        gate.set()
        assert next(results) == 4
    assert "ended with 2 of 2 items" in logged.messages[-1]


def test_task_that_cannot_be_sent_counts_as_an_error(unreachable: Client, logged: pytest.LogCaptureFixture) -> None:
    with Executor(1, progress=True) as executor:
        future = executor.submit(lambda: None)
        assert future.exception() is not None
    assert re.search("ended with 1 of 1 items done in .*, 1 error$", logged.messages[-1])


def test_pool_without_tasks_shows_nothing(unreachable: Client, logged: pytest.LogCaptureFixture) -> None:
    with Pool(1, progress=True):
        pass
    assert logged.messages == []


PROGRAM = """
import logging, sys
logging.basicConfig(level="INFO", format="%(message)s")
from distsync.multiprocessing import Pool
with Pool(1, progress=True) as pool:
    print(pool.map(abs, [-1, 2]))
print("rich" in sys.modules)
"""


def test_program_without_a_terminal_logs_and_does_not_need_rich(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('there is no rich')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=6 * PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.stdout == "[1, 2]\nFalse\n", done.stderr
    assert re.fullmatch(r"pool ended with 2 of 2 items done in 0:\d\d:\d\d, .*no errors\n", done.stderr)


# ---- on a terminal


def test_bar_shows_numbers_and_is_left_as_it_is(client: Client, terminal: Terminal) -> None:
    terminal.use()
    with Pool(1, name="thumbs", progress=True) as pool:
        pool.map(remote_pool.slow_square, range(10), 1)
        eventually(lambda: "1 local + 0 remote" in terminal.text)
        with pytest.raises(ValueError, match="7"):
            pool.apply(fail, (7,))
        pool.close()
        pool.join()
        stdout, stderr = sys.stdout, sys.stderr
    eventually(lambda: terminal.raw.endswith("\n"))
    assert re.fullmatch(r"thumbs ━+ 11/11 .*(/s|each) 1 error 0:\d\d:\d\d", terminal.lines[-2])
    assert terminal.lines[-1] == ""
    assert "left" in terminal.text
    assert "\x1b[?25l" not in terminal.raw, "the cursor of a program that is killed would stay hidden"
    assert stderr is terminal.stream
    assert type(stdout).__name__ != "FileProxy"


def test_program_prints_above_the_bar_but_to_a_file_if_stdout_is_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, unreachable: Client
) -> None:
    """Output that the program redirected to a file went to the terminal."""
    terminal.use()
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with Pool(1, progress=True) as pool:
        pool.apply(remote_pool.square, (3,))
        eventually(lambda: "1/1" in terminal.text)
        print("to the file")
        print("to the terminal", file=sys.stderr)
    assert file.getvalue() == "to the file\n"
    eventually(lambda: terminal.raw.endswith("\n"))
    assert "to the terminal" in terminal.lines
    assert terminal.lines[-2].startswith("tasks ━")
    assert "to the file" not in terminal.text


def test_forked_children_print_without_the_bar(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, unreachable: Client
) -> None:
    """A worker that was started while the bar was shown printed through it, under a lock of the parent."""
    terminal.use()
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    with Pool(1, context=get_context("fork"), maxtasksperchild=1, progress=True) as pool:
        pool.apply(remote_pool.square, (1,))
        eventually(lambda: type(sys.stdout).__name__ == "FileProxy")
        found = [pool.apply(stdout_and_pid, (0,)) for _ in range(3)]
        assert len({process for _, process in found}) == 3
        assert {stream for stream, _ in found} == {"TextIOWrapper"}
        pid = os.fork()
        if pid == 0:
            pool.terminate()
            os._exit(0 if sys.stdout is terminal.stream else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sys.stdout is terminal.stream


def test_only_one_pool_at_a_time_draws_a_bar(
    terminal: Terminal, unreachable: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Their bars took turns, one over the other."""
    caplog.set_level(logging.INFO, "distsync.multiprocessing")
    terminal.use()
    with Executor(1, progress=True) as first, Pool(1, progress=True) as second:
        first.submit(abs, -1).result()
        eventually(lambda: "1/1" in terminal.text)
        second.map(abs, range(7))
        second.close()
        second.join()
        assert [line for line in caplog.messages if line.startswith("pool ended with 7 of 7 items")]
        first.submit(abs, -1).result()
    with Pool(1, progress=True) as third:
        third.map(abs, range(9))
    eventually(lambda: "9/9" in terminal.text)
    assert "7/7" not in terminal.text
    assert [line.split()[2] for line in terminal.lines if line] == ["2/2", "9/9"]


@pytest.mark.parametrize("end", ["interrupt", "terminate"])
def test_interrupted_program_leaves_a_usable_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, unreachable: Client, end: str
) -> None:
    terminal.use()
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    with contextlib.suppress(KeyboardInterrupt), Pool(1, progress=True) as pool:
        result = pool.map_async(remote_pool.slow_square, range(1000), 1)
        eventually(lambda: "/1,000" in terminal.text)
        if end == "interrupt":
            raise KeyboardInterrupt
        pool.terminate()
    assert not result.successful()
    assert (sys.stdout, sys.stderr) == (terminal.stream, terminal.stream)
    eventually(lambda: terminal.raw.endswith("\n"))
    assert re.fullmatch(r"tasks .* \d+/1,000 .*", terminal.lines[-2])


def test_terminal_that_is_gone_stops_no_task(
    terminal: Terminal, unreachable: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "can_draw", lambda *_: True)  # it is gone right after this look
    terminal.use(read=False)
    terminal.hang_up()
    with Pool(1, progress=True) as pool:
        assert pool.map(remote_pool.square, range(5)) == [0, 1, 4, 9, 16]
        eventually(lambda: any("progress of a pool is not shown any more" in line for line in caplog.messages))
        assert pool.apply(remote_pool.square, (3,)) == 9


def test_terminal_that_takes_nothing_delays_no_task(
    terminal: Terminal, unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "END_S", 0.1)
    terminal.use(read=False)
    terminal.fill()
    with Pool(1, progress=True) as pool:
        assert pool.map(remote_pool.square, range(5)) == [0, 1, 4, 9, 16]
        pool.close()
        pool.join()
    terminal.read()
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "distsync-pool-progress"])
    assert sys.stderr is terminal.stream


def test_progress_on_a_terminal_without_rich_says_what_to_install(
    terminal: Terminal, unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.use(read=False)
    monkeypatch.delitem(sys.modules, "distsync.multiprocessing._pool.progress_bar", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(ModuleNotFoundError, match=r"distsync\[cli\]"):
        Pool(1, progress=True)


# ---- workers


def counted(pool: Any) -> Any:
    return pool._submitting.worker_counts()


def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of each listing of workers is added."""
    listed = list[str]()
    names_below = workers.names_below

    async def listing(path: str, watch: Any) -> Any:
        listed.append(path)
        return await names_below(path, watch)

    monkeypatch.setattr(workers, "names_below", listing)
    return listed


@pytest.fixture
def quick_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LISTING_PAUSE_S", 0.01)


def test_workers_elsewhere_are_counted_busy_or_idle(
    client: Client, make_client: MakeClient, quick_counts: None, logged: pytest.LogCaptureFixture
) -> None:
    with Pool(1, name="p", progress=True) as pool:
        eventually(lambda: counted(pool) == (1, 0))
        with Pool(2, name="p", client=make_client()) as other:
            eventually(lambda: counted(pool) == (1, 2))
            results = pool.map_async(remote_pool.slow_square, range(20), 1)
            while not results.ready():
                assert counted(pool) == (1, 2)
                time.sleep(0.01)
            other.close()
            other.join()
            eventually(lambda: counted(pool) == (1, 0))
    pool.join()


def test_workers_are_listed_once_in_a_while_and_only_for_progress(
    client: Client, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    listed = listings(monkeypatch)
    with Pool(1, name="p", progress=True) as pool, Pool(1, name="p", client=make_client()) as other:
        assert pool.map(remote_pool.square, range(50), 1) == [number**2 for number in range(50)]
        assert listed == [f"{pool.path}/workers"]
    pool.join()
    other.join()


def test_workers_are_listed_again_only_after_a_change(
    client: Client,
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    quick_counts: None,
    logged: pytest.LogCaptureFixture,
) -> None:
    listed = listings(monkeypatch)
    with Pool(1, name="p", progress=True) as pool, Pool(1, name="p", client=make_client()) as other:
        eventually(lambda: counted(pool) == (1, 1) and pool.apply(remote_pool.square, (3,)) == 9)
        before = len(listed)
        pool.map(remote_pool.slow_square, range(10), 1)
        assert len(listed) <= before + 1  # the last one was without its watch yet
    pool.join()
    other.join()


@pytest.mark.slow_on("zookeeper")
def test_worker_is_announced_at_the_documented_cost(client: Client, nothing_kept: None) -> None:
    core = new_core(client, client.path("pool", "p"))
    client.run(core.look())
    counts, stop = list[int](), Signal()
    for expected in (4, 2):
        before = requests_of(client)
        client.run(workers.announce_workers(core, None, b""))
        eventually(lambda: requests_of(client) == before + expected)  # noqa: B023
    client.background(workers.watch_other_workers(core, "a caller", counts.append, stop))
    eventually(lambda: counts == [2])
    stop.fire()
    client.close()


def test_workers_are_counted_after_an_outage(
    far: Client, proxy: Proxy, quick_counts: None, make_client: MakeClient, logged: pytest.LogCaptureFixture
) -> None:
    with Pool(0, name="p", client=far, progress=True) as pool:
        eventually(lambda: counted(pool) == (0, 0))
        proxy.refuse()
        eventually(lambda: far.state != "connected")
        with Pool(1, name="p", client=make_client()) as other:
            assert counted(pool) == (0, 0)
            proxy.heal()
            eventually(lambda: counted(pool) == (0, 1))
            assert pool.apply(remote_pool.square, (3,)) == 9
            other.close()
            other.join()
    pool.join()
