"""Executor: the interface of ``concurrent.futures.Executor`` on the workers of a pool."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import process
from typing import Any

import pytest
from helpers.remote_functions import pool as remote_pool
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer

import distsync.errors
from distsync import Event
from distsync._client.client import Client
from distsync._protocols.pool.tasks import PoolCore
from distsync._protocols.steps import Wait
from distsync._wire.codes import OpCode
from distsync.futures import Executor, TaskLostError, WorkerStartError
from distsync.testing.faulty_proxy import Proxy, ProxyMode

LONG = 3 * PATIENCE

#: Names of the classes whose objects an executor makes for each call.
KEPT = ("PoolFuture", "ApplyResult", "PipeTask", "Task", "Condition")


@pytest.fixture(params=[None, "e"], ids=["pipes", "shared"])
def name(request: pytest.FixtureRequest) -> Any:
    """The name of an executor. Without one, its calls travel by pipes."""
    return request.param


def test_executor_returns_results_and_errors_as_in_the_standard_library(client: Any, name: str | None) -> None:
    with Executor(2, name=name) as executor:
        assert isinstance(executor, futures.Executor)
        assert executor.submit(pow, 2, exp=5).result(LONG) == 32
        assert list(executor.map(remote_pool.square, range(10))) == [number * number for number in range(10)]
        assert list(executor.map(pow, range(7), [2] * 9, chunksize=3)) == [number**2 for number in range(7)]
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result(LONG)
        done, _ = futures.wait([executor.submit(remote_pool.square, number) for number in range(5)], LONG)
        assert sorted(each.result() for each in done) == [0, 1, 4, 9, 16]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(remote_pool.square, 1)


def test_future_runs_from_the_start_of_its_call_to_its_end(client: Any) -> None:
    with Executor(1, name="e") as executor:
        begun = executor.submit(remote_pool.wait_for, "go")
        assert Event(name="go-begun").wait(LONG)
        waiting = executor.submit(remote_pool.square, 2)
        assert (begun.running(), waiting.running()) == (True, False)
        Event(name="go").set()
        assert waiting.result(LONG) == 4
        assert (begun.running(), waiting.running()) == (False, False)


def test_error_of_a_call_has_the_traceback_of_the_worker_as_its_cause(client: Any, name: str | None) -> None:
    with Executor(1, name=name) as executor:
        error = executor.submit(divmod, 1, 0).exception(LONG)
        with pytest.raises(ZeroDivisionError) as in_map:
            list(executor.map(divmod, [1], [0]))
    for each in (error, in_map.value):
        assert type(each.__cause__) is process._RemoteTraceback
        assert "ZeroDivisionError" in each.__cause__.tb


def test_result_that_cannot_be_sent_raises_the_error_of_the_attempt(client: Any, name: str | None) -> None:
    """It was a MaybeEncodingError, as that of a Pool."""
    with Executor(1, name=name) as executor:
        error = executor.submit(remote_pool.some_lambda).exception(LONG)
        strange = executor.submit(remote_pool.ExitsWhenPickled).exception(LONG)
    assert isinstance(error, (pickle.PicklingError, AttributeError))
    assert "lambda" in str(error)
    assert type(error.__cause__) is process._RemoteTraceback
    assert type(strange) is SystemExit


def test_map_keeps_no_result_that_it_has_yielded(client: Any, name: str | None) -> None:
    with Executor(1, name=name) as executor:
        for chunksize in (1, 3):
            for made in executor.map(remote_pool.Made, range(6), chunksize=chunksize):
                reference = weakref.ref(made)
                del made
                gc.collect()
                assert reference() is None


def test_map_reads_no_further_than_its_buffer(client: Any, name: str | None) -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(20):
            read.append(number)
            yield number

    with Executor(2, name=name) as executor:
        results = executor.map(remote_pool.square, numbers(), buffersize=3)
        assert read == [0, 1, 2]
        for number in range(10):
            assert next(results) == number * number
            assert len(read) == number + 4
        assert list(results) == [number * number for number in range(10, 20)]
        chunks = executor.map(remote_pool.square, range(10), chunksize=4, buffersize=1)
        assert list(chunks) == [number * number for number in range(10)]


def test_map_with_a_buffer_ends_as_without(client: Any, name: str | None) -> None:
    with Executor(1, name=name) as executor:
        results = executor.map(remote_pool.square, [1, "a", 2], buffersize=2)
        assert next(results) == 1
        with pytest.raises(TypeError):
            next(results)
        with pytest.raises(futures.TimeoutError):
            list(executor.map(remote_pool.slow_square, range(9), timeout=0.01, buffersize=2))
        with pytest.raises(ValueError, match="buffersize"):
            executor.map(abs, [1], buffersize=0)
        with pytest.raises(TypeError, match="buffersize"):
            executor.map(abs, [1], buffersize=1.5)  # type: ignore[arg-type]


def test_call_may_use_an_executor_of_its_own(client: Any, name: str | None) -> None:
    with Executor(1, name=name) as executor:
        assert executor.submit(remote_pool.nested_square, 3).result(LONG) == 9


@pytest.mark.parametrize("number", [0, -1])
def test_number_of_workers_is_checked_as_in_the_standard_library(client: Any, number: int) -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        Executor(number)


def test_workers_are_found_where_programs_look_for_them(client: Any, name: str | None) -> None:
    with Executor(2, name=name) as executor:
        assert executor._max_workers == 2
        assert executor.submit(os.getpid).result(LONG) in executor._processes
        assert executor._mp_context.get_start_method()


@pytest.mark.parametrize("method", ["terminate_workers", "kill_workers"])
def test_stopped_workers_end_the_calls_that_run_and_the_others_are_cancelled(client: Any, method: str) -> None:
    """Python 3.14 has these methods."""
    executor = Executor(1)
    running = executor.submit(remote_pool.wait_for, "go")
    assert Event(name="go-begun").wait(LONG)
    waiting = [executor.submit(remote_pool.square, number) for number in range(3)]
    workers = list(executor._processes.values())
    getattr(executor, method)()
    with pytest.raises(futures.BrokenExecutor, match="stopped"):
        running.result(0)
    assert all(each.cancelled() for each in waiting)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(remote_pool.square, 1)
    executor.shutdown()
    assert not executor._processes
    assert len(workers) == 1


def test_future_of_a_call_that_exits_has_the_exception_as_in_the_standard_library(
    client: Any, name: str | None
) -> None:
    with Executor(1, name=name) as executor:
        future = executor.submit(remote_pool.leave)
        assert isinstance(future.exception(LONG), SystemExit)
        assert executor.submit(remote_pool.square, 3).result(LONG) == 9


def test_calls_without_result_raise_broken_executor_as_in_the_standard_library(client: Any, name: str | None) -> None:
    with Executor(1, name=name, max_deliveries=1) as executor:
        with pytest.raises(futures.BrokenExecutor, match="delivered 1 times") as lost:
            executor.submit(remote_pool.die).result(LONG)
        assert executor.submit(remote_pool.square, 3).result(LONG) == 9
    assert type(lost.value) is TaskLostError
    assert isinstance(lost.value, distsync.errors.TaskLostError)
    assert str(pickle.loads(pickle.dumps(lost.value))) == str(lost.value)
    with Executor(1, name=name, initializer=remote_pool.fail_to_begin) as executor:
        with pytest.raises(futures.BrokenExecutor, match="no model file") as failed:
            executor.submit(remote_pool.square, 3).result(LONG)
    assert type(failed.value) is WorkerStartError


def test_call_that_no_worker_has_started_can_be_cancelled(client: Any) -> None:
    with Executor(1, name="e") as executor:
        begun = executor.submit(remote_pool.wait_for, "go")
        assert Event(name="go-begun").wait(LONG)
        waiting = [executor.submit(remote_pool.square, number) for number in range(3)]
        assert waiting[1].cancel()
        assert waiting[1].cancelled()
        assert not begun.cancel()
        Event(name="go").set()
        assert [waiting[0].result(LONG), waiting[2].result(LONG)] == [0, 4]
        assert not waiting[0].cancel()


def test_shutdown_with_cancel_futures_cancels_calls_that_no_worker_has_started(client: Any) -> None:
    executor = Executor(1, name="e")
    begun = executor.submit(remote_pool.wait_for, "go")
    assert Event(name="go-begun").wait(LONG)
    waiting = [executor.submit(remote_pool.square, number) for number in range(20)]
    executor.shutdown(wait=False, cancel_futures=True)
    Event(name="go").set()
    assert begun.result(LONG) != os.getpid()
    executor.shutdown()
    assert all(each.cancelled() for each in waiting)


def test_call_that_is_being_enqueued_can_be_cancelled(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither in the list of outgoing tasks nor in the queue yet."""
    put_tasks = PoolCore.put_tasks

    async def put_late(core: PoolCore, *args: Any) -> None:
        await Wait(limit=4 * UNIT)
        await put_tasks(core, *args)

    monkeypatch.setattr(PoolCore, "put_tasks", put_late)
    with Executor(0, name="e") as executor:
        future = executor.submit(remote_pool.square, 1)
        pool = executor._pool._submitting
        eventually(lambda: pool._under_way and not pool._waiting)
        assert future.cancel()
        assert future.cancelled()


