"""RLock shared by threads, clients and processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Peer, Running

from distsync import LockLostError, NotHeldError
from distsync._client.client import Client
from distsync.threading import Lock, RLock


@pytest.fixture
def lock(client: Client) -> RLock:
    return RLock(name="a")


@pytest.fixture
def theirs(make_client: Callable[..., Client]) -> RLock:
    """Return the same lock, used by another client."""
    return RLock(name="a", client=make_client())


def test_rlock_is_free_for_others_only_after_its_last_release(lock: RLock, theirs: RLock, peer: Peer) -> None:
    with lock:
        with lock:
            assert not theirs.acquire(blocking=False)
        assert not theirs.acquire(blocking=False)
        assert not peer.do(lock.acquire, False)
        assert not Running(lock.acquire, False).result()
    assert peer.do(lock.acquire, False)
    assert peer.do(lock.acquire, False)
    peer.do(lock.release)
    assert not lock.acquire(blocking=False)
    peer.do(lock.release)
    assert lock.acquire(blocking=False)
    lock.release()


def test_release_of_an_rlock_by_another_thread_or_process_raises(lock: RLock, peer: Peer) -> None:
    with pytest.raises(RuntimeError):
        lock.release()
    with lock:
        with pytest.raises(NotHeldError):
            Running(lock.release).result()
        assert peer.do(remote.catch, lock.release) == "NotHeldError"
        assert lock.held


def test_rlock_of_an_ended_thread_stays_held_and_no_later_thread_owns_it(lock: RLock, theirs: RLock) -> None:
    """Thread identifiers are reused; ownership is not."""
    before = Running(lock.acquire)
    before.result()
    for _ in range(20):
        later = Running(lock.acquire, False)
        assert not later.result()
    with pytest.raises(NotHeldError):
        lock.release()
    assert not theirs.acquire(blocking=False)
    Lock(name="a").release()


def test_lock_and_rlock_of_the_same_name_exclude_each_other(lock: RLock, theirs: RLock) -> None:
    plain = Lock(name="a")
    with lock:
        assert plain.locked()
        assert not plain.acquire(blocking=False)
    with plain:
        assert not theirs.acquire(blocking=False)
        assert not Running(lock.acquire, False).result()


@pytest.mark.parametrize("depth", [1, 3])
def test_first_release_after_a_loss_raises_lock_lost_error_and_others_not_held_error(
    lock: RLock, theirs: RLock, observer: Observer, depth: int
) -> None:
    losses: list[LockLostError] = []
    lock.on_lost = losses.append
    for _ in range(depth):
        lock.acquire()
    observer.kazoo.delete(lock.holders()[0].path)
    eventually(lambda: losses, limit=60 * UNIT)
    assert not lock.held
    assert theirs.acquire(blocking=False)
    with pytest.raises(LockLostError):
        lock.release()
    for _ in range(depth):
        with pytest.raises(NotHeldError):
            lock.release()
    theirs.release()
    with lock:
        assert lock.held


def test_loss_in_nested_blocks_raises_lock_lost_error(lock: RLock, observer: Observer) -> None:
    with pytest.raises((LockLostError, NotHeldError)) as raised, lock, lock:  # noqa: PT012
        observer.kazoo.delete(lock.holders()[0].path)
        eventually(lambda: not lock.held)
    errors = [raised.value, raised.value.__context__]
    assert any(isinstance(error, LockLostError) for error in errors)


def test_local_waiter_and_waiter_of_another_client_both_acquire_the_rlock(lock: RLock, theirs: RLock) -> None:
    lock.acquire()
    inside = Running(acquire_twice, lock)
    outside = Running(acquire_twice, theirs)
    eventually(lambda: len(lock.waiters()) == 1)
    eventually(lambda: len(lock._core.local_waiters) == 1)
    lock.release()
    assert inside.result()
    assert outside.result()


def acquire_twice(lock: RLock) -> bool:
    with lock, lock:
        return lock.held
