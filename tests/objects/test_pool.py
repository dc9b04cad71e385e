"""Pool between processes: workers and callers that are killed or leave, and what cannot be pickled."""

from __future__ import annotations

import gc
import itertools
import json
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.pools import remaining
from helpers.remote_functions import pool as remote_pool
from helpers.request_counts import counted
from helpers.servers import ServerProcess
from helpers.subprocesses import ROOT, Shells, printed
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, credentials, expire
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

import distsync.multiprocessing
from distsync import (
    AccessDeniedError,
    ConfigurationError,
    Event,
    JoinableQueue,
    Lock,
    MismatchError,
    PayloadRefusedError,
    PayloadTooLargeError,
    TaskLostError,
)
from distsync._client.client import Client
from distsync._client.naming.inference import PrivateObjectWarning
from distsync._protocols.pool.callers import remove_caller
from distsync.errors import WorkerStartError
from distsync.futures import Executor
from distsync.multiprocessing._pool import pipe_caller, pool_client, pool_worker
from distsync.multiprocessing._pool.local_workers import LocalWorkers
from distsync.multiprocessing._pool.pipe_caller import PipeCaller
from distsync.multiprocessing._pool.pool_caller import Notifier, PoolCaller
from distsync.multiprocessing._pool.pool_codec import MainProgram, main_module_of
from distsync.multiprocessing._pool.pool_worker import Worker
from distsync.multiprocessing.pool import MaybeEncodingError, Pool, RemoteTraceback
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

LONG = 3 * PATIENCE
"""Seconds to wait for results that require sessions to expire and processes to start."""


WORKER_SESSION_S = 2
"""Session timeout of the workers that are started from a shell, in seconds."""


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "DISTSYNC_SESSION_TIMEOUT": str(WORKER_SESSION_S)}
    made = Shells(tmp_path, environment)
    yield made
    made.close()


# ---- the end


def test_terminate_without_a_server_interrupts_no_call_of_the_program(far: Client, proxy: Proxy) -> None:
    """It interrupted a call in a thread that had got the identifier of one of the pool's threads, which had ended."""
    pool = Pool(1, name="p", client=far)
    pool.close()
    pool.join()
    lock, acquired = Lock(name="x", client=far), list[bool]()
    assert lock.acquire(timeout=PATIENCE)

    def wait() -> None:
        with lock:
            acquired.append(True)

    identifiers, threads = {thread.ident for thread in pool._submitting.threads[1:]}, list[threading.Thread]()
    while not identifiers & {thread.ident for thread in threads}:
        threads.append(threading.Thread(target=wait))
        threads[-1].start()
    runtime = far._runtime
    assert runtime is not None
    eventually(lambda: len([run for run in tuple(runtime._calls) if run.is_idle]) == len(threads))
    proxy.refuse()
    eventually(lambda: far.state != "connected")
    pool.terminate()
    proxy.heal()
    eventually(lambda: far.state == "connected")
    lock.release()
    for thread in threads:
        thread.join()
    assert len(acquired) == len(threads)


def test_running_task_is_completed_before_join_returns_although_the_client_is_closed(
    client: Client, tmp_path: Path
) -> None:
    """Its worker was killed, and a warning said that no server answered."""
    begun, may_end, ended = tmp_path / "begun", tmp_path / "may_end", tmp_path / "ended"
    pool = Pool(1, name="p", client=client)
    pool.apply_async(remote_pool.wait_for_file, (begun, may_end, ended))
    eventually(begun.exists)
    pool.close()
    client.close()
    client.outage_noticed_at = 0.0
    joining = threading.Thread(target=pool.join)
    joining.start()
    joining.join(4 * UNIT)
    may_end.touch()
    joining.join()
    assert ended.exists()


@pytest.mark.slow("waits for a session to end")
def test_worker_with_a_limit_of_tasks_keeps_its_result_until_a_server_answers(
    client: Client, shells: Shells, proxy: Proxy, observer: Observer, tmp_path: Path
) -> None:
    """It exited after the session timeout, as at the end of a program, and another worker ran the task again."""
    begun, may_end, ended = tmp_path / "begun", tmp_path / "may_end", tmp_path / "ended"
    shells.environment["DISTSYNC_HOSTS"] = proxy.hosts
    with Pool(0, name="p") as pool:
        result = pool.apply_async(remote_pool.wait_for_file, (begun, may_end, ended))
        shells.start("-m", "distsync", "worker", "p", "--processes", "1", "--max-tasks-per-child", "1")
        eventually(begun.exists, limit=LONG)
        begun.unlink()
        proxy.refuse()
        may_end.touch()
        eventually(lambda: not any("/claims/" in path for path in observer.tree(pool.path)), limit=LONG)
        time.sleep(2 * WORKER_SESSION_S)
        proxy.heal()
        result.get(LONG)
        assert not begun.exists()
    pool.join()


# ---- results


def test_pool_returns_results_and_errors_as_in_multiprocessing(client: Client, observer: Observer) -> None:
    with Pool(2, name="p") as pool:
        assert pool.map(remote_pool.square, range(100)) == [number * number for number in range(100)]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert list(pool.imap(remote_pool.square, range(50))) == [number * number for number in range(50)]
        assert sorted(pool.imap_unordered(remote_pool.square, range(50), 7)) == [
            number * number for number in range(50)
        ]
        assert pool.apply(divmod, (7, 2)) == (3, 1)
        with pytest.raises(ZeroDivisionError) as caught:
            pool.apply(divmod, (7, 0))
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        with pytest.raises(multiprocessing.TimeoutError):
            pool.apply_async(remote_pool.slow_square, (1,)).get(timeout=0)
        pool.close()
        pool.join()
    assert remaining(pool, observer) == []