def submitted(client: Client) -> tuple[Executor, Any]:
    """Return an executor without workers, and a call that is in its queue."""
    executor = Executor(0, name="e", client=client)
    future = executor.submit(remote_pool.square, 3)
    pool: Any = executor._pool._submitting
    eventually(lambda: pool._exported and not pool._being_put)
    return executor, future


def cancel_too_late(future: Any) -> None:
    with pytest.raises(distsync.errors.DeadlineError, match=r"may still run or be cancelled, try again"):
        with distsync.timeout(4 * UNIT):
            future.cancel()
    assert not future.done()


def test_cancel_without_a_server_is_limited_and_the_call_still_gets_its_result(
    client: Client, far: Client, proxy: Proxy
) -> None:
    """It waited as long as the outage lasted. That of the standard library never waits."""
    executor, future = submitted(far)
    with executor:
        proxy.refuse()
        cancel_too_late(future)
        proxy.heal()
        with Executor(1, name="e", client=client):
            assert future.result(LONG) == 9
        assert not future.cancel()


def test_cancel_of_a_call_that_is_being_enqueued_without_a_server_is_limited(far: Client, proxy: Proxy) -> None:
    executor, before = submitted(far)
    with executor:
        assert before.cancel()
        proxy.refuse()
        future = executor.submit(remote_pool.square, 3)
        pool: Any = executor._pool._submitting
        eventually(lambda: pool._being_put)
        cancel_too_late(future)
        proxy.heal()
        assert future.cancel()
        assert future.cancelled()


