"""Pools with a name and workers of their own: tasks in pipes, and tasks in the queue for workers elsewhere."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.leak_census import Observer
from helpers.pools import remaining
from helpers.remote_functions import pool as remote_pool
from helpers.request_counts import counted
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Peer, credentials, expire

from distsync import Event, TaskLostError
from distsync._client.client import Client
from distsync._protocols.pool.callers import remove_caller
from distsync._protocols.retries import read
from distsync._protocols.steps import Children
from distsync.errors import NoNodeError
from distsync.futures import Executor
from distsync.multiprocessing.pool import Pool
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]
LONG = 3 * PATIENCE


@pytest.fixture
def elsewhere(make_mortal: Callable[..., Peer]) -> Iterator[Peer]:
    """Yield a process that can be a worker until the end of the test. Its session outlives a stop."""
    made = make_mortal(4 * PATIENCE)
    made.do(Event(name="e").is_set)  # connects
    session = made.do(credentials)
    yield made
    made.kill()
    expire(session)


# ---- tasks of this process


@pytest.mark.parametrize("chunksize", [1, 50])
def test_tasks_that_local_workers_take_cost_no_request(client: Client, chunksize: int) -> None:
    """While they have no room for more, this process looks once whether a worker elsewhere waits."""
    with Pool(2, name="p") as pool:
        pool.map(abs, range(100), 1)
        with counted(client) as cost:
            assert pool.map(abs, range(2000), chunksize) == list(range(2000))
            for number in range(50):
                assert pool.apply(abs, (number,)) == number
        assert cost.requests < 2050 / 10  # about 20 if the machine is not busy
    pool.join()


def test_local_tasks_need_no_server(far: Client, proxy: Proxy) -> None:
    with Pool(2, name="p", client=far) as pool:
        assert pool.apply(abs, (-1,)) == 1
        proxy.refuse()
        eventually(lambda: far.state != "connected")
        assert pool.map(remote_pool.square, range(100), 1) == [number * number for number in range(100)]
        proxy.heal()
    pool.join()


def test_caller_whose_znodes_were_removed_keeps_its_local_tasks(client: Client, observer: Observer) -> None:
    with Pool(1, name="p") as pool:
        first = pool.apply_async(remote_pool.wait_for, ("go",))
        assert Event(name="go-begun").wait(LONG)
        others = [pool.apply_async(remote_pool.square, (number,)) for number in range(5)]
        before = pool._submitting.caller
        client.run(remove_caller(pool._submitting._core, before))
        eventually(lambda: pool._submitting.caller != before)
        Event(name="go").set()
        assert first.get(LONG) > 0
        assert [each.get(LONG) for each in others] == [0, 1, 4, 9, 16]
    pool.join()
    assert remaining(pool, observer) == []


def test_workers_of_a_caller_whose_znodes_were_removed_are_counted_once(client: Client) -> None:
    with Pool(2, name="p") as pool, Pool(0, name="p", progress=True) as other:
        eventually(lambda: other._count_workers(LONG) == 2)
        for calling in (pool._submitting, other._submitting):
            before = calling.caller
            client.run(remove_caller(calling._core, before))
            eventually(lambda: calling.caller != before)  # noqa: B023
        assert (pool._count_workers(LONG), other._count_workers(LONG)) == (2, 2)
        assert other._submitting.worker_counts() == (0, 2)
    for each in (pool, other):
        each.join()


# ---- tasks that go elsewhere


def test_workers_elsewhere_run_what_local_workers_have_no_room_for(
    client: Client, elsewhere: Peer, observer: Observer
) -> None:
    elsewhere.start(remote_pool.work, "p")
    with Pool(1, name="p") as pool:
        begun = [pool.apply_async(remote_pool.meet, ("b", 2)) for _ in range(2)]
        assert elsewhere.pid in {each.get(LONG) for each in begun}
        pids = Counter(pool.map(remote_pool.pid, range(100), 1))
        assert set(pids) == {elsewhere.pid, pool._pool[0].pid}
        pool.close()
        pool.join()
    assert [path for path in remaining(pool, observer) if "/getters/" not in path] == []


def test_task_that_no_worker_elsewhere_has_taken_comes_back(client: Client, elsewhere: Peer) -> None:
    """The worker elsewhere is stopped, after this process has seen that it waits."""
    elsewhere.start(remote_pool.work, "p")
    with Pool(1, name="p") as pool:
        getters = f"{pool.path}/getters"
        eventually(lambda: _children(client, getters) > 0)
        elsewhere.signal(signal.SIGSTOP)
        begun = pool.apply_async(remote_pool.wait_for, ("go",))
        others = [pool.apply_async(remote_pool.square, (number,)) for number in range(3)]
        assert Event(name="go-begun").wait(LONG)
        eventually(lambda: pool._submitting._exported)
        Event(name="go").set()
        assert begun.get(LONG) > 0
        assert [each.get(LONG) for each in others] == [0, 1, 4]
    pool.join()


def _children(client: Client, path: str) -> int:
    async def count() -> int:
        try:
            return len((await read(Children(path))).names)
        except NoNodeError:
            return 0

    return int(client.run(count()))


def test_task_that_waits_elsewhere_can_be_cancelled(client: Client, elsewhere: Peer) -> None:
    elsewhere.start(remote_pool.work, "p")
    with Executor(1, name="p") as executor:
        pool = executor._pool
        eventually(lambda: _children(client, f"{pool.path}/getters") > 0)
        elsewhere.signal(signal.SIGSTOP)
        begun = executor.submit(remote_pool.wait_for, "go")
        assert Event(name="go-begun").wait(LONG)
        later = executor.submit(remote_pool.square, 3)
        eventually(lambda: pool._submitting._exported and not pool._submitting._being_put)
        assert not later.running()
        assert later.cancel()
        Event(name="go").set()
        assert begun.result(LONG) > 0


# ---- tasks of others


def test_idle_local_workers_run_the_tasks_of_others(client: Client, peer: Peer, observer: Observer) -> None:
    with Pool(2, name="p") as pool:
        workers = {process.pid for process in pool._pool}
        assert peer.do(remote_pool.pids_of, "p", 30) == workers
        pool.close()
        pool.join()
    assert remaining(pool, observer) == []


def test_tasks_of_others_are_given_back_while_all_local_workers_are_busy(client: Client, elsewhere: Peer) -> None:
    with Pool(0, name="p") as others:
        first = others.apply_async(remote_pool.wait_for, ("go",))
        rest = [others.apply_async(remote_pool.pid) for _ in range(4)]
        with Pool(1, name="p") as pool:
            assert Event(name="go-begun").wait(LONG)
            elsewhere.start(remote_pool.work, "p")
            assert {each.get(LONG) for each in rest} == {elsewhere.pid}
            Event(name="go").set()
            assert first.get(LONG) == pool._pool[0].pid
        pool.join()
    others.join()


def test_task_of_another_that_kills_local_workers_is_the_only_one_to_fail(mortal: Client, observer: Observer) -> None:
    with Pool(0, name="p") as others, Pool(2, name="p", max_deliveries=2) as pool:
        bad = others.apply_async(remote_pool.die)
        good = [others.apply_async(remote_pool.square, (number,)) for number in range(5)]
        mine = pool.map_async(remote_pool.square, range(20), 1)
        with pytest.raises(TaskLostError, match=r"helpers\.remote_functions\.pool\.die .*delivered 2 times"):
            bad.get(LONG)
        assert [each.get(LONG) for each in good] == [0, 1, 4, 9, 16]
        assert mine.get(LONG) == [number * number for number in range(20)]
        for each in (pool, others):
            each.close()
            each.join()
    assert remaining(pool, observer) == []


@pytest.mark.parametrize("end", ["close", "terminate"])
def test_end_of_a_pool_loses_no_task_of_another(client: Client, observer: Observer, end: str, tmp_path: Path) -> None:
    begun, may_end, ended = tmp_path / "begun", tmp_path / "may_end", tmp_path / "ended"
    with Pool(0, name="p") as others:
        pool = Pool(1, name="p")
        first = others.apply_async(remote_pool.wait_for_file, (begun, may_end, ended))
        rest = [others.apply_async(remote_pool.square, (number,)) for number in range(5)]
        eventually(begun.exists)
        getattr(pool, end)()
        joining = threading.Thread(target=pool.join)
        joining.start()
        if end == "close":
            may_end.touch()
        joining.join(LONG)
        assert not joining.is_alive()
        assert ended.exists() == (end == "close")
        may_end.touch()
        with Pool(1, name="p") as another:
            first.get(LONG)
            assert [each.get(LONG) for each in rest] == [0, 1, 4, 9, 16]
        another.join()
        others.close()
        others.join()
    assert remaining(others, observer) == []


def test_task_of_another_is_delivered_again_if_the_session_ends(client: Client, peer: Peer, observer: Observer) -> None:
    with Pool(1, name="p") as pool:
        peer.start(remote_pool.pids_of_waiting, "p", "go")
        assert Event(name="go-begun").wait(LONG)
        expire(client)
        Event(name="go").set()
        assert peer.result(LONG) in {process.pid for process in pool._pool}
        assert pool.apply(os.getpid) == pool._pool[0].pid
        pool.close()
        pool.join()
    assert remaining(pool, observer) == []
