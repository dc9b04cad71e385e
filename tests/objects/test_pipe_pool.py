"""Pools without a name, whose workers are fed by pipes: no server, no lost task, and none that waits behind another."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_sharer
from pathlib import Path
from typing import Any

import pytest
from helpers.remote_functions import pool as remote_pool
from helpers.timing import PATIENCE, UNIT, eventually

from distsync import (
    PayloadRefusedError,
    PayloadTooLargeError,
    StillUsedError,
    TaskLostError,
    TaskTimeoutError,
    WorkerStartError,
)
from distsync._client import default_client
from distsync._client.client import Client
from distsync.futures import Executor
from distsync.multiprocessing import get_context
from distsync.multiprocessing._pool import pipe_caller, pool_caller
from distsync.multiprocessing._pool.pipe_codec import DONE, LEAVING, RESULT, TASK
from distsync.multiprocessing._pool.pipe_feed import PipeTask, WorkerFeed
from distsync.multiprocessing.pool import Pool

LONG = 3 * PATIENCE


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    yield str(request.param)
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def task(number: int, payload: bytes = b"task") -> PipeTask:
    return PipeTask(number, 0, TASK.pack(number, 0, len(payload)) + payload, "f", 1)


def answer(feed: WorkerFeed, number: int, payload: bytes, kind: int = DONE) -> None:
    os.write(feed.pipes.results.fileno(), RESULT.pack(number, 0, len(payload), 1e-5, kind) + payload)


# ---- the pipes


def test_tasks_that_the_worker_has_not_read_are_taken_back(method: str) -> None:
    feed, tasks = WorkerFeed(method, None), [task(number) for number in range(4)]
    feed.send(tasks[:3])
    feed.send(tasks[3:])
    assert os.read(feed.pipes.tasks.fileno(), len(tasks[0].frame)) == tasks[0].frame
    assert feed.take_back() == tasks[1:]
    assert list(feed.tasks) == tasks[:1]
    assert feed.take_back() == []
    feed.close()


def test_tasks_that_did_not_fit_into_the_pipe_are_taken_back() -> None:
    feed, tasks = WorkerFeed("fork", None), [task(number, bytes(50_000)) for number in range(5)]
    feed.send(tasks)
    assert not feed.is_flushed
    assert feed.take_back() == tasks
    assert feed.is_flushed
    feed.send(tasks[:1])
    assert os.read(feed.pipes.tasks.fileno(), 100_000) == tasks[0].frame
    feed.close()


def test_tasks_stay_while_the_worker_reads_one() -> None:
    feed, tasks = WorkerFeed("fork", None), [task(number) for number in range(2)]
    feed.send(tasks)
    with feed.pipes.lock:
        assert feed.take_back() is None
    assert feed.take_back() == tasks
    feed.close()


def test_worker_gets_no_more_tasks_than_it_runs() -> None:
    feed = WorkerFeed("fork", 3)
    assert feed.room() == 0
    feed.is_ready, feed.task_seconds = True, 0.0
    assert feed.room() == 3
    feed.send([task(1), task(2)])
    assert feed.room() == 1
    feed.take_back()
    assert feed.room() == 3
    answer(feed, -1, b"", LEAVING)
    assert feed.receive() == []
    assert feed.room() == 0
    feed.close()


def test_worker_gets_several_tasks_at_once_only_if_they_are_short() -> None:
    feed = WorkerFeed("fork", None)
    feed.is_ready = True
    feed.send([task(number) for number in range(40)])
    assert feed.room() < 0
    for number in range(20):
        answer(feed, number, b"")
    feed.receive()
    assert feed.room() > 100
    os.write(feed.pipes.results.fileno(), RESULT.pack(20, 0, 0, 1.0, DONE))
    feed.receive()
    assert feed.room() == 1 - len(feed.tasks)
    feed.close()


def test_results_are_read_in_whatever_pieces_they_arrive() -> None:
    feed, tasks = WorkerFeed("fork", None), [task(number) for number in range(3)]
    feed.send(tasks)
    frame = RESULT.pack(0, 0, 5, 1e-5, DONE) + b"first"
    for byte in frame[:-1]:
        os.write(feed.pipes.results.fileno(), bytes([byte]))
        assert feed.receive() == []
    os.write(feed.pipes.results.fileno(), frame[-1:] + RESULT.pack(1, 0, 0, 1e-5, DONE))
    assert feed.receive() == [(tasks[0], DONE, b"first"), (tasks[1], DONE, b"")]
    assert list(feed.tasks) == tasks[2:]
    feed.close()


# ---- without a server


def test_pool_and_executor_without_a_name_need_no_server(unreachable: Client, method: str) -> None:
    with get_context(method).Pool(2) as pool:
        assert pool.map(remote_pool.square, range(20)) == [number * number for number in range(20)]
        with pytest.raises(ZeroDivisionError):
            pool.apply(divmod, (1, 0))
        pool.close()
        pool.join()
    with Executor(1, mp_context=get_context(method)) as executor:
        assert executor.submit(abs, -2).result(LONG) == 2
    assert unreachable.state == "connecting"
    assert not unreachable.statistics().requests


def test_pool_without_a_name_has_nothing_to_destroy(unreachable: Client) -> None:
    pool = Pool(1)
    pool.close()
    with pytest.raises(StillUsedError):
        pool.destroy()
    pool.join()
    pool.destroy()


# ---- too many open files


@contextmanager
def free_files(count: int) -> Iterator[None]:
    """Limit the files that this process may open, so that ``count`` more can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = open_files()
    free = [number for number in range(max(used) + count + 2) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[count], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_files() -> set[int]:
    return {int(each) for each in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{each}")}


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_pool_for_which_there_are_too_few_files_says_how_many_it_needs_and_leaves_nothing_behind(
    client: Client, name: str | None
) -> None:
    """Some of the started processes, and files, stayed, or the pool hung because one of its threads had failed."""
    with get_context("fork").Pool(1, name=name) as pool:  # opens what all pools share
        pool.apply(abs, (-1,))
    pool.join()
    before, children, refused = open_files(), multiprocessing.active_children(), 0
    while (error := error_with_free_files(refused, name)) is not None:
        assert error.errno == errno.EMFILE
        assert "a pool with 2 local workers needs 30 of the" in str(error)
        assert open_files() == before, f"{refused} free files"
        assert multiprocessing.active_children() == children
        assert not [each for each in threading.enumerate() if each.name.startswith("distsync-pool")]
        refused += 1
    assert 16 <= refused <= 30


def error_with_free_files(count: int, name: str | None) -> OSError | None:
    """Return why a pool cannot be made if ``count`` files can be opened; None if it can."""
    with free_files(count):
        try:
            pool = get_context("fork").Pool(2, name=name)
        except OSError as error:
            return error
    pool.terminate()
    pool.join()
    return None


# ---- tasks that are sent together


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of tasks that were sent together, as they are added."""
    sizes, send = list[int](), pipe_caller.PipeCaller._send_or_keep

    def send_and_count(caller: pipe_caller.PipeCaller, tasks: list[PipeTask]) -> None:
        sizes.append(len(tasks))
        send(caller, tasks)

    monkeypatch.setattr(pipe_caller.PipeCaller, "_send_or_keep", send_and_count)
    return sizes


@pytest.mark.parametrize("name", ["imap", "imap_unordered"])
def test_numbers_and_short_texts_of_a_list_are_sent_16_at_a_time(
    unreachable: Client, sent: list[int], name: str
) -> None:
    items: list[Any] = ["text", None, 1.5, True, *range(36)]
    with Pool(2) as pool:
        assert sorted(getattr(pool, name)(str, items)) == sorted(map(str, items))
        assert list(pool.imap(len, ("x" * 2000, "y", "z"))) == [2000, 1, 1]
    assert sent == [16, 16, 8, 1, 2]


def test_each_item_of_an_iterator_is_sent_before_the_next_one_is_read(unreachable: Client, sent: list[int]) -> None:
    got = threading.Event()

    def numbers() -> Iterator[int]:
        yield -1
        assert got.wait(LONG)
        yield -2

    with Pool(1) as pool:
        results = pool.imap(abs, numbers())
        assert results.next(LONG) == 1
        got.set()
        assert results.next(LONG) == 2
    assert sent == [1, 1]


class WaitsWhenPickled:
    def __init__(self, event: threading.Event) -> None:
        self.event = event

    def __reduce__(self) -> Any:
        assert self.event.wait(LONG)
        return int, (7,)


def test_item_whose_pickling_waits_for_an_earlier_result_gets_it(unreachable: Client) -> None:
    got = threading.Event()
    with Pool(1) as pool:
        results = pool.imap(str, [1, WaitsWhenPickled(got), 2])
        assert results.next(LONG) == "1"
        got.set()
        assert list(results) == ["7", "2"]


def test_item_that_does_not_pickle_fails_alone_among_those_that_are_sent_together(unreachable: Client) -> None:
    with Pool(1) as pool:
        results = pool.imap(str, [1, 2, threading.Lock(), 3])
        assert [results.next(LONG), results.next(LONG)] == ["1", "2"]
        with pytest.raises(TypeError, match="cannot pickle"):
            results.next(LONG)
        assert results.next(LONG) == "3"


def test_tasks_are_sent_one_by_one_if_there_is_no_room_or_they_must_be_encoded_again(
    unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_caller, "UNDER_WAY", 5)
    asked: list[PipeTask] = []
    under_way: set[int] = set()

    def is_valid(caller: pipe_caller.PipeCaller, task: PipeTask) -> bool:
        asked.append(task)
        under_way.add(len(caller._under_way))
        return len(asked) % 7 != 0

    monkeypatch.setattr(pipe_caller.PipeCaller, "_is_valid", is_valid)
    with Pool(2) as pool:
        assert list(pool.imap(str, range(100))) == [str(number) for number in range(100)]
    assert len(asked) > 110
    assert max(under_way) <= 5


# ---- which worker gets a task


def test_tasks_that_wait_for_each_other_run_on_different_workers(unreachable: Client) -> None:
    barrier = multiprocessing.get_context("fork").Barrier(3)
    with get_context("fork").Pool(3, set_barrier, (barrier,)) as pool:
        for _ in range(20):
            list(pool.imap(remote_pool.square, range(500)))  # after these, a worker gets many tasks at once
            assert len(set(pool.map(meet, range(3), chunksize=1))) == 3


_barrier: list[Any] = []


def set_barrier(barrier: Any) -> None:
    _barrier.append(barrier)


def meet(_: int) -> int:
    _barrier[-1].wait(LONG)
    return os.getpid()


def test_tasks_behind_a_long_one_are_done_by_others(unreachable: Client, tmp_path: Path) -> None:
    with Pool(2) as pool:
        list(pool.imap(remote_pool.square, range(2000)))
        long = pool.apply_async(wait_for_file, (str(tmp_path / "go"),))
        assert sum(pool.imap(remote_pool.square, range(2000))) == sum(number * number for number in range(2000))
        assert not long.ready()
        (tmp_path / "go").touch()
        assert long.get(LONG)


def wait_for_file(path: str) -> bool:
    return not eventually(Path(path).exists, "", LONG)


def test_tasks_of_a_stopped_worker_that_it_has_not_read_are_done_by_others(unreachable: Client) -> None:
    with Pool(2) as pool:
        list(pool.imap(remote_pool.square, range(2000)))
        stopped = pool._pool[0]
        os.kill(stopped.pid, signal.SIGSTOP)
        results = pool.imap_unordered(remote_pool.square, range(1000))
        numbers = [results.next(LONG) for _ in range(998)]  # the stopped worker may have read one
        os.kill(stopped.pid, signal.SIGCONT)
        assert sorted([*numbers, *results]) == [number * number for number in range(1000)]


def test_call_that_waits_in_the_pipe_of_a_busy_worker_can_be_cancelled(unreachable: Client, tmp_path: Path) -> None:
    with Executor(1) as executor:
        assert sum(executor.map(abs, range(-1000, 0))) == 500_500  # short: the worker gets several at once
        first = executor.submit(wait_for_file, str(tmp_path / "go"))
        others = [executor.submit(abs, number) for number in range(20)]
        eventually(first.running)
        assert not first.cancel()
        assert all(future.cancel() for future in others[::2])
        (tmp_path / "go").touch()
        assert [future.result(LONG) for future in others[1::2]] == list(range(1, 20, 2))
        assert first.result(LONG)


# ---- workers that end


def test_tasks_of_killed_workers_are_run_once_more_and_have_one_result(unreachable: Client, tmp_path: Path) -> None:
    with Pool(2) as pool:
        tasks = [(str(tmp_path), number) for number in range(60)]
        found = list(pool.imap_unordered(die_sometimes, tasks))
    assert sorted(found) == list(range(60))
    runs = Counter(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert all(runs[str(number)] == (2 if number % 20 == 7 else 1) for number in range(60))


def die_sometimes(arguments: tuple[str, int]) -> int:
    """Record the run; exit in the first worker that gets a certain number."""
    marks, number = arguments
    is_first = not list(Path(marks).glob(f"{number}-*"))
    Path(marks, f"{number}-{time.monotonic_ns()}").touch()
    if number % 20 == 7 and is_first:
        remote_pool.die()
    return number


def test_task_that_kills_its_workers_is_the_only_one_to_fail(unreachable: Client) -> None:
    with Pool(2, max_deliveries=3) as pool:
        list(pool.imap(remote_pool.square, range(1000)))
        good = [pool.apply_async(remote_pool.square, (number,)) for number in range(50)]
        bad = pool.apply_async(remote_pool.die)
        more = [pool.apply_async(remote_pool.square, (number,)) for number in range(50)]
        with pytest.raises(TaskLostError, match=r"helpers\.remote_functions\.pool\.die .*delivered 3 times"):
            bad.get(LONG)
        assert [one.get(LONG) for one in good + more] == [number * number for number in range(50)] * 2


def test_idle_workers_that_are_killed_are_replaced_and_no_task_counts_as_delivered(unreachable: Client) -> None:
    with Pool(1, max_deliveries=1) as pool:
        for number in range(5):
            assert pool.apply(abs, (-number,)) == number
            (worker,) = pool._pool
            os.kill(worker.pid, signal.SIGKILL)
            eventually(lambda: pool._pool and pool._pool[0] is not worker)  # noqa: B023


def test_worker_that_is_terminated_finishes_its_task_and_its_other_tasks_are_done_by_the_next(
    unreachable: Client, tmp_path: Path
) -> None:
    with Pool(1, max_deliveries=1) as pool:
        list(pool.imap(remote_pool.square, range(1000)))
        first = pool.apply_async(wait_for_file, (str(tmp_path / "go"),))
        others = [pool.apply_async(remote_pool.square, (number,)) for number in range(20)]
        pool._pool[0].terminate()
        (tmp_path / "go").touch()
        assert first.get(LONG)
        assert [one.get(LONG) for one in others] == [number * number for number in range(20)]


def test_workers_that_cannot_be_started_for_a_while_are_started_later(
    unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks failed, because the attempts followed one another without a pause."""
    context, failed = get_context("fork"), []
    start, may_start = context.Process.start, threading.Event()

    def start_later(process: Any) -> None:
        if not may_start.is_set():
            failed.append(process)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    with context.Pool(1) as pool:
        assert pool.apply(abs, (-1,)) == 1
        worker = pool._pool[0]
        monkeypatch.setattr(context.Process, "start", start_later)
        os.kill(worker.pid, signal.SIGKILL)
        eventually(lambda: failed)
        result, before = pool.apply_async(abs, (-3,)), len(failed)
        eventually(lambda: len(failed) > before)
        may_start.set()
        assert result.get(LONG) == 3


def test_tasks_are_done_by_the_workers_that_live_if_others_cannot_be_replaced(
    unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = get_context("fork")

    def fail(_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(pool_caller, "RETRY_S", 0.01)
    with context.Pool(2) as pool:
        crew: Any = pool._crew
        eventually(lambda: all(member.is_ready for member in crew._members))
        monkeypatch.setattr(context.Process, "start", fail)
        os.kill(pool._pool[0].pid, signal.SIGKILL)
        eventually(lambda: crew.is_failing)
        assert pool.map(abs, range(-100, 0)) == list(range(100, 0, -1))


def test_workers_run_as_many_tasks_as_configured(unreachable: Client) -> None:
    with Pool(2, maxtasksperchild=3) as pool:
        runs = Counter(pool.map(remote_pool.pid, range(20), chunksize=1))
    assert max(runs.values()) <= 3


def test_large_tasks_and_results_travel_while_workers_die(unreachable: Client, tmp_path: Path) -> None:
    with Pool(2) as pool:
        data = [bytes([number]) * 3_000_000 for number in range(6)]
        results = [pool.apply_async(return_or_die, (str(tmp_path), number, data[number])) for number in range(6)]
        assert [one.get(LONG) for one in results] == data


def return_or_die(marks: str, number: int, data: bytes) -> bytes:
    remote_pool.die_first(marks, number)
    return data


def test_task_that_runs_too_long_ends_alone(unreachable: Client, tmp_path: Path) -> None:
    with Pool(2, task_timeout=10 * UNIT) as pool:
        list(pool.imap(remote_pool.square, range(1000)))
        late = pool.apply_async(wait_for_file, (str(tmp_path / "never"),))
        others = [pool.apply_async(remote_pool.square, (number,)) for number in range(50)]
        with pytest.raises(TaskTimeoutError, match=r"wait_for_file .* ran longer than"):
            late.get(LONG)
        assert [one.get(LONG) for one in others] == [number * number for number in range(50)]
        assert pool.map(remote_pool.square, range(10)) == [number * number for number in range(10)]


def test_task_of_an_idle_pool_ends_if_it_runs_too_long(unreachable: Client, tmp_path: Path) -> None:
    """The pool slept, and nothing told it when to look at the worker again."""
    with Pool(1, task_timeout=4 * UNIT) as pool:
        assert pool.apply(abs, (-1,)) == 1
        time.sleep(5 * UNIT)
        with pytest.raises(TaskTimeoutError):
            pool.apply_async(wait_for_file, (str(tmp_path / "never"),)).get(LONG)


def test_large_result_that_waits_for_a_callback_is_not_late(unreachable: Client, tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()

    def block(_: object) -> None:
        reached.set()
        go.wait(LONG)

    with Pool(2, task_timeout=10 * UNIT) as pool:
        pool.apply_async(abs, (1,), callback=block)
        assert reached.wait(LONG)
        large = pool.apply_async(return_large, (str(tmp_path / "done"),))
        eventually((tmp_path / "done").exists, "", LONG)
        time.sleep(11 * UNIT)
        go.set()
        assert len(large.get(LONG)) == 5_000_000


def return_large(mark: str) -> bytes:
    Path(mark).touch()
    return bytes(5_000_000)


def test_result_whose_error_has_no_text_fails_alone(unreachable: Client) -> None:
    with Pool(1) as pool:
        with pytest.raises(PayloadRefusedError, match="TextlessError"):
            pool.apply_async(HereUnreadable, (os.getpid(),)).get(LONG)
        assert pool.apply_async(abs, (-2,)).get(LONG) == 2


def test_function_that_does_not_tell_its_name_is_called(unreachable: Client) -> None:
    with Pool(1) as pool:
        assert pool.apply_async(NamelessFunction()).get(LONG) == 7


class NamelessFunction:
    def __call__(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name) if name == "__qualname__" else AttributeError(name)


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class HereUnreadable:
    """A value that cannot be read in one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["pid"] == os.getpid():
            raise TextlessError


def test_call_that_runs_can_be_cancelled_if_asked_for(unreachable: Client, tmp_path: Path) -> None:
    with Executor(1, max_deliveries=1) as executor:
        assert sum(executor.map(abs, range(-1000, 0))) == 500_500
        running = executor.submit(wait_for_file, str(tmp_path / "never"))
        others = [executor.submit(abs, number) for number in range(20)]
        eventually(running.running)
        assert not running.cancel()
        assert running.cancel(running=True)
        assert running.cancelled()
        assert [future.result(LONG) for future in others] == list(range(20))
        assert not others[0].cancel(running=True)


def test_killed_worker_is_replaced_although_a_child_of_its_task_runs(unreachable: Client, tmp_path: Path) -> None:
    """The exit of the worker was noticed only after that of the child."""
    child = tmp_path / "child"
    with Executor(1, mp_context=get_context("fork")) as executor:
        future = executor.submit(fork_and_sleep, str(child))
        eventually(child.is_symlink)
        try:
            assert future.cancel(running=True)
            assert executor.submit(abs, -1).result(LONG) == 1
        finally:
            os.kill(int(os.readlink(child)), signal.SIGKILL)


def fork_and_sleep(path: str) -> None:
    """Fork a child, whose id the link ``path`` says."""
    child = os.fork()
    if child:
        os.symlink(str(child), path)
    time.sleep(60)


def test_tasks_of_a_worker_that_cannot_be_replaced_fail_after_a_long_callback(
    unreachable: Client, tmp_path: Path
) -> None:
    reached, go = threading.Event(), threading.Event()

    def block(_: object) -> None:
        reached.set()
        go.wait(LONG)

    with get_context("fork").Pool(1, fail_if_file_exists, (str(tmp_path / "fail"),)) as pool:
        first = pool.apply_async(abs, (1,), callback=block)
        assert reached.wait(LONG)
        others = [pool.apply_async(wait_for_file, (str(tmp_path / "never"),)) for _ in range(3)]
        eventually(lambda: pool._submitting.is_running(others[0]._job), "", LONG)  # type: ignore[attr-defined]
        (tmp_path / "fail").touch()
        os.kill(pool._pool[0].pid, signal.SIGKILL)
        eventually(lambda: pool._crew.is_hopeless and not pool._crew.processes, "", LONG)
        eventually(lambda: not pool._submitting.notifier._is_set, "", LONG)  # type: ignore[attr-defined]
        go.set()
        for other in others:
            with pytest.raises(WorkerStartError):
                other.get(LONG)
        assert first.get(LONG) == 1


def fail_if_file_exists(path: str) -> None:
    assert not Path(path).exists()


def test_task_timeout_is_refused_for_a_pool_with_a_name(unreachable: Client) -> None:
    with pytest.raises(ValueError, match="without a name"):
        Pool(1, name="p", task_timeout=1)
    with pytest.raises(ValueError, match="task_timeout"):
        Pool(1, task_timeout=-1)


def test_task_or_result_above_the_limit_is_refused(unreachable: Client) -> None:
    with Pool(1, max_payload=10_000) as pool:
        with pytest.raises(PayloadTooLargeError, match="builtins.len"):
            pool.apply(len, (bytes(20_000),))
        with pytest.raises(PayloadTooLargeError):
            pool.apply(bytes, (20_000,))
        assert pool.apply(len, (bytes(2_000),)) == 2_000


def test_connection_travels_as_in_the_standard_library(unreachable: Client) -> None:
    ours, theirs = multiprocessing.Pipe()
    with Pool(1) as pool:
        result = pool.apply_async(say, (theirs,))
        assert ours.recv() == "hello"
        result.get(LONG)
    resource_sharer.stop(LONG)


def say(connection: Any) -> None:
    connection.send("hello")


# ---- forked children of the caller


def test_forked_child_that_cancels_and_shuts_down_leaves_the_executor_to_its_parent(
    unreachable: Client, tmp_path: Path
) -> None:
    with Executor(1, mp_context=get_context("fork")) as executor:
        assert sum(executor.map(abs, range(-1000, 0))) == 500_500
        first = executor.submit(wait_for_file, str(tmp_path / "go"))
        others = [executor.submit(abs, number) for number in range(20)]
        eventually(first.running)
        child = multiprocessing.get_context("fork").Process(target=cancel_all, args=(executor, [first, *others]))
        child.start()
        child.join(LONG)
        assert child.exitcode == 0
        (tmp_path / "go").touch()
        assert [future.result(LONG) for future in others] == list(range(20))
        notifier = executor._pool._submitting.notifier
        eventually(lambda: not notifier._is_set and not notifier.reader.poll(), "a signal of the child", LONG)


def cancel_all(executor: Any, futures: list[Any]) -> None:
    assert not any(future.cancel(running=True) for future in futures)
    executor.shutdown()


# ---- the end


def test_pool_that_is_terminated_in_the_middle_ends_and_leaves_no_thread_or_file(unreachable: Client) -> None:
    def run() -> None:
        with Pool(2) as pool:
            results = pool.imap_unordered(remote_pool.square, iter(int, 1))
            assert results.next(LONG) == 0

    run()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert not [each for each in threading.enumerate() if each.name.startswith("distsync-pool")]


def test_iterable_and_callback_that_block_do_not_keep_a_terminated_pool(
    unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_caller, "LAST_S", UNIT)
    go, reached = threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        go.wait(LONG)
        yield 2

    def block(_: object) -> None:
        reached.set()
        go.wait(LONG)

    with Pool(1) as pool:
        pool.imap(abs, numbers())
        pool.apply_async(abs, (1,))
        pool.apply_async(abs, (1,), callback=block)
        with Pool(1) as other:
            other.apply_async(abs, (1,), callback=block)
            assert reached.wait(LONG)
    go.set()
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("distsync-pool")])


@pytest.mark.filterwarnings("ignore:unclosed running:ResourceWarning")
def test_callback_that_deletes_the_last_reference_ends_the_pool(unreachable: Client) -> None:
    pools, done = [Pool(1)], threading.Event()
    pools[0].apply_async(abs, (1,), callback=lambda _: (pools.clear(), done.set()))
    assert done.wait(LONG)
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("distsync-pool")])


def test_workers_of_a_killed_caller_exit(unreachable: Client, tmp_path: Path) -> None:
    context, pids = multiprocessing.get_context("spawn"), tmp_path / "pids"
    caller = context.Process(target=be_caller, args=(str(pids),))
    caller.start()
    eventually(pids.exists, "", LONG)
    eventually(lambda: len(pids.read_text().split()) == 3, "", LONG)
    caller.kill()
    caller.join()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()), "workers", LONG)


def be_caller(pids: str) -> None:
    default_client.set_default(Client(hosts="127.0.0.1:1", connect_timeout=0.1))
    pool: Any = Pool(3)
    pool.map_async(bytes, [50_000_000] * 20, chunksize=1)  # they wait for the caller, which reads slowly
    Path(pids).write_text(" ".join(str(each.pid) for each in pool._pool))
    os.kill(os.getpid(), signal.SIGSTOP)


def test_workers_that_read_a_task_of_a_killed_caller_exit(unreachable: Client, tmp_path: Path) -> None:
    context, pids = multiprocessing.get_context("spawn"), tmp_path / "pids"
    caller = context.Process(target=be_caller_of_large_tasks, args=(str(pids),))
    caller.start()
    eventually(pids.exists, "", LONG)
    eventually(lambda: len(pids.read_text().split()) == 2, "", LONG)
    caller.kill()
    caller.join()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()), "workers", LONG)


def be_caller_of_large_tasks(pids: str) -> None:
    default_client.set_default(Client(hosts="127.0.0.1:1", connect_timeout=0.1))
    with get_context("fork").Pool(2) as pool:
        WorkerFeed.flush = lambda feed: _send_half(feed, pids)  # type: ignore[method-assign]
        pool.map(len, [bytes(200_000)] * 2, chunksize=1)


def _send_half(feed: WorkerFeed, pids: str) -> None:
    """Write a part of a task, and nothing more."""
    if not feed._unsent or len(feed._unsent[0]) < 200_000:
        return
    feed._unsent[0] = feed._unsent[0][os.write(feed.tasks_file, feed._unsent[0][:50_000]) :]
    eventually(lambda: not feed._may_take.poll(0), "", LONG)  # the worker has read it
    with Path(pids).open("a") as file:
        file.write(f"{feed.process.pid} ")


# ---- costs


def test_callers_and_workers_make_few_system_calls_for_each_task(
    unreachable: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is sent with others, and a result that is read with others, need none of their own."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return original(*arguments)

        return call

    with Pool(1) as pool:
        list(pool.imap(remote_pool.square, range(2000)))
        for name in ("read", "write"):
            monkeypatch.setattr(os, name, counted(name))
        list(pool.imap(remote_pool.square, range(2000)))
        monkeypatch.undo()
    assert calls["write"] <= 4000
    assert calls["read"] <= 4000