@pytest.mark.usefixtures("worker")
def test_pool_that_was_denied_to_recreate_its_caller_znode_works_once_permitted(
    client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_client, "REFUSED_S", UNIT)
    with Pool(0, name="p") as pool:
        assert pool.apply_async(remote_pool.square, (2,)).get(LONG) == 4
        (alive,) = [path for path in observer.tree(pool.path) if path.endswith("/alive")]
        caller = alive.rpartition("/")[0]
        observer.kazoo.add_auth("digest", "u:p")
        theirs = make_digest_acl("u", "p", all=True)
        observer.kazoo.set_acls(caller, [theirs, make_acl("world", "anyone", read=True, delete=True)])
        expire(client)
        with pytest.raises(AccessDeniedError):
            pool.apply_async(remote_pool.square, (3,)).get(LONG)
        observer.kazoo.set_acls(caller, OPEN_ACL_UNSAFE)
        eventually(lambda: observer.kazoo.exists(alive))
        assert pool.apply_async(remote_pool.square, (4,)).get(LONG) == 16


@pytest.mark.usefixtures("worker")
def test_tasks_submitted_while_their_caller_is_removed_fail_and_later_ones_succeed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, is_full = threading.Event(), pool_client.PoolClient._is_full

    def is_full_with_signal(caller: pool_client.PoolClient) -> bool:
        if is_full(caller):
            waits.set()  # the caller holds the condition until it waits
            return True
        return False

    monkeypatch.setattr(pipe_caller, "UNDER_WAY", 2)
    monkeypatch.setattr(pool_client.PoolClient, "_is_full", is_full_with_signal)
    with Pool(0, name="p") as pool:
        result = pool.map_async(remote_pool.wait_for, ["go"] * 5, chunksize=1)
        assert waits.wait(LONG)
        calling = pool._submitting
        before = calling.caller
        client.run(remove_caller(calling._core, before))
        eventually(lambda: calling.caller != before)
        Event(name="go").set()
        with pytest.raises(TaskLostError, match="assumed that it had exited"):
            result.get(LONG)
        assert pool.apply_async(remote_pool.square, (3,)).get(LONG) == 9
    pool.join()


def test_task_submitted_right_after_its_caller_was_replaced_is_not_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Any] = []
    deliver = pool_client.PoolClient._fail

    def submit_and_fail(calling: pool_client.PoolClient, *lost: Any) -> None:
        results.append(pool.apply_async(remote_pool.square, (3,)))
        deliver(calling, *lost)

    with Pool(1, name="p") as pool:
        monkeypatch.setattr(pool_client.PoolClient, "_fail", submit_and_fail)
        calling = pool._submitting
        client.run(remove_caller(calling._core, calling.caller))
        eventually(lambda: results)
        assert results[0].get(LONG) == 9
        monkeypatch.undo()
    pool.join()


def test_pool_without_workers_of_its_own_maps_on_those_of_another(client: Client) -> None:
    with Pool(1, name="p"), Pool(0, name="p") as pool:
        assert pool.map_async(remote_pool.square, iter(range(9))).get(LONG) == [number * number for number in range(9)]
        assert pool.starmap_async(pow, [(2, 3)]).get(LONG) == [8]
        assert pool.map_async(remote_pool.square, []).get(LONG) == []


def test_unnamed_pool_leaves_no_znode_behind(client: Client, observer: Observer) -> None:
    with Pool(1) as pool:
        assert pool.map(remote_pool.square, [1, 2]) == [1, 4]
    pool.join()
    assert pool.path not in observer.tree(client.namespace)


@pytest.mark.usefixtures("unnamed_objects_warn")
def test_unnamed_pool_of_a_with_statement_causes_no_warning(client: Client, recwarn: pytest.WarningsRecorder) -> None:
    """Most programs that use multiprocessing create theirs like this, at module level."""
    program = "with Pool(1) as pool:\n    print(pool.map(abs, [-1]))\n" * 2
    exec(program, {"__name__": "program", "Pool": Pool, "print": lambda got: None})
    assert [str(each.message) for each in recwarn if issubclass(each.category, PrivateObjectWarning)] == []


def test_terminate_deletes_the_tasks_of_the_pool(client: Client, observer: Observer) -> None:
    pool = Pool(1, name="p")
    waiting = pool.map_async(remote_pool.slow_square, range(500), chunksize=1)
    pool.terminate()
    pool.join()
    eventually(lambda: remaining(pool, observer) == [], "tasks remain")
    with pytest.raises(TaskLostError, match="was terminated"):
        waiting.get(LONG)


def test_task_whose_worker_is_terminated_in_a_call_of_distsync_runs_again(client: Client) -> None:
    """The call failed as the worker closed its client, and that error was the result of the other caller's task."""
    with Pool(0, name="p") as pool:
        workers = Pool(1, name="p")
        result = pool.apply_async(remote_pool.wait_for, ("go",))
        assert Event(name="go-begun").wait(LONG)
        workers.terminate()
        workers.join()
        Event(name="go").set()
        with Pool(1, name="p") as others:
            assert result.get(LONG) > 0
        others.join()
    pool.join()


