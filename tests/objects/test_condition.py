"""Condition shared by threads, clients and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results

from distsync import LockLostError, NotHeldError
from distsync._client.client import Client
from distsync.threading import Condition, Lock, RLock

MakeClient = Callable[..., Client]


@pytest.fixture
def condition(client: Client) -> Condition:
    return Condition(name="c")


def waiters(condition: Condition, observer: Observer) -> list[str]:
    return sorted(observer.tree(f"{condition.path}/waiters"), key=lambda path: path[-10:])


def start_in_order(condition: Condition, observer: Observer, *starts: Callable[[], Any]) -> list[Any]:
    """Start waiters one after the other."""
    begun = []
    for count, start in enumerate(starts, 1):
        begun.append(start())
        eventually(lambda: len(waiters(condition, observer)) == count)  # noqa: B023
    return begun


def test_notify_n_wakes_the_n_longest_waiting_processes(
    condition: Condition, observer: Observer, peers: list[Peer]
) -> None:
    start_in_order(condition, observer, *(lambda peer=peer: peer.start(remote.wait_in, condition) for peer in peers))
    with condition:
        condition.notify(2)
    assert [peer.result() for peer in peers[:2]] == [True, True]
    assert len(waiters(condition, observer)) == 1
    with condition:
        condition.notify(5)
    assert peers[2].result()
    assert waiters(condition, observer) == []


@pytest.mark.parametrize("count", [1, None])
def test_waiter_woken_by_a_foreign_write_takes_no_notify_from_the_others(
    condition: Condition, observer: Observer, count: int | None
) -> None:
    """Its znode has unexpected data, and it cannot leave the queue until the notifier releases the
    lock.
    """
    both = start_in_order(condition, observer, *(lambda: Running(remote.wait_in, condition),) * 2)
    with condition:
        observer.kazoo.set(waiters(condition, observer)[0], b"[]")
        condition.notify_all() if count is None else condition.notify(count)
    assert results(both) == [True, True]
    assert waiters(condition, observer) == []


def test_notify_all_wakes_the_waiters_of_all_processes(
    condition: Condition, observer: Observer, peers: list[Peer]
) -> None:
    start_in_order(condition, observer, *(lambda peer=peer: peer.start(remote.wait_in, condition) for peer in peers))
    ours = Running(remote.wait_in, condition)
    eventually(lambda: len(waiters(condition, observer)) == 4)
    with condition:
        condition.notify_all()
    assert [peer.result() for peer in peers] == [True] * 3
    assert ours.result()


def test_notify_without_waiters_is_not_remembered(condition: Condition, peer: Peer) -> None:
    with condition:
        condition.notify()
    assert not peer.do(remote.wait_in, condition, UNIT)


def test_waiter_that_times_out_consumes_no_notify(condition: Condition, observer: Observer, peers: list[Peer]) -> None:
    assert not peers[0].do(remote.wait_in, condition, UNIT)
    start_in_order(condition, observer, lambda: peers[1].start(remote.wait_in, condition))
    assert not peers[2].do(remote.wait_in, condition, UNIT)
    with condition:
        condition.notify()
    assert peers[1].result()


@pytest.mark.parametrize("operation", ["wait", "notify", "notify_all"])
def test_call_without_the_lock_raises_as_in_the_standard_library(
    condition: Condition, peer: Peer, operation: str
) -> None:
    with pytest.raises(RuntimeError):
        getattr(condition, operation)()
    with condition:
        assert peer.do(remote.catch, getattr(condition, operation)) == "NotHeldError"
        with pytest.raises(NotHeldError):
            Running(getattr(condition, operation)).result()


def test_producers_and_consumers_in_several_processes_miss_no_notify(
    condition: Condition, peers: list[Peer], tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    peers[0].start(remote.consume, condition, counter, 15)
    peers[1].start(remote.consume, condition, counter, 15)
    peers[2].start(remote.produce, condition, counter, 15)
    assert remote.produce(condition, counter, 15) == 15
    assert [peer.result(3 * PATIENCE) for peer in peers] == [15] * 3
    assert counter.read_text() == "0"


def test_wait_restores_the_recursion_count_of_the_lock(condition: Condition, observer: Observer, peer: Peer) -> None:
    start_in_order(condition, observer, lambda: peer.start(remote.wait_deep_in, condition, 3))
    remote.notify(condition)
    assert peer.result() == 3
    assert condition.acquire(blocking=False)
    condition.release()


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_condition_with_an_explicit_distsync_lock_is_pickled_with_it(
    client: Client, observer: Observer, peer: Peer, kind: Callable[..., Any]
) -> None:
    lock = kind(name="its lock")
    condition = Condition(lock, name="c")
    start_in_order(condition, observer, lambda: peer.start(remote.wait_in, condition))
    with lock:
        condition.notify()
    assert peer.result()


def test_conditions_that_share_a_lock_wake_only_their_own_waiters(
    client: Client, observer: Observer, peer: Peer
) -> None:
    lock = RLock(name="shared")
    full, empty = Condition(lock, name="full"), Condition(lock, name="empty")
    start_in_order(full, observer, lambda: peer.start(remote.wait_in, full))
    ours = Running(remote.wait_in, empty)
    eventually(lambda: waiters(empty, observer))
    remote.notify(full)
    assert peer.result()
    assert ours.is_alive()
    remote.notify(empty)
    assert ours.result()


@pytest.mark.slow_on("zookeeper")
def test_notify_of_a_waiter_that_is_killed_wakes_the_next_one(
    condition: Condition, observer: Observer, peer: Peer, make_mortal: Callable[..., Peer]
) -> None:
    """The waiter is notified and then killed before it can acknowledge the notification."""
    mortal = make_mortal()
    start_in_order(
        condition,
        observer,
        lambda: mortal.start(remote.wait_in, condition),
        lambda: peer.start(remote.wait_in, condition),
    )
    # the waiter cannot return before the lock is released, and then it is already killed
    with condition:
        condition.notify()
        mortal.kill()
        eventually(lambda: len(waiters(condition, observer)) == 1)
    assert peer.result()


@pytest.mark.slow_on("zookeeper")
def test_notify_after_a_notified_waiter_was_killed_replaces_the_lost_notify(
    condition: Condition, observer: Observer, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    start_in_order(
        condition,
        observer,
        lambda: mortal.start(remote.wait_in, condition),
        *(lambda peer=peer: peer.start(remote.wait_in, condition) for peer in peers),
    )
    with condition:
        condition.notify()
        mortal.kill()
        eventually(lambda: len(waiters(condition, observer)) == 3)
        condition.notify()
    assert [peer.result() for peer in peers[:2]] == [True, True]
    assert len(waiters(condition, observer)) == 1
    remote.notify(condition)
    assert peers[2].result()


def test_wait_whose_session_ends_returns_as_if_notified(
    condition: Condition, observer: Observer, make_client: MakeClient
) -> None:
    other = make_client()
    waiting = start_in_order(condition, observer, lambda: Running(remote.wait_in, Condition(name="c", client=other)))[0]
    expire(other)
    assert waiting.result()
    assert waiters(condition, observer) == []


def test_wait_with_a_lost_lock_raises_and_does_not_enqueue(condition: Condition, observer: Observer) -> None:
    condition.acquire()
    observer.kazoo.delete(condition._lock.holders()[0].path)
    eventually(lambda: not condition._lock.held)
    for call in (condition.wait, condition.notify, condition.notify_all, condition.release):
        with pytest.raises(LockLostError):
            call()
    with pytest.raises(NotHeldError):
        condition.wait()
    assert waiters(condition, observer) == []
    with condition:
        condition.notify_all()


def test_condition_with_a_standard_library_lock_works_within_one_process(client: Client) -> None:
    condition = Condition(threading.Lock(), name="c")
    waiting = Running(remote.wait_in, condition)
    eventually(lambda: not condition._explicit_lock.locked() and len(client._runtime.shared_states) > 0)  # type: ignore[union-attr]

    def notified() -> bool:
        with condition:
            condition.notify()
        return not waiting.is_alive()

    eventually(notified)
    assert waiting.result()


def test_consumer_threads_are_notified_by_producers_in_other_processes(
    condition: Condition, peers: list[Peer], tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    ours = [Running(remote.consume, condition, counter, 5) for _ in range(3)]
    for peer in peers:
        peer.start(remote.produce, condition, counter, 5)
    assert results(ours, 3 * PATIENCE) == [5] * 3
    assert [peer.result() for peer in peers] == [5] * 3
