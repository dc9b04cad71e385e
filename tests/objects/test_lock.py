"""Lock shared by threads, clients and processes; CPython's own tests would pass with a lock that does not exclude."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, Control, eventually
from helpers.worker_processes import Peer, Running, expire, results, waiting_calls
from kazoo.client import KazooClient

from distsync import LockLostError, NotHeldError
from distsync._client.client import Client
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS
from distsync.errors import ClientClosedError
from distsync.threading import TIMEOUT_MAX, Lock

MakeClient = Callable[..., Client]


@pytest.fixture
def lock(client: Client) -> Lock:
    return Lock(name="a")


@pytest.fixture
def other_lock(other: Client) -> Lock:
    """Return the same lock, used by another client."""
    return Lock(name="a", client=other)


def queue_length(lock: Lock) -> int:
    return len(lock.holders()) + len(lock.waiters())


# ---- exclusion


def test_threads_in_several_processes_exclude_each_other(lock: Lock, peers: list[Peer], tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    for peer in peers:
        peer.start(remote.bump_in_threads, lock, counter, 10, 3)
    remote.bump_in_threads(lock, counter, 10, 3)
    for peer in peers:
        peer.result()
    assert counter.read_text() == "120"


def test_waiting_processes_acquire_the_lock_in_fifo_order(lock: Lock, peers: list[Peer]) -> None:
    lock.acquire()
    for count, peer in enumerate(peers, 1):
        peer.start(lock.acquire)
        eventually(lambda: len(lock.waiters()) == count)  # noqa: B023
    pids = [waiter.pid for waiter in lock.waiters()]
    lock.release()
    for peer in peers:
        assert peer.result()
        assert [holder.pid for holder in lock.holders()] == pids[:1] == [peer.pid]
        del pids[0]
        peer.do(lock.release)


def test_waiting_process_gets_the_lock_despite_handovers_between_local_threads(lock: Lock, other_lock: Lock) -> None:
    """After MAX_LOCAL_HANDOVERS handovers in a row, the next process in the queue is granted the lock."""
    stop, turns = threading.Event(), 0

    def work() -> None:
        nonlocal turns
        while not stop.is_set():
            with lock:
                turns += 1

    lock.acquire()
    waiting = Running(other_lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    running = [Running(work) for _ in range(2)]
    eventually(lambda: len(lock._core.local_waiters) == 2)
    lock.release()
    assert waiting.result()
    assert turns <= MAX_LOCAL_HANDOVERS + 2
    other_lock.release()
    stop.set()
    results(running)


def test_objects_of_one_name_are_the_same_lock(lock: Lock) -> None:
    with lock:
        same = Lock(name="a")
        assert same.locked()
        assert not same.acquire(blocking=False)
        same.release()
        assert not lock.held
        lock.acquire()


def test_locks_of_different_names_are_independent(lock: Lock, client: Client) -> None:
    with lock, Lock(name="b"), Lock(name="a/b"), Lock(name="a%2Fb"), Lock(name="Ä ö"):
        assert lock.held


# ---- release


def test_release_by_another_thread_frees_the_lock(lock: Lock, other_lock: Lock) -> None:
    Running(lock.acquire).result()
    assert not other_lock.acquire(blocking=False)
    lock.release()
    assert other_lock.acquire(blocking=False)
    other_lock.release()


def test_release_of_a_free_lock_raises_the_error_of_the_standard_library(lock: Lock) -> None:
    with pytest.raises(RuntimeError):
        lock.release()
    with lock:
        pass
    with pytest.raises(NotHeldError):
        lock.release()


def test_release_of_a_lock_held_by_another_process_raises_and_changes_nothing(lock: Lock, peer: Peer) -> None:
    with lock:
        assert peer.do(remote.catch, lock.release) == "NotHeldError"
        assert lock.held
        assert not peer.do(lock.acquire, False)


def test_locked_of_a_held_lock_is_true_in_every_client_and_process(lock: Lock, other_lock: Lock, peer: Peer) -> None:
    def seen() -> list[bool]:
        return [lock.locked(), other_lock.locked(), peer.do(lock.locked)]

    assert seen() == [False] * 3
    with lock:
        assert seen() == [True] * 3
    assert seen() == [False] * 3


# ---- timeouts


def test_acquire_of_a_free_lock_with_the_shortest_timeout_always_succeeds(lock: Lock) -> None:
    for _ in range(50):
        assert lock.acquire(timeout=1e-5)
        lock.release()


def test_first_call_of_a_client_with_the_shortest_timeout_succeeds(make_client: MakeClient) -> None:
    lock = Lock(name="a", client=make_client())
    assert lock.acquire(timeout=1e-5)
    lock.release()


@pytest.mark.parametrize("seconds", [0, 1e-5, UNIT])
def test_acquire_that_times_out_leaves_no_contender_behind(lock: Lock, other_lock: Lock, seconds: float) -> None:
    with lock:
        assert not other_lock.acquire(timeout=seconds)
        assert not lock.acquire(timeout=seconds)
        eventually(lambda: queue_length(lock) == 1)


@pytest.mark.slow_on("zookeeper")
def test_timeout_is_not_restarted_when_contenders_ahead_leave(lock: Lock, make_client: MakeClient) -> None:
    """Each contender that leaves wakes the waiter behind it."""
    timeout, ahead, timers = 20 * UNIT, [], []
    with lock:
        for count, delay in enumerate((15, 10, 5), 1):
            client = make_client()
            ahead.append(Running(remote.catch, Lock(name="a", client=client).acquire))
            timers.append(threading.Timer(delay * UNIT, client.close))
            eventually(lambda: len(lock.waiters()) == count)  # noqa: B023
        for timer in timers:
            timer.start()
        with Control() as control:
            start = time.monotonic()
            assert not Lock(name="a", client=make_client()).acquire(timeout=timeout)
            elapsed = time.monotonic() - start
        assert elapsed < timeout + 14 * UNIT + control.late
        assert results(ahead) == ["ClientClosedError"] * 3
    for timer in timers:
        timer.join()


def test_local_waiter_that_times_out_leaves_its_turn_to_the_next_one(lock: Lock) -> None:
    lock.acquire()
    short = Running(lock.acquire, True, 10 * UNIT)
    eventually(lambda: len(lock._core.local_waiters) == 1)
    long = Running(lock.acquire)
    assert not short.result()
    lock.release()
    assert long.result()
    lock.release()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((False, 1), ValueError),
        ((True, -2), ValueError),
        ((True, TIMEOUT_MAX * 2), OverflowError),
        ((True, "1"), TypeError),
    ],
)
def test_acquire_with_invalid_arguments_raises_as_in_the_standard_library(
    lock: Lock, args: tuple[Any, ...], error: type[Exception]
) -> None:
    for each in (lock, threading.Lock()):
        with pytest.raises(error):
            each.acquire(*args)
    assert not lock.locked()


# ---- holders, waiters and tokens


def test_holders_and_waiters_of_a_contended_lock_describe_each_contender(lock: Lock, peer: Peer) -> None:
    assert (lock.holders(), lock.waiters()) == ([], [])
    peer.do(remote.in_thread, lock.acquire)
    waiting = Running(lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    (holder,), (waiter,) = lock.holders(), lock.waiters()
    assert (holder.pid, holder.thread) == (peer.pid, "a thread")
    assert (waiter.pid, waiter.thread) == (remote.pid(), waiting.name)
    assert "helpers/worker_processes.py" in waiter.place or "test_lock" in waiter.place
    assert holder.token < waiter.token
    assert holder.since is not None
    assert waiter.since is not None
    assert (holder.path.startswith(f"{lock.path}/_c_"), holder.host) == (True, waiter.host)
    peer.do(lock.release)
    waiting.result()
    lock.release()


def test_fencing_token_grows_from_process_to_process(lock: Lock, peers: list[Peer]) -> None:
    tokens = []
    for peer in [*peers, *peers]:
        peer.do(lock.acquire)
        held, token = peer.do(remote.held, lock)
        assert held
        tokens.append(token)
        peer.do(lock.release)
    with lock:
        token = lock.fencing_token
        tokens.append(token)
        assert (token.epoch, token.counter) == (token >> 32, token % 2**32)
        assert int(token) == lock.holders()[0].token
    assert tokens == sorted(set(tokens))
    with pytest.raises(NotHeldError):
        lock.fencing_token  # noqa: B018


def test_fencing_token_grows_after_the_znode_of_the_lock_was_deleted(lock: Lock, observer: Observer) -> None:
    """Sequence numbers start at 0 again; the token does not."""
    with lock:
        before = lock.fencing_token
    observer.wipe(lock.path)

    def token() -> int:
        with lock:
            return lock.fencing_token

    eventually(lambda: token() > before)  # the lock was cached, and notices the deletion with a delay


# ---- loss


def delete_holder_znode(lock: Lock, observer: Observer) -> None:
    observer.kazoo.delete(lock.holders()[0].path)


def expire_session(lock: Lock, observer: Observer) -> None:
    expire(lock.client)


@pytest.mark.parametrize(
    ("lose", "reason"), [(delete_holder_znode, "znode deleted"), (expire_session, "session expired")]
)
def test_lock_lost_while_held_reports_it_once_and_can_be_acquired_again(
    lock: Lock, other_lock: Lock, observer: Observer, lose: Callable[[Lock, Observer], None], reason: str
) -> None:
    losses: list[LockLostError] = []
    lock.on_lost = losses.append
    lock.acquire()
    lose(lock, observer)
    eventually(lambda: losses, limit=60 * UNIT)
    assert losses[0].args == (lock.path, reason)
    assert not lock.held
    assert other_lock.acquire(timeout=PATIENCE)
    with pytest.raises(LockLostError, match=reason):
        lock.release()
    with pytest.raises(NotHeldError):
        lock.release()
    assert other_lock.held
    assert not lock.acquire(blocking=False)
    other_lock.release()
    assert lock.acquire(timeout=PATIENCE)
    assert lock.held
    lock.release()
    assert len(losses) == 1


def test_loss_in_a_with_block_is_raised_at_its_end_unless_the_block_raised(lock: Lock, observer: Observer) -> None:
    with pytest.raises(LockLostError), lock:  # noqa: PT012
        delete_holder_znode(lock, observer)
        eventually(lambda: not lock.held)
    with pytest.raises(KeyError) as raised, lock:  # noqa: PT012
        delete_holder_znode(lock, observer)
        eventually(lambda: not lock.held)
        raise KeyError("the block's own")
    if hasattr(raised.value, "__notes__"):
        assert "lost while held" in raised.value.__notes__[0]


def test_transaction_is_refused_once_the_lock_is_lost(lock: Lock, other_lock: Lock, observer: Observer) -> None:
    target = f"{lock.client.namespace}/guarded"
    lock.acquire()
    with lock.transaction() as transaction:
        transaction.create(target, b"0")
    stale = lock.transaction()
    stale.set_data(target, b"stale")
    delete_holder_znode(lock, observer)
    with other_lock, other_lock.transaction() as fresh:
        fresh.set_data(target, b"fresh")
    with pytest.raises(LockLostError):
        stale.commit()
    assert observer.kazoo.get(target)[0] == b"fresh"
    with pytest.raises(LockLostError):
        lock.release()


def test_transaction_with_a_failing_operation_names_it_and_changes_nothing(lock: Lock, observer: Observer) -> None:
    target = f"{lock.client.namespace}/guarded"
    with lock:
        transaction = lock.transaction()
        transaction.create(target, b"")
        transaction.delete(f"{target}/no")
        with pytest.raises(Exception, match="no znode"):
            transaction.commit()
        with pytest.raises(RuntimeError):
            transaction.commit()
        assert lock.held
    assert observer.kazoo.exists(target) is None


def test_waiter_whose_session_expires_enqueues_again(lock: Lock, other_lock: Lock, other: Client) -> None:
    lock.acquire()
    waiting = Running(other_lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    before, session = lock.waiters()[0].path, other.session_id
    expire(other)
    eventually(lambda: lock.waiters() and lock.waiters()[0].path != before)
    assert waiting.is_alive()
    lock.release()
    assert waiting.result()
    assert (other_lock.held, other.session_id != session) == (True, True)
    other_lock.release()


def test_waiter_whose_znode_is_deleted_enqueues_again(
    lock: Lock, other_lock: Lock, observer: Observer, make_client: MakeClient
) -> None:
    """The release wakes the waiter, which must not take the lock: its znode is no longer in the queue."""
    lock.acquire()
    waiting = Running(other_lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1 and waiting_calls(other_lock.client))
    observer.kazoo.delete(lock.waiters()[0].path)
    third = Lock(name="a", client=make_client())
    behind = Running(third.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    lock.release()
    assert behind.result()
    assert waiting.is_alive()
    third.release()
    assert waiting.result()
    other_lock.release()


def test_lock_of_a_killed_process_is_released_when_its_session_expires(
    lock: Lock, make_mortal: Callable[..., Peer]
) -> None:
    mortal = make_mortal()
    mortal.do(lock.acquire)
    mortal.kill()
    assert lock.acquire(timeout=PATIENCE)
    lock.release()


def test_lock_of_a_process_that_closes_its_client_is_released_at_once(lock: Lock, peer: Peer) -> None:
    peer.do(lock.acquire)
    waiting = Running(lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    peer.leave()
    assert waiting.result(3.0)
    lock.release()


def test_closing_a_client_ends_its_waits_and_loses_its_locks(make_client: MakeClient, lock: Lock) -> None:
    closing = make_client()
    held, waited = Lock(name="b", client=closing), Lock(name="a", client=closing)
    losses: list[LockLostError] = []
    held.on_lost = losses.append
    held.acquire()
    with lock:
        waiting = Running(waited.acquire)
        eventually(lambda: len(lock.waiters()) == 1)
        closing.close()
        with pytest.raises(ClientClosedError):
            waiting.result()
        eventually(lambda: losses)
        assert lock.waiters() == []
    with pytest.raises((ClientClosedError, LockLostError)):
        held.release()


# ---- other clients and other children of the znode


def test_kazoo_locks_share_the_queue_in_fifo_order(lock: Lock, server: ServerProcess) -> None:
    """Tell kazoo which names to count; distsync counts every name that ends in a sequence number."""
    kazoo = KazooClient(server.hosts)
    kazoo.start()
    try:
        foreign = kazoo.Lock(lock.path, "foreign", extra_lock_patterns=["-lock-"])
        assert foreign.acquire(timeout=PATIENCE)
        assert not lock.acquire(blocking=False)
        waiting = Running(lock.acquire)
        eventually(lambda: queue_length(lock) == 2)
        assert (lock.holders()[0].pid, lock.waiters()[0].pid) == (None, remote.pid())
        behind = kazoo.Lock(lock.path, "behind", extra_lock_patterns=["-lock-"])
        third = Running(behind.acquire)
        eventually(lambda: queue_length(lock) == 3)
        foreign.release()
        assert waiting.result()
        assert third.is_alive()
        lock.release()
        assert third.result()
        behind.release()
    finally:
        kazoo.stop()
        kazoo.close()


def test_children_that_are_not_contenders_do_not_block_the_lock(lock: Lock, observer: Observer) -> None:
    for name in ("notes", "lease_holder", "_c_12-lock-", "lock-00000001"):
        observer.kazoo.create(f"{lock.path}/{name}", makepath=True)
    with lock:
        assert (queue_length(lock), lock.held) == (1, True)


def test_lock_znode_deleted_under_holder_and_waiter_is_recreated(
    lock: Lock, other_lock: Lock, observer: Observer
) -> None:
    lock.acquire()
    waiting = Running(other_lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1 and waiting_calls(other_lock.client))
    observer.kazoo.delete(lock.waiters()[0].path)
    delete = observer.kazoo.transaction()
    delete.delete(lock.holders()[0].path)
    delete.delete(lock.path)
    assert delete.commit() == [True, True]
    assert waiting.result()
    assert other_lock.held
    with pytest.raises(LockLostError):
        lock.release()
    other_lock.release()


def test_two_releases_before_a_waiter_wakes_admit_waiters_one_at_a_time(client: Client) -> None:
    """Any thread may release. Two releases in a row admit two waiters, but never both at once."""
    lock, inside, max_inside = Lock(name="x", linger=0), [], [0]

    def use() -> None:
        lock.acquire()
        inside.append(1)
        max_inside[0] = max(max_inside[0], len(inside))
        eventually(lambda: may_leave)
        inside.pop()
        try:
            lock.release()
        except NotHeldError:  # already released by the second release below
            pass

    may_leave: list[int] = []
    lock.acquire()
    waiting = [Running(use) for _ in range(3)]
    eventually(lambda: len(lock._core.local_waiters) == 3)
    client._runtime.mutex.acquire()  # type: ignore[union-attr]  # keeps waiters from waking between the two
    try:
        lock.release()
        lock.release()
    finally:
        client._runtime.mutex.release()  # type: ignore[union-attr]
    eventually(lambda: len(inside) == 1)
    may_leave.append(1)
    results(waiting)
    assert max_inside == [1]