@pytest.mark.parametrize("refused", ["supervise", "encode", "receive"])
def test_pool_whose_threads_cannot_be_started_leaves_nothing_behind(
    client: Client, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Its workers stayed, and were replaced when they exited."""
    start, before = threading.Thread.start, distsync.multiprocessing.active_children()

    def start_most(thread: threading.Thread) -> None:
        if thread.name == f"distsync-pool-{refused}":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_most)
    with pytest.raises(RuntimeError, match="can't start"):
        Pool(1)
    assert not [each for each in threading.enumerate() if each.name.startswith("distsync-pool")]
    assert not [each for each in distsync.multiprocessing.active_children() if each not in before]


def test_limit_for_tasks_of_a_pool_with_a_name_is_refused_with_the_reason_and_advice(client: Client) -> None:
    with pytest.raises(ValueError, match=r"a worker of another program.*without a name.*signal\.alarm"):
        Pool(1, name="p", task_timeout=1)
    with Executor(1, name="p") as executor:
        event = Event(name="go")
        future = executor.submit(remote_pool.wait_for, "go")
        assert Event(name="go-begun").wait(LONG)
        with pytest.raises(ValueError, match=r"another program.*without a name.*an Event"):
            future.cancel(running=True)
        event.set()
        assert future.result(LONG)


def test_pool_cannot_be_pickled(client: Client) -> None:
    with Pool(1, name="p") as pool, pytest.raises(NotImplementedError):
        pickle.dumps(pool)
    pool.join()


def test_endless_iterable_is_read_no_further_than_needed(client: Client) -> None:
    with Pool(1, name="p") as pool:
        results = pool.imap(remote_pool.square, itertools.count())
        assert [next(results) for _ in range(20)] == [number * number for number in range(20)]
    pool.join()


def test_tasks_that_wait_for_each_other_run_on_different_workers(client: Client) -> None:
    with Pool(3, name="p") as pool:
        list(pool.imap(remote_pool.square, range(200)))  # after these the workers claim many tasks at once
        assert len(set(pool.starmap(remote_pool.meet, [("b", 3)] * 3, chunksize=1))) == 3
    pool.join()


def test_callback_that_raises_does_not_block_other_results(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise LookupError

    with Pool(1, name="p") as pool:
        first = pool.apply_async(remote_pool.square, (3,), callback=fail)
        assert pool.apply_async(remote_pool.square, (4,)).get(LONG) == 16
        first.wait(LONG)
        assert first.ready()
    pool.join()
    eventually(lambda: "callback" in caplog.text)
    caplog.clear()  # a traceback references its frames, and they reference the pool


# ---- workers that run for long


@pytest.mark.parametrize("tasks", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_memory_of_a_worker_and_of_its_caller_does_not_grow_with_the_number_of_tasks(
    tasks: int, worker: Worker
) -> None:
    def allocated_after(count: int) -> int:
        for _ in range(count // 100):
            assert pool.map(abs, range(100), chunksize=1) == list(range(100))
        gc.collect()
        return sys.getallocatedblocks()

    with Pool(0, name="p") as pool:
        before = allocated_after(tasks)
        assert allocated_after(9 * tasks) - before < 500 + tasks
    pool.join()


def test_memory_of_a_worker_that_waits_for_each_task_does_not_grow(worker: Worker) -> None:
    def allocated_after(count: int) -> int:
        for number in range(count):
            assert pool.apply(abs, (number,)) == number
        gc.collect()
        return sys.getallocatedblocks()

    with Pool(0, name="p") as pool:
        # once of three: other threads of this process allocate, too
        assert any(allocated_after(270) - before < 500 for before in map(allocated_after, (30, 30, 30)))
    pool.join()


def test_worker_remembers_a_limited_number_of_callers(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_worker, "MAX_ACCEPTED", 3)
    for _ in range(5):
        with Pool(0, name="p") as pool:
            assert pool.apply(abs, (-1,)) == 1
        pool.join()
    assert len(worker._accepted) <= 3


# ---- costs


@pytest.mark.usefixtures("no_guards", "nothing_kept")
def test_many_short_tasks_cost_at_most_3_requests_each_of_caller_and_worker_together(
    client: Client, worker: Worker
) -> None:
    with Pool(0, name="p") as pool:
        pool.map(abs, range(100), 1)
        with counted(client, worker._client) as cost:
            assert pool.map(abs, range(500), 1) == list(range(500))
        assert cost.requests <= 3 * 500  # about 2.4 each
    pool.join()


@pytest.mark.usefixtures("no_guards", "nothing_kept")
def test_tasks_that_wait_to_be_put_cost_1_request_per_100_and_2_for_the_next_segment(client: Client) -> None:
    with Pool(0, name="p") as pool:
        calling: Any = pool._submitting
        results = [pool.map_async(abs, range(100), 1)]  # creates the znodes
        eventually(lambda: not calling._waiting and len(calling._exported) == 100 and not calling._being_put)
        with calling._lock:
            calling._window = 0
        results.append(pool.map_async(abs, range(500), 1))
        eventually(lambda: len(calling._waiting) == 500)
        with counted(client) as cost, calling._lock:
            calling._window = math.inf
            calling._to_put.notify()
            assert calling._changed.wait_for(lambda: not (calling._waiting or calling._being_put), PATIENCE)
        assert cost.requests <= 5 * 3 + 10  # some to find the last segment, and a look at callers now and then
        pool.terminate()
    pool.join()


@pytest.mark.usefixtures("no_guards", "nothing_kept")
def test_caller_that_waits_for_each_result_sends_4_requests_for_it(client: Client, worker: Worker) -> None:
    """It listed the results three times for each: the deletion of one looked like the arrival of another."""
    with Pool(0, name="p") as pool:
        assert pool.apply(abs, (-1,)) == 1
        with counted(client) as cost:
            for number in range(20):
                assert pool.apply(abs, (number,)) == number
        assert cost.requests <= 20 * (1 + 4) + 5  # 1 to put it, and a look at callers now and then
    pool.join()


# ---- workers that are killed, leave or join


def test_tasks_of_a_killed_worker_are_run_by_others(mortal: Client, tmp_path: Path) -> None:
    with Pool(2, name="p") as pool:
        tasks = [(str(tmp_path), number) for number in range(6)]
        assert pool.starmap(remote_pool.die_first, tasks, chunksize=1) == [number * number for number in range(6)]
    pool.join()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_task_reaches_the_next_worker_while_an_idle_one_is_killed_or_stopped(
    how: signal.Signals,
    client: Client,
    make_mortal: Callable[..., Peer],
    observer: Observer,
    request: pytest.FixtureRequest,
) -> None:
    """It waited until the session of the first one had ended, which lasts longer than this test."""
    getters = f"{client.path('pool', 'p')}/getters"
    mortal = make_mortal(4 * PATIENCE)
    mortal.do(Event(name="e").is_set)  # connects
    session = mortal.do(credentials)
    mortal.start(remote_pool.work, "p")
    eventually(lambda: len(observer.tree(getters)) == 1)
    request.getfixturevalue("worker")
    eventually(lambda: len(observer.tree(getters)) == 2)
    mortal.signal(how)
    with Pool(0, name="p") as pool:
        assert pool.apply_async(remote_pool.square, (3,)).get(PATIENCE) == 9
    pool.join()
    mortal.kill()
    expire(session)


def test_task_that_kills_its_workers_is_the_only_one_to_fail(mortal: Client, observer: Observer) -> None:
    with Pool(2, name="p", max_deliveries=2) as pool:
        list(pool.imap(remote_pool.square, range(100)))
        good = [pool.apply_async(remote_pool.square, (number,)) for number in range(5)]
        bad = pool.apply_async(remote_pool.die)
        more = [pool.apply_async(remote_pool.square, (number,)) for number in range(5)]
        with pytest.raises(TaskLostError, match=r"helpers\.remote_functions\.pool\.die .*delivered 2 times"):
            bad.get(LONG)
        assert [one.get(LONG) for one in good + more] == [0, 1, 4, 9, 16] * 2
        pool.close()
        pool.join()
    assert remaining(pool, observer) == []


def test_task_that_kills_its_workers_is_the_only_one_to_fail_if_replies_are_slow(mortal: Client) -> None:
    with Pool(2, remote_pool.answer_slowly, name="p", max_deliveries=2) as pool:
        good = [pool.apply_async(remote_pool.square, (number,)) for number in range(3)]
        bad = pool.apply_async(remote_pool.die)
        more = [pool.apply_async(remote_pool.square, (number,)) for number in range(3)]
        with pytest.raises(TaskLostError, match=r"helpers\.remote_functions\.pool\.die .*delivered 2 times"):
            bad.get(LONG)
        assert [one.get(LONG) for one in good + more] == [0, 1, 4] * 2


def test_worker_continues_when_the_outcome_of_returning_a_claim_is_unknown(
    client: Client, make_mortal: Callable[..., Peer], observer: Observer, tmp_path: Path
) -> None:
    mark, working = tmp_path / "given-back", make_mortal()
    working.do(remote_pool.doubt, str(mark))
    with Pool(0, name="p") as pool:
        first = pool.apply_async(remote_pool.wait_for, ("go",))
        others = [pool.apply_async(remote_pool.square, (number,)) for number in range(4)]
        eventually(lambda: len([path for path in remaining(pool, observer) if "/i_" in path]) == 5)
        working.start(remote_pool.work, "p")
        eventually(mark.exists, "no task was returned", LONG)
        Event(name="go").set()
        assert first.get(LONG) == working.pid
        assert [one.get(LONG) for one in others] == [0, 1, 4, 9]
    pool.join()
    working.kill()


@pytest.mark.parametrize("reaping", ["signal.SIG_IGN", "lambda *_: reap()"])
def test_program_that_reaps_all_its_children_uses_a_pool_and_an_executor(shells: Shells, reaping: str) -> None:
    program = f"""
import os, signal
from distsync.futures import Executor
from distsync.multiprocessing.pool import Pool

def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, {reaping})
with Pool(1) as pool:
    print(pool.map(abs, [-1, 2]))