@pytest.mark.parametrize("again", [True, False])
def test_cancel_that_took_effect_after_its_deadline_cancels_the_future(
    far: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    executor, future = submitted(far)
    dropped = proxy.drop_next_reply(OpCode.MULTI)
    set_dropped = dropped.set

    def drop_and_refuse() -> None:
        set_dropped()
        proxy._set_mode(ProxyMode.REFUSED)

    monkeypatch.setattr(dropped, "set", drop_and_refuse)
    with executor:
        cancel_too_late(future)
        assert not future.done()
        proxy.heal()
        if again:
            assert future.cancel()
        eventually(future.cancelled)
        assert future.cancel()
        assert futures.wait([future], LONG).done == {future}


def test_finished_calls_leave_no_objects(client: Any, name: str | None) -> None:
    def census() -> Counter[str]:
        gc.collect()
        names = (type(each).__name__ for each in gc.get_objects())
        return Counter(name for name in names if name in KEPT)

    with Executor(1, name=name) as executor:
        pool: Any = executor._pool._submitting
        before = census()
        for _ in range(3):
            assert len([each.result(LONG) for each in [executor.submit(abs, number) for number in range(200)]]) == 200
        assert not executor.submit(abs, 1).exception(LONG)
        kept = [executor._jobs, pool.cache, pool._under_way, pool._dropped, pool._waiting]
        eventually(lambda: not any(kept) and not getattr(pool, "_exported", ()))
        eventually(lambda: not census() - before)


def test_calls_of_another_process_run_on_the_workers_of_the_executor(client: Any, peer: Peer) -> None:
    with Executor(2, name="e") as executor:
        workers = {process.pid for process in executor._pool._pool}
        assert peer.do(remote_pool.pids_of, "e", 6) <= workers


def test_executors_without_names_that_are_bound_to_one_variable_call_each_its_own_initializer(client: Any) -> None:
    program = "for label in (1, 2):\n    executor = Executor(1, None, begin, (label,))\n    others.append(executor)\n"
    others: list[Executor] = []
    names = {"__name__": "program", "Executor": Executor, "others": others, "begin": remote_pool.set_label}
    exec(program, names)
    results = [executor.map(remote_pool.labels, range(20)) for executor in others]
    assert [list(each) for each in results] == [[[1]] * 20, [[2]] * 20]
    for executor in others:
        executor.shutdown()


def test_executors_without_names_that_are_bound_to_one_variable_share_no_workers(client: Any) -> None:
    program = "executor = Executor(1)\nothers.append(executor)\nexecutor = Executor(1)\nothers.append(executor)\n"
    others: list[Executor] = []
    exec(program, {"__name__": "program", "Executor": Executor, "others": others})
    for executor in others:
        (worker,) = {process.pid for process in executor._pool._pool}
        assert set(executor.map(remote_pool.pid, range(20))) == {worker}
    for executor in others:
        executor.shutdown()
