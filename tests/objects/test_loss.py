"""Loss of held objects: callbacks and ``held`` report it, even if no server can be reached."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls

from distsync import Election, LockLostError, SharedLock
from distsync._client.client import Client
from distsync.multiprocessing import synchronize
from distsync.threading import BoundedSemaphore, Lock, RLock, Semaphore

SESSION_S = 1.0
LONG = 1000.0
"""Seconds: no cached lock expires during a test."""


def reader(**options: Any) -> Any:
    return SharedLock(**options).reader


def writer(**options: Any) -> Any:
    return SharedLock(**options).writer


CACHED_KINDS = [Lock, RLock, reader, writer]
REVOCABLE_KINDS = [*CACHED_KINDS, synchronize.Lock, synchronize.RLock]
KINDS = [*REVOCABLE_KINDS, Semaphore, BoundedSemaphore, synchronize.Semaphore]


def only_contender(lock: Lock) -> str:
    return lock.holders()[0].path


def test_on_lost_that_is_set_while_held_is_called(client: Client, observer: Observer) -> None:
    lock = Lock(name="callback set later", client=client)
    losses: list[Any] = []
    lock.acquire()
    lock.on_lost = losses.append
    observer.wipe(only_contender(lock))
    eventually(lambda: losses)
    assert isinstance(losses[0], LockLostError)
    assert "deleted" in str(losses[0])


@pytest.mark.usefixtures("no_guards")
@pytest.mark.parametrize("kind", [Lock, RLock, reader, writer, Semaphore, BoundedSemaphore, Election])
def test_loss_that_only_the_release_finds_calls_on_lost_once(
    kind: Any, make_client: Callable[..., Client], observer: Observer
) -> None:
    losses: list[Any] = []
    held = kind(name="x", client=make_client(linger=0))
    setattr(held, "on_deposed" if kind is Election else "on_lost", losses.append)
    held.acquire()
    observer.wipe(only_contender(held))
    with pytest.raises(LockLostError):
        held.release()
    eventually(lambda: losses)
    held.client.close()
    assert len(losses) == 1


def test_release_and_close_call_no_loss_callback(client: Client) -> None:
    losses: list[Any] = []
    with Lock(name="released", client=client, on_lost=losses.append) as held:
        assert held
    client.close()
    assert losses == []


def callbacks(kind: Any, called: Callable[..., Any]) -> dict[str, Any]:
    if kind is Election:
        return {"on_deposed": called}
    both = {"on_lost": called, "on_revoke": called}
    return both if kind in REVOCABLE_KINDS else {"on_lost": called}


@pytest.mark.parametrize("kind", [*KINDS, Election])
def test_objects_with_callbacks_are_collectable_after_their_release(kind: Any, client: Client) -> None:
    """Regression: an object that was created for each use stayed subscribed as long as the lock stayed cached."""
    used: list[weakref.ref[Any]] = []
    for _ in range(100):
        one = kind(name="job", **callbacks(kind, pytest.fail))
        with one:
            used.append(weakref.ref(one))
    del one
    # the background thread may still end the last election
    eventually(lambda: gc.collect() >= 0 and not [each for each in used if each() is not None])


@pytest.mark.parametrize("kind", CACHED_KINDS)
def test_objects_whose_lock_another_object_releases_are_collectable(kind: Any, client: Client) -> None:
    used: list[weakref.ref[Any]] = []
    for _ in range(100):
        one = kind(name="job", linger=LONG, **callbacks(kind, pytest.fail))
        one.acquire()
        used.append(weakref.ref(one))
        kind(name="job").release()
    del one
    gc.collect()
    assert [each for each in used if each() is not None] == []
    client.close()  # its lock is cached


@pytest.mark.parametrize("kind", CACHED_KINDS)
def test_loss_of_a_cached_lock_calls_no_callback(kind: Any, client: Client) -> None:
    """The objects released it in good order."""
    locks = [kind(name="job", linger=LONG, **callbacks(kind, pytest.fail)) for _ in range(3)]
    for _ in range(2):  # the second time from the cache
        for lock in locks:
            with lock:
                pass
    locks[0].on_lost = pytest.fail
    lose_session(client)


@pytest.mark.parametrize("kind", [*KINDS, Election])
def test_expired_session_calls_the_callbacks_of_the_present_holders_only(kind: Any, client: Client) -> None:
    losses: list[str] = []

    def make(number: int) -> Any:
        return kind(name="job", **callbacks(kind, lambda lost: losses.append(f"{number}: {lost}")))

    locks = [make(number) for number in range(3)]
    for _ in range(2):
        for lock in locks:
            with lock:
                pass
    locks[1].acquire()
    lose_session(client)
    eventually(lambda: losses)
    with pytest.raises(LockLostError):
        locks[1].release()
    lose_session(client)
    assert losses == [f"1: {LockLostError(locks[1].path, 'session expired')}"]


def lose_session(client: Client) -> None:
    """Let the session end, and wait until all callbacks for it were called."""
    before, called = client.session_id, threading.Event()
    expire(client)
    eventually(lambda: client.session_id not in (before, None) and client.state == "connected")
    client.call_back(called.set)
    assert called.wait(PATIENCE)


@pytest.mark.parametrize("kind", CACHED_KINDS)
def test_each_acquire_from_the_cache_is_reported_if_it_is_lost(kind: Any, client: Client) -> None:
    losses: list[Any] = []
    lock = kind(name="job", linger=LONG, on_lost=losses.append)
    for expected in range(1, 4):
        for _ in range(3):
            lock.acquire()
            lock.release()
        lock.acquire()
        lose_session(client)
        eventually(lambda: len(losses) == expected)  # noqa: B023
        with pytest.raises(LockLostError):
            lock.release()


@pytest.mark.parametrize("kind", [RLock, reader, writer])
def test_inner_object_of_a_reentrant_lock_is_called_until_its_own_release(kind: Any, client: Client) -> None:
    losses: list[str] = []
    outer = kind(name="job", on_lost=lambda lost: losses.append("outer"))
    inner = kind(name="job", on_lost=lambda lost: losses.append("inner"))
    released = kind(name="job", on_lost=lambda lost: losses.append("released"))
    outer.acquire()
    inner.acquire()
    with released:
        pass
    lose_session(client)
    assert sorted(losses) == ["inner", "outer"]
    with pytest.raises(LockLostError):
        inner.release()


def test_readers_of_several_threads_are_called_until_their_own_release(client: Client) -> None:
    """All of them share one znode, and so one loss."""
    losses: list[int] = []
    readers = [reader(name="job", on_lost=lambda lost, number=number: losses.append(number)) for number in range(3)]
    leave, left, end = threading.Event(), threading.Event(), threading.Event()

    def read(number: int) -> None:
        readers[number].acquire()
        if number == 1:
            leave.wait(PATIENCE)
            readers[number].release()
            left.set()
        end.wait(PATIENCE)

    running = [Running(read, number) for number in range(3)]
    eventually(lambda: readers[0]._core.shares and len(readers[0]._core.shares[0].owners) == 3)
    leave.set()
    assert left.wait(PATIENCE)
    lose_session(client)
    end.set()
    for each in running:
        each.result()
    assert sorted(losses) == [0, 2]


@pytest.mark.parametrize("kind", CACHED_KINDS)
def test_revocation_calls_the_present_holder_only(
    kind: Any, client: Client, make_client: Callable[..., Client]
) -> None:
    """Regression: objects that had released the lock were asked to release it."""
    asked: list[Any] = []
    locks = [kind(name="job", linger=LONG, on_revoke=asked.append) for _ in range(3)]
    for _ in range(2):
        for lock in locks:
            with lock:
                pass
    locks[1].acquire()
    kind(name="job", client=make_client()).revoke()
    eventually(lambda: asked)
    locks[1].release()
    assert asked == [locks[1]]


def test_handover_to_another_thread_ends_the_callbacks_of_the_former_holder(client: Client) -> None:
    losses: list[str] = []
    first = Lock(name="job", linger=0, on_lost=lambda lost: losses.append("first"))
    second = Lock(name="job", linger=0, on_lost=lambda lost: losses.append("second"))
    first.acquire()
    acquiring = Running(second.acquire)
    eventually(lambda: len(first._core.local_waiters) == 1)
    first.release()
    assert acquiring.result()
    lose_session(client)
    assert losses == ["second"]


def test_lock_of_a_closed_client_is_not_held(client: Client) -> None:
    lock = Lock(name="closed", client=client)
    assert not lock.held
    lock.acquire()
    assert lock.held
    client.close()
    assert not lock.held


STARVED = {
    "no thread has the GIL": (remote.held_after_the_gil_was_taken, lambda mortal: None),
    "stopped": (remote.held_after_standing_still, lambda mortal: mortal.signal(signal.SIGSTOP)),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STARVED)
def test_held_is_false_right_after_a_pause_longer_than_the_session(
    how: str, client: Client, make_mortal: Callable[..., Peer], tmp_path: Path
) -> None:
    """Even before any other thread of the process could learn of the loss."""
    function, begin = STARVED[how]
    mortal, lock, holds = make_mortal(SESSION_S), Lock(name="a"), tmp_path / "holds"
    mortal.start(function, lock, holds, 2 * SESSION_S)
    eventually(holds.exists)
    begin(mortal)
    assert lock.acquire(timeout=PATIENCE)
    if how == "stopped":
        time.sleep(2 * SESSION_S)
        mortal.signal(signal.SIGCONT)
    assert mortal.result() is False
    lock.release()


def test_slow_callback_does_not_delay_an_acquire(client: Client, make_client: Callable[..., Client]) -> None:
    slow, began, over = make_client(), threading.Event(), threading.Event()
    slow.on_state(lambda state: began.set() or over.wait(PATIENCE))
    lock = Lock(name="a", client=slow)
    with Lock(name="a"):
        acquiring = Running(lock.acquire)
        eventually(lambda: waiting_calls(slow))
        assert began.wait(PATIENCE)
    assert acquiring.result()
    assert not over.is_set()
    over.set()
    lock.release()