pool = Pool(1, maxtasksperchild=1)
print(pool.map(abs, [-1, 2], 1))
pool.close()
pool.join()
with Executor(1) as executor:
    print(executor.submit(abs, -3).result())
"""
    assert shells.run("-c", program) == "[1, 2]\n[1, 2]\n3\n"


@pytest.mark.usefixtures("client")
def test_worker_elsewhere_does_not_load_a_program_whose_name_is_only_a_text(shells: Shells) -> None:
    """The filters of `warnings`, which scikit-learn sends with each task, have the text."""
    shells.start("-m", "distsync", "worker", "p", "--processes", "1")
    program = """
import warnings
from distsync.multiprocessing import Pool

warnings.filters.insert(0, ("default", None, DeprecationWarning, "__main__", 0))
with Pool(0, name="p") as pool:
    print(pool.apply_async(len, (warnings.filters[:1],)).get(60))
"""
    assert shells.run("-c", program) == "1\n"


def test_function_that_is_defined_after_the_workers_have_started_is_refused_with_advice(shells: Shells) -> None:
    program = """
from distsync.errors import PayloadRefusedError
from distsync.multiprocessing import get_context

pool = get_context("fork").Pool(1)
print(pool.map(abs, [-1]))

def later(number):
    return number

try:
    pool.map(later, [1])
