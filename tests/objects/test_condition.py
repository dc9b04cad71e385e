"""Condition between threads, clients and processes."""

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


def stand(condition: Condition, observer: Observer, *starts: Callable[[], Any]) -> list[Any]:
    """They begin to wait, one after the other."""
    begun = []
    for count, start in enumerate(starts, 1):
        begun.append(start())
        eventually(lambda: len(waiters(condition, observer)) == count)  # noqa: B023
    return begun


def test_notify_wakes_as_many_as_it_says_who_waited_longest(
    condition: Condition, observer: Observer, peers: list[Peer]
) -> None:
    stand(condition, observer, *(lambda peer=peer: peer.start(remote.wait_in, condition) for peer in peers))
    with condition:
        condition.notify(2)
    assert [peer.result() for peer in peers[:2]] == [True, True]
    assert len(waiters(condition, observer)) == 1
    with condition:
        condition.notify(5)
    assert peers[2].result()
    assert waiters(condition, observer) == []


@pytest.mark.parametrize("count", [1, None])
def test_who_was_woken_by_a_write_of_somebody_keeps_no_notify_from_the_others(
    condition: Condition, observer: Observer, count: int | None
) -> None:
    """His znode is not as a notifier expects it, and he cannot leave before the notifier has let go of the lock."""
    both = stand(condition, observer, *(lambda: Running(remote.wait_in, condition),) * 2)
    with condition:
        observer.kazoo.set(waiters(condition, observer)[0], b"[]")
        condition.notify_all() if count is None else condition.notify(count)
    assert results(both) == [True, True]
    assert waiters(condition, observer) == []


def test_notify_all_wakes_all_in_all_processes(condition: Condition, observer: Observer, peers: list[Peer]) -> None:
    stand(condition, observer, *(lambda peer=peer: peer.start(remote.wait_in, condition) for peer in peers))
    ours = Running(remote.wait_in, condition)
    eventually(lambda: len(waiters(condition, observer)) == 4)
    with condition:
        condition.notify_all()
    assert [peer.result() for peer in peers] == [True] * 3
    assert ours.result()


def test_notify_is_not_remembered_for_who_comes_later(condition: Condition, peer: Peer) -> None:
    with condition:
        condition.notify()
    assert not peer.do(remote.wait_in, condition, UNIT)


def test_waiter_that_times_out_takes_no_notify_with_it(
    condition: Condition, observer: Observer, peers: list[Peer]
) -> None:
    assert not peers[0].do(remote.wait_in, condition, UNIT)
    stand(condition, observer, lambda: peers[1].start(remote.wait_in, condition))
    assert not peers[2].do(remote.wait_in, condition, UNIT)
    with condition:
        condition.notify()
    assert peers[1].result()


@pytest.mark.parametrize("operation", ["wait", "notify", "notify_all"])
def test_who_does_not_hold_the_lock_is_told(condition: Condition, peer: Peer, operation: str) -> None:
    with pytest.raises(RuntimeError):
        getattr(condition, operation)()
    with condition:
        assert peer.do(remote.catch, getattr(condition, operation)) == "NotHeldError"
        with pytest.raises(NotHeldError):
            Running(getattr(condition, operation)).result()


def test_producers_and_consumers_in_processes_miss_nothing(
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


def test_lock_comes_back_as_deep_as_it_was(condition: Condition, observer: Observer, peer: Peer) -> None:
    stand(condition, observer, lambda: peer.start(remote.wait_deep_in, condition, 3))
    remote.notify(condition)
    assert peer.result() == 3
    assert condition.acquire(blocking=False)
    condition.release()


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_condition_over_a_lock_of_ours_travels_with_it(
    client: Client, observer: Observer, peer: Peer, kind: Callable[..., Any]
) -> None:
    lock = kind(name="its lock")
    condition = Condition(lock, name="c")
    stand(condition, observer, lambda: peer.start(remote.wait_in, condition))
    with lock:
        condition.notify()
    assert peer.result()


def test_conditions_that_share_a_lock_wake_their_own(client: Client, observer: Observer, peer: Peer) -> None:
    lock = RLock(name="shared")
    full, empty = Condition(lock, name="full"), Condition(lock, name="empty")
    stand(full, observer, lambda: peer.start(remote.wait_in, full))
    ours = Running(remote.wait_in, empty)
    eventually(lambda: waiters(empty, observer))
    remote.notify(full)
    assert peer.result()
    assert ours.is_alive()
    remote.notify(empty)
    assert ours.result()


@pytest.mark.slow_on("zookeeper")
def test_notify_passes_on_when_its_receiver_died_before(
    condition: Condition, observer: Observer, peer: Peer, make_mortal: Callable[..., Peer]
) -> None:
    """The receiver is stopped, notified, and killed: it never said that it had heard."""
    mortal = make_mortal()
    stand(
        condition,
        observer,
        lambda: mortal.start(remote.wait_in, condition),
        lambda: peer.start(remote.wait_in, condition),
    )
    with condition:  # the receiver cannot come back before we let go, and then it is dead
        condition.notify()
        mortal.kill()
        eventually(lambda: len(waiters(condition, observer)) == 1)
    assert peer.result()


@pytest.mark.slow_on("zookeeper")
def test_notify_that_finds_a_dead_receiver_notifies_one_more(
    condition: Condition, observer: Observer, peers: list[Peer], make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    stand(
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


def test_wait_that_loses_its_session_returns_so_that_the_caller_looks(
    condition: Condition, observer: Observer, make_client: MakeClient
) -> None:
    other = make_client()
    waiting = stand(condition, observer, lambda: Running(remote.wait_in, Condition(name="c", client=other)))[0]
    expire(other)
    assert waiting.result()
    assert waiters(condition, observer) == []


def test_wait_under_a_lock_that_was_lost_says_so(condition: Condition, observer: Observer) -> None:
    condition.acquire()
    observer.kazoo.delete(condition._lock.holders()[0].path)
    eventually(lambda: not condition._lock.held)
    with pytest.raises((LockLostError, NotHeldError)):
        condition.wait()
    assert waiters(condition, observer) == []
    with pytest.raises((LockLostError, NotHeldError)):
        condition.release()
    with condition:
        condition.notify_all()


def test_condition_over_a_lock_of_the_standard_library_serves_one_process(client: Client) -> None:
    condition = Condition(threading.Lock(), name="c")
    waiting = Running(remote.wait_in, condition)
    eventually(lambda: not condition._explicit_lock.locked() and len(client._core.locals) > 0)  # type: ignore[union-attr]

    def notified() -> bool:
        with condition:
            condition.notify()
        return not waiting.is_alive()

    eventually(notified)
    assert waiting.result()


def test_threads_of_a_process_and_others_take_turns(condition: Condition, peers: list[Peer], tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    ours = [Running(remote.consume, condition, counter, 5) for _ in range(3)]
    for peer in peers:
        peer.start(remote.produce, condition, counter, 5)
    assert results(ours, 3 * PATIENCE) == [5] * 3
    assert [peer.result() for peer in peers] == [5] * 3
