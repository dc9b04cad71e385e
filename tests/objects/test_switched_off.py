"""Optimizations can be switched off, as ``make off`` does for whole suites."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers import feature_switches
from helpers.leak_census import Observer
from helpers.worker_processes import Running

from distsync import Lock, Queue
from distsync._client.client import Client
from distsync._client.transport.kazoo_client import FastKazooConnection

THREADS = 8


@pytest.fixture
def plain(make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a client with all optimizations switched off."""
    monkeypatch.setenv("DISTSYNC_LINGER", "0")
    monkeypatch.setenv("DISTSYNC_TEST_FAST_WIRE", "0")
    monkeypatch.setenv("DISTSYNC_TEST_TOGETHER", "0")
    feature_switches.set_by_environment(monkeypatch)
    return make_client()


def test_released_lock_is_not_cached(plain: Client, observer: Observer) -> None:
    lock = Lock(name="a", client=plain)
    with lock:
        assert len(observer.ephemerals(lock.path)) == 1
    assert observer.ephemerals(lock.path) == []
    plain.close()


def test_connection_uses_the_io_of_kazoo(plain: Client) -> None:
    plain.sync()
    assert not isinstance(plain._runtime.zk_session._kazoo._connection, FastKazooConnection)  # type: ignore[union-attr]
    plain.close()


def test_each_put_and_each_task_done_is_a_transaction_of_its_own(plain: Client) -> None:
    queue: Queue[int] = Queue(name="q", client=plain)
    queue.put(0)
    queue.get()
    before = plain.statistics().requests["Multi"]
    for one in [Running(queue.put, number) for number in range(THREADS)]:
        one.result()
    got = sorted(queue.get() for _ in range(THREADS))
    for one in [Running(queue.task_done) for _ in range(THREADS)]:
        one.result()
    assert got == list(range(THREADS))
    assert plain.statistics().requests["Multi"] - before == 3 * THREADS
    plain.close()