except PayloadRefusedError as error:
    print(error)
pool.close()
pool.join()
"""
    printed = shells.run("-c", program)
    assert "Can't get attribute 'later' on <module '__main__'" in printed
    advice = "define it before the pool is created (in a notebook, in an earlier cell), or put it into a module"
    assert advice in printed


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt("mine"), GeneratorExit()], ids=repr)
def test_task_that_raises_what_ends_a_program_runs_once_and_its_caller_gets_the_error(
    client: Client, tmp_path: Path, error: BaseException
) -> None:
    calls = tmp_path / "calls"
    with Pool(1, name="p") as pool:
        (worker,) = [process.pid for process in pool._pool]
        with pytest.raises(type(error)) as raised:
            pool.apply_async(remote_pool.count_and_raise, (str(calls), error)).get(LONG)
        assert raised.value.args == error.args
        assert pool.apply_async(os.getpid).get(LONG) == worker
    pool.join()
    assert calls.read_text() == f"{worker}\n"


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_child_that_a_task_forks_ends_as_a_program_and_sends_no_result(client: Client, name: str | None) -> None:
    """It sent a second result, which counted for another task, or waited forever."""
    with Pool(1, name=name) as pool:
        for end, code in (("returns", 0), ("raises", 1), ("exits", 3)):
            assert pool.apply_async(remote_pool.fork_child, (end,)).get(LONG) == code
        assert pool.map_async(remote_pool.square, range(5), 1).get(LONG) == [0, 1, 4, 9, 16]
    pool.join()


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_task_can_limit_itself_by_an_alarm(client: Client, name: str | None) -> None:
    with Pool(1, name=name) as pool:
        with pytest.raises(TimeoutError, match="the alarm"):
            pool.apply_async(remote_pool.sleep_with_alarm, (UNIT / 10,)).get(LONG)
        assert pool.apply_async(remote_pool.square, (3,)).get(LONG) == 9
    pool.join()


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_child_that_a_task_forks_can_be_terminated(client: Client, name: str | None) -> None:
    """It had the worker's handler of SIGTERM, which did nothing there."""
    with Pool(1, name=name) as pool:
        for _ in range(5):
            assert pool.apply_async(remote_pool.terminate_child).get(LONG) == -signal.SIGTERM
    pool.join()


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_items_that_a_task_has_put_are_sent_before_its_worker_exits(client: Client, name: str | None) -> None:
    """They were lost, because the worker closed its client first."""
    queue = distsync.multiprocessing.Queue(name="q")
    with Pool(1, name=name) as pool:
        pool.apply_async(remote_pool.put_slow_items, (queue, 3)).get(LONG)
        pool.close()
        pool.join()
    assert queue.qsize() == 3


def test_task_of_a_worker_that_ctrl_c_ended_is_run_by_another(mortal: Client, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with Pool(1, name="p") as pool:
        assert pool.apply_async(remote_pool.interrupt_worker, (str(calls),)).get(LONG) == "done"
    pool.join()
    assert len(set(calls.read_text().splitlines())) == 2


def test_pickling_that_calls_sys_exit_ends_only_its_own_call(client: Client) -> None:
    with Pool(1, name="p") as pool:
        (worker,) = [process.pid for process in pool._pool]
        for task in [
            pool.apply_async(remote_pool.same, (remote_pool.ExitsWhenPickled(),)),
            pool.apply_async(remote_pool.same, (remote_pool.ExitsWhenUnpickled(),)),
            pool.apply_async(remote_pool.ExitsWhenUnpickled),
        ]:
            with pytest.raises(SystemExit):
                task.get(LONG)
        with pytest.raises(MaybeEncodingError, match="SystemExit"):
            pool.apply_async(remote_pool.ExitsWhenPickled).get(LONG)
        assert pool.apply_async(os.getpid).get(LONG) == worker
    pool.join()


def test_iterable_and_callback_that_call_sys_exit_end_only_their_own_call(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        sys.exit(7)

    with Pool(1, name="p") as pool:
        results = pool.imap(abs, numbers())
        assert results.next(LONG) == 1
        with pytest.raises(SystemExit):
            results.next(LONG)
        with pytest.raises(StopIteration):
            results.next(LONG)
        pool.apply_async(abs, (-1,), callback=sys.exit).wait(LONG)
        assert pool.apply_async(abs, (-2,)).get(LONG) == 2
    pool.join()
    eventually(lambda: "SystemExit: 1" in caplog.text)


def test_command_line_worker_that_ignores_the_exit_of_its_children_replaces_and_stops_them(
    client: Client, shells: Shells
) -> None:
    program = (
        "import signal; from distsync.cli.worker import worker_command;"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN); worker_command()"
    )
    worker = shells.start("-c", program, "p", "--processes", "1", "--max-tasks-per-child", "1")
    with Pool(0, name="p") as pool:
        assert len(set(pool.map(remote_pool.pid, range(2), 1))) == 2
    pool.join()
    worker.send_signal(signal.SIGTERM)
    printed(worker)


@pytest.mark.parametrize(
    ("initializer", "reason"),
    [(remote_pool.fail_to_begin, "no model file"), (remote_pool.exit_at_begin, "exit code 3")],
)
def test_workers_that_exit_before_they_start_raise_an_error_in_the_caller(
    client: Client, initializer: Any, reason: str
) -> None:
    with Pool(2, initializer, name="p") as pool:
        for _ in range(2):
            with pytest.raises(WorkerStartError, match=reason):
                pool.apply_async(remote_pool.square, (3,)).get(LONG)
    pool.join()


def test_two_pools_of_one_name_share_their_workers(client: Client, peer: Peer) -> None:
    with Pool(2, name="p") as pool:
        workers = {process.pid for process in pool._pool}
        assert peer.do(remote_pool.pids_of, "p", 20) <= workers
    pool.join()


def test_command_line_worker_joins_and_finishes_its_task_on_sigterm(client: Client, shells: Shells) -> None:
    with Pool(0, name="p") as pool:
        command = shells.start("-m", "distsync", "worker", "p", "--processes", "1")
        result = pool.apply_async(remote_pool.wait_to_be_told, ("go",))
        assert Event(name="go-begun").wait(LONG)
        later = pool.apply_async(remote_pool.square, (3,))
        command.send_signal(signal.SIGTERM)
        assert result.get(LONG) not in (os.getpid(), command.pid)
        assert command.wait(LONG) == 0
        assert not later.ready()
    pool.join()


@pytest.mark.slow
def test_task_whose_module_the_worker_cannot_import_raises_payload_refused_error(
    client: Client, shells: Shells
) -> None:
    with Pool(0, name="p") as pool:
        shells.start("-m", "distsync", "worker", "p", "--processes", "1")
        with pytest.raises(PayloadRefusedError, match="a_module_that_is_not_there"):
            pool.apply_async(remote_pool.same, (remote_pool.Unreadable(),)).get(LONG)
        assert pool.apply_async(remote_pool.square, (3,)).get(LONG) == 9
    pool.join()


@pytest.mark.slow
def test_restart_of_the_server_loses_no_task(own_server: ServerProcess) -> None:
    with Client(own_server.hosts, namespace="/pools") as client, Pool(2, name="p", client=client) as pool:
        results = pool.imap(remote_pool.slow_square, range(40))
        assert next(results) == 0
        own_server.restart(kill=True)
        assert list(results) == [number * number for number in range(1, 40)]
        pool.close()
        pool.join()


def test_initializer_that_cannot_be_pickled_is_refused_at_once(client: Client, observer: Observer) -> None:
    context = distsync.multiprocessing.get_context("spawn")
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        context.Pool(1, lambda: None, name="p")
    assert not [path for path in observer.tree(client.namespace) if "/callers/" in path]


# ---- initializers


@pytest.mark.parametrize(
    ("initializer", "label"), [(remote_pool.set_other_label, "x"), (remote_pool.set_label, "y"), (None, None)]
)
def test_pool_of_one_name_with_another_initializer_is_refused_by_an_error_that_names_both(
    client: Client, observer: Observer, peer: Peer, initializer: Any, label: str | None
) -> None:
    initargs = () if initializer is None else (label,)
    with Pool(1, remote_pool.set_label, ("x",), name="p") as pool:
        before = callers(pool, observer)
        theirs = r"the initializer of \S+/p is set_label of helpers\.remote_functions\.pool \(arguments: \w+\), not "
        ours = "None" if initializer is None else initializer.__name__
        for create in (Pool, Executor):
            with pytest.raises(MismatchError, match=theirs + ours):
                create(1, initializer=initializer, initargs=initargs, name="p")
        with pytest.raises(MismatchError, match=theirs + ours):
            peer.do(remote_pool.create_pool, 1, initializer, initargs, "p")
        assert callers(pool, observer) == before
        assert pool.map(remote_pool.labels, range(5), chunksize=1) == [["x"]] * 5
    pool.join()
    with Pool(1, initializer, initargs, name="p") as pool:
        assert pool.apply(remote_pool.labels) == [label] * len(initargs)
    pool.join()


def callers(pool: Any, observer: Observer) -> set[str]:
    return set(observer.kazoo.get_children(f"{pool.path}/callers"))


def test_pool_without_workers_and_initializer_uses_the_workers_of_any_initializer(client: Client) -> None:
    labels = {"one", "two", "three"}, {"a": [1, 2]}
    with Pool(0, name="p") as before, Pool(1, remote_pool.set_label, (labels,), name="p") as pool:
        with Pool(1, remote_pool.set_label, (labels,), name="p") as second, Pool(0, name="p") as after:
            for each in (before, pool, second, after):
                assert each.map(remote_pool.labels, range(4), chunksize=1) == [[labels]] * 4


def test_pool_whose_session_ended_while_another_initializer_came_into_use_is_refused(
    client: Client, other: Client, observer: Observer
) -> None:
    with Pool(0, remote_pool.set_label, ("x",), name="p") as pool:
        observer.kazoo.delete(f"{pool._submitting._inbox.path}/alive")
        with Pool(0, remote_pool.set_label, ("y",), name="p", client=other) as later:
            result = pool.apply_async(remote_pool.labels)
            expire(client)
            with pytest.raises(MismatchError, match="the initializer of"):
                result.get(LONG)
        later.join()
    pool.join()


def test_worker_refuses_tasks_of_a_caller_with_another_initializer(client: Client, observer: Observer) -> None:
    """Both can be at work if the session of one of them ended, and its workers run."""
    with Pool(1, remote_pool.set_label, ("x",), name="p") as pool:
        record = json.dumps({"alone": False, "timeout_ms": 10_000})
        observer.kazoo.set(pool._submitting._inbox.path, record.encode())
        with Pool(0, remote_pool.set_label, ("y",), name="p") as other:
            with pytest.raises(
                PayloadRefusedError, match=r"initializer is set_label .*this worker has called set_label"
            ):
                other.apply_async(remote_pool.labels).get(LONG)
        other.join()
        assert pool.apply(remote_pool.labels) == ["x"]
    pool.join()


def test_command_line_worker_calls_the_initializer_of_the_callers(client: Client, shells: Shells) -> None:
    shells.start("-m", "distsync", "worker", "p", "--processes", "1")
    for label in ("x", "y"):
        with Pool(0, remote_pool.set_label, (label,), name="p") as pool, Pool(0, name="p") as other:
            for each in (pool, other):
                assert each.map_async(remote_pool.labels, range(3), chunksize=1).get(LONG) == [[label]] * 3
        pool.join()
        other.join()
    with Pool(0, name="p") as pool, Pool(0, remote_pool.fail_to_begin, name="p") as failing:
        with pytest.raises(PayloadRefusedError, match=r"fail_to_begin of .*failed in this worker.*no model file"):
            failing.apply_async(remote_pool.labels).get(LONG)
    pool.join()


def test_command_line_worker_whose_initializer_calls_sys_exit_refuses_the_task(client: Client, shells: Shells) -> None:
    shells.start("-m", "distsync", "worker", "p", "--processes", "1")
    with Pool(0, remote_pool.leave, name="p") as pool:
        with pytest.raises(PayloadRefusedError, match="failed in this worker.*SystemExit: 7"):
            pool.apply_async(remote_pool.labels).get(LONG)
    pool.join()


def test_program_that_exits_when_it_is_loaded_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(3)")
    with pytest.raises(PayloadRefusedError, match="cannot load, SystemExit: 3"):
        with main_module_of(MainProgram(None, str(program), None), "/p"):
            pass


def test_command_line_worker_refuses_tasks_if_it_cannot_call_the_initializer(client: Client, shells: Shells) -> None:
    shells.start("-m", "distsync", "worker", "p", "--processes", "1")
    with Pool(0, lambda: None, name="p") as pool:
        with pytest.raises(PayloadRefusedError, match=r"<lambda> in line \d+ of .* cannot be sent to this worker"):
            pool.apply_async(remote_pool.labels).get(LONG)
    pool.join()


# ---- callers that are killed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p", None])
def test_killed_caller_leaves_no_worker_and_no_znode(
    mortal: Client, make_mortal: Callable[..., Peer], observer: Observer, name: str | None
) -> None:
    caller = make_mortal()
    workers = caller.do(remote_pool.begin, name, 2, remote_pool.slow_square, 3)
    caller.kill()
    eventually(lambda: not any(map(is_alive, workers)), "workers remain", LONG)
    pools = f"{mortal.namespace}/pool"
    names = ("/callers/", "/claims/", "/i_")

    def remains() -> list[str]:
        return [path for path in observer.tree(pools) if name is None or any(part in path for part in names)]

    eventually(lambda: not remains(), f"remains: {remains()}", LONG)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_znodes_of_a_caller_and_workers_killed_together_are_deleted_by_the_next_pool(
    mortal: Client, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    caller = make_mortal()
    workers = caller.do(remote_pool.begin, None, 1, remote_pool.slow_square, 3)
    caller.signal(signal.SIGSTOP)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    caller.kill()
    eventually(lambda: not observer.ephemerals(mortal.namespace), "sessions remain", LONG)

    def nothing_remains() -> bool:
        with Pool(0, name="other") as pool:
            pool.close()
            pool.join()
        return not [path for path in observer.tree(f"{mortal.namespace}/pool") if "/pool/other" not in path]

    eventually(nothing_remains, "the pool remains", LONG)


def test_caller_whose_session_expires_gets_its_results(client: Client) -> None:
    with Pool(1, name="p") as pool:
        result = pool.apply_async(remote_pool.wait_for, ("go",))
        assert Event(name="go-begun").wait(LONG)
        expire(client)
        Event(name="go").set()
        assert result.get(LONG)
    pool.join()


# ---- payloads and codecs


def test_unpicklable_task_or_result_raises_and_leaves_the_pool_usable(client: Client) -> None:
    with Pool(1, name="p") as pool:
        with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
            pool.apply(remote_pool.same, (lambda: None,))
        with pytest.raises(MaybeEncodingError):
            pool.apply(remote_pool.some_lambda)
        with pytest.raises(PayloadRefusedError, match="a_module_that_is_not_there"):
            pool.apply_async(remote_pool.same, ([remote_pool.Unreadable()],)).get(LONG)
        assert pool.apply(remote_pool.square, (3,)) == 9
    pool.join()


def test_long_payloads_are_split_and_their_parts_are_deleted(client: Client, observer: Observer) -> None:
    with Pool(1, name="p", max_payload=5_000_000) as pool:
        long = os.urandom(3_000_000)
        assert pool.apply(remote_pool.same, (long,)) == long
        with pytest.raises(PayloadTooLargeError, match="5000000"):
            pool.apply(len, (os.urandom(6_000_000),))
        with pytest.raises(PayloadTooLargeError, match="5000000"):
            pool.apply(os.urandom, (6_000_000,))
        pool.apply(remote_pool.same, (1,))
        eventually(lambda: not [path for path in observer.tree(pool.path) if "/parts/" in path], "parts remain")
    pool.join()


def test_task_refused_for_its_signature_names_its_function(make_client: MakeClient) -> None:
    mine, theirs = make_client(authkey=b"mine"), make_client(authkey=b"theirs")
    with Pool(0, name="p", client=mine) as pool, Pool(1, name="p", client=theirs) as other:
        with pytest.raises(PayloadRefusedError, match=r"helpers\.remote_functions\.pool\.square .*signature"):
            pool.apply_async(remote_pool.square, (3,)).get(LONG)
        assert other.apply(remote_pool.square, (3,)) == 9
    pool.join()
    other.join()


def test_item_that_is_no_task_is_discarded(client: Client, other: Client, observer: Observer) -> None:
    with Pool(1, name="p") as pool:
        JoinableQueue(path=pool.path, client=other).put("nothing that a worker could do")
        assert pool.apply_async(remote_pool.square, (3,)).get(LONG) == 9
        eventually(lambda: not [path for path in observer.tree(pool.path) if "/i_" in path])
    pool.join()


def test_json_codec_is_refused(make_client: MakeClient) -> None:
    with pytest.raises(ConfigurationError, match="json"):
        Pool(1, name="p", client=make_client(codec="json"))


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_values_and_errors_without_a_text_fail_alone(client: Client, name: str | None) -> None:
    """They ended the workers, or their own error was that of the call."""
    with Pool(1, name=name) as pool:
        (worker,) = [process.pid for process in pool._pool]
        with pytest.raises(MaybeEncodingError, match=r"<helpers\.remote.*\.Textless object.*TextlessError"):
            pool.apply_async(remote_pool.textless).get(LONG)
        with pytest.raises(PayloadRefusedError, match="TextlessError"):
            pool.apply_async(remote_pool.same, (remote_pool.Textless(pickles=True),)).get(LONG)
        assert pool.apply_async(os.getpid).get(LONG) == worker
    pool.join()


@pytest.mark.parametrize("name", ["p", None])
def test_lambdas_and_closures_travel_with_cloudpickle(make_client: MakeClient, name: str | None) -> None:
    pytest.importorskip("cloudpickle")
    factor = 3
    with Pool(2, name=name, client=make_client(codec="cloudpickle")) as pool:
        assert pool.map(lambda number: number * factor, range(5)) == [0, 3, 6, 9, 12]
        assert pool.apply(lambda: lambda: factor)() == 3
    pool.join()


# ---- signal handlers that raise while a pool is created or terminated


def remains() -> tuple[list[str], int]:
    """Return the threads of pools, and how many files are open."""
    threads = [each.name for each in threading.enumerate() if each.name.startswith("distsync-pool")]
    return threads, len(os.listdir("/proc/self/fd"))


def expect_remains(before: tuple[list[str], int], what: str) -> None:
    try:
        eventually(lambda: remains() == before, limit=PATIENCE)
    except AssertionError:
        raise AssertionError(f"{what}: {remains()}, and {before} before") from None


def raise_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool) -> None:
    """Let a method raise KeyboardInterrupt at its next call in this thread, before or after it does its work."""
    method, calls = getattr(owner, name), list[int]()

    def interrupted(self: Any, *args: Any, **keywords: Any) -> Any:
        is_of_pool = not isinstance(self, threading.Thread) or self.name.startswith("distsync-pool")
        if calls or not is_of_pool or threading.current_thread() is not threading.main_thread():
            return method(self, *args, **keywords)
        calls.append(1)
        if after:
            method(self, *args, **keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_second_terminate_completes_one_that_was_interrupted(
    client: Client, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did nothing: threads, processes and files of the pool stayed until the end of the process."""
    places: list[tuple[Any, str]] = [
        (threading.Thread, "join"),
        (LocalWorkers, "terminate"),
        (LocalWorkers, "join"),
        (LocalWorkers, "_close"),
        (PoolCaller, "_break_off"),
        (PipeCaller, "_close_files"),
        (Notifier, "close"),
    ]
    with Pool(1, name=name) as warm:
        warm.apply(abs, (1,))
    before = remains()
    for owner, method in places:
        for after in (False, True):
            pool = Pool(1, name=name)
            assert pool.apply(abs, (-1,)) == 1
            with monkeypatch.context() as patch:
                raise_once(patch, owner, method, after)
                with pytest.raises(KeyboardInterrupt):
                    pool.terminate()
            pool.terminate()
            pool.join()
            expect_remains(before, f"interrupted {'after' if after else 'before'} {owner.__name__}.{method}")
            pool = None  # type: ignore[assignment]


@pytest.mark.parametrize("name", [None, "p"], ids=["pipes", "shared"])
def test_interrupted_creation_of_a_pool_leaves_no_threads_processes_and_files(
    client: Client, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pool(1, name=name) as warm:
        warm.apply(abs, (1,))
    before = remains()
    for owner, method in [
        (LocalWorkers, "start_missing"),
        (LocalWorkers, "_start"),
        (PoolCaller, "start"),
        (threading.Thread, "start"),
    ]:
        for after in (False, True):
            with monkeypatch.context() as patch:
                raise_once(patch, owner, method, after)
                with pytest.raises(KeyboardInterrupt):
                    Pool(1, name=name)
            gc.collect()
            expect_remains(before, f"interrupted {'after' if after else 'before'} {owner.__name__}.{method}")
