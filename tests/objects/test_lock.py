"""Lock between threads, clients and processes: CPython's own suites do not notice a lock that excludes nobody."""

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
def theirs(other: Client) -> Lock:
    """The same lock, for another client."""
    return Lock(name="a", client=other)


def line_of(lock: Lock) -> int:
    return len(lock.holders()) + len(lock.waiters())


# ---- exclusion


def test_threads_of_processes_exclude_each_other(lock: Lock, peers: list[Peer], tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    for peer in peers:
        peer.start(remote.bump_in_threads, lock, counter, 10, 3)
    remote.bump_in_threads(lock, counter, 10, 3)
    for peer in peers:
        peer.result()
    assert counter.read_text() == "120"


def test_processes_get_the_lock_in_the_order_of_their_coming(lock: Lock, peers: list[Peer]) -> None:
    lock.acquire()
    for count, peer in enumerate(peers, 1):
        peer.start(lock.acquire)
        eventually(lambda: len(lock.waiters()) == count)  # noqa: B023
    pids = [who.pid for who in lock.waiters()]
    lock.release()
    for peer in peers:
        assert peer.result()
        assert [who.pid for who in lock.holders()] == pids[:1] == [peer.pid]
        del pids[0]
        peer.do(lock.release)


def test_process_that_waits_gets_the_lock_though_our_threads_hand_it_over(lock: Lock, theirs: Lock) -> None:
    """Two threads that always want it hand it to each other; after so many turns the line has its own."""
    stop, turns = threading.Event(), 0

    def work() -> None:
        nonlocal turns
        while not stop.is_set():
            with lock:
                turns += 1

    lock.acquire()
    waiting = Running(theirs.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    running = [Running(work) for _ in range(2)]
    eventually(lambda: len(lock._core.local_waiters) == 2)
    lock.release()
    assert waiting.result()
    assert turns <= MAX_LOCAL_HANDOVERS + 2
    theirs.release()
    stop.set()
    results(running)


def test_objects_of_one_name_are_one_lock(lock: Lock) -> None:
    with lock:
        same = Lock(name="a")
        assert same.locked()
        assert not same.acquire(blocking=False)
        same.release()
        assert not lock.held
        lock.acquire()


def test_locks_of_other_names_are_others(lock: Lock, client: Client) -> None:
    with lock, Lock(name="b"), Lock(name="a/b"), Lock(name="a%2Fb"), Lock(name="Ä ö"):
        assert lock.held


# ---- release


def test_another_thread_may_release(lock: Lock, theirs: Lock) -> None:
    Running(lock.acquire).result()
    assert not theirs.acquire(blocking=False)
    lock.release()
    assert theirs.acquire(blocking=False)
    theirs.release()


def test_release_of_a_lock_that_is_free_is_the_errors_of_the_standard_library(lock: Lock) -> None:
    with pytest.raises(RuntimeError):
        lock.release()
    with lock:
        pass
    with pytest.raises(NotHeldError):
        lock.release()


def test_release_of_a_lock_that_another_process_holds_is_an_error_and_changes_nothing(lock: Lock, peer: Peer) -> None:
    with lock:
        assert peer.do(remote.catch, lock.release) == "NotHeldError"
        assert lock.held
        assert not peer.do(lock.acquire, False)


def test_locked_is_seen_by_everybody(lock: Lock, theirs: Lock, peer: Peer) -> None:
    def seen() -> list[bool]:
        return [lock.locked(), theirs.locked(), peer.do(lock.locked)]

    assert seen() == [False] * 3
    with lock:
        assert seen() == [True] * 3
    assert seen() == [False] * 3


# ---- time-outs


def test_shortest_time_out_gets_a_free_lock_each_time(lock: Lock) -> None:
    for _ in range(50):
        assert lock.acquire(timeout=1e-5)
        lock.release()


def test_first_call_of_a_process_may_have_the_shortest_time_out(make_client: MakeClient) -> None:
    lock = Lock(name="a", client=make_client())
    assert lock.acquire(timeout=1e-5)
    lock.release()


@pytest.mark.parametrize("seconds", [0, 1e-5, UNIT])
def test_time_out_leaves_the_line_as_it_was(lock: Lock, theirs: Lock, seconds: float) -> None:
    with lock:
        assert not theirs.acquire(timeout=seconds)
        assert not lock.acquire(timeout=seconds)
        eventually(lambda: line_of(lock) == 1)


@pytest.mark.slow_on("zookeeper")
def test_time_out_is_one_deadline_whoever_leaves_meanwhile(lock: Lock, make_client: MakeClient) -> None:
    """Each departure ahead of us wakes us; the time does not begin anew."""
    seconds, ahead, leaving = 20 * UNIT, [], []
    with lock:
        for count, each in enumerate((15, 10, 5), 1):
            client = make_client()
            ahead.append(Running(remote.catch, Lock(name="a", client=client).acquire))
            leaving.append(threading.Timer(each * UNIT, client.close))
            eventually(lambda: len(lock.waiters()) == count)  # noqa: B023
        for one in leaving:
            one.start()
        with Control() as control:
            began = time.monotonic()
            assert not Lock(name="a", client=make_client()).acquire(timeout=seconds)
            took = time.monotonic() - began
        assert took < seconds + 14 * UNIT + control.late
        assert results(ahead) == ["ClientClosedError"] * 3
    for one in leaving:
        one.join()


def test_time_out_between_threads_of_a_process_gives_the_place_to_the_next(lock: Lock) -> None:
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
def test_arguments_are_refused_as_by_the_standard_library(
    lock: Lock, args: tuple[Any, ...], error: type[Exception]
) -> None:
    for one in (lock, threading.Lock()):
        with pytest.raises(error):
            one.acquire(*args)
    assert not lock.locked()


# ---- who


def test_holders_and_waiters_are_told_apart_and_say_who_they_are(lock: Lock, peer: Peer) -> None:
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


def test_fencing_token_grows_though_the_folder_of_the_lock_was_deleted(lock: Lock, observer: Observer) -> None:
    """Sequence numbers begin again; the token does not."""
    with lock:
        before = lock.fencing_token
    observer.wipe(lock.path)

    def token() -> int:
        with lock:
            return lock.fencing_token

    eventually(lambda: token() > before)  # it was kept: that it was deleted is known some milliseconds later


# ---- loss


def delete_own_znode(lock: Lock, observer: Observer) -> None:
    observer.kazoo.delete(lock.holders()[0].path)


def end_session(lock: Lock, observer: Observer) -> None:
    expire(lock.client)


@pytest.mark.parametrize(("lose", "reason"), [(delete_own_znode, "znode deleted"), (end_session, "session expired")])
def test_lock_lost_while_held_says_so_once_and_can_be_acquired_again(
    lock: Lock, theirs: Lock, observer: Observer, lose: Callable[[Lock, Observer], None], reason: str
) -> None:
    told: list[LockLostError] = []
    lock.on_lost = told.append
    lock.acquire()
    lose(lock, observer)
    eventually(lambda: told, limit=60 * UNIT)
    assert told[0].args == (lock.path, reason)
    assert not lock.held
    assert theirs.acquire(timeout=PATIENCE)
    with pytest.raises(LockLostError, match=reason):
        lock.release()
    with pytest.raises(NotHeldError):
        lock.release()
    assert theirs.held
    assert not lock.acquire(blocking=False)
    theirs.release()
    assert lock.acquire(timeout=PATIENCE)
    assert lock.held
    lock.release()
    assert len(told) == 1


def test_loss_is_raised_at_the_end_of_the_block_unless_the_block_raised(lock: Lock, observer: Observer) -> None:
    with pytest.raises(LockLostError), lock:  # noqa: PT012
        delete_own_znode(lock, observer)
        eventually(lambda: not lock.held)
    with pytest.raises(KeyError) as raised, lock:  # noqa: PT012
        delete_own_znode(lock, observer)
        eventually(lambda: not lock.held)
        raise KeyError("the block's own")
    if hasattr(raised.value, "__notes__"):
        assert "lost while held" in raised.value.__notes__[0]


def test_transaction_is_refused_once_the_lock_is_lost(lock: Lock, theirs: Lock, observer: Observer) -> None:
    target = f"{lock.client.namespace}/guarded"
    lock.acquire()
    with lock.transaction() as transaction:
        transaction.create(target, b"0")
    stale = lock.transaction()
    stale.set_data(target, b"stale")
    delete_own_znode(lock, observer)
    with theirs, theirs.transaction() as fresh:
        fresh.set_data(target, b"fresh")
    with pytest.raises(LockLostError):
        stale.commit()
    assert observer.kazoo.get(target)[0] == b"fresh"
    with pytest.raises(LockLostError):
        lock.release()


def test_transaction_whose_operation_is_refused_says_which_and_does_nothing(lock: Lock, observer: Observer) -> None:
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


def test_waiter_whose_session_ends_stands_in_line_anew(lock: Lock, theirs: Lock, other: Client) -> None:
    lock.acquire()
    waiting = Running(theirs.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    before, session = lock.waiters()[0].path, other.session_id
    expire(other)
    eventually(lambda: lock.waiters() and lock.waiters()[0].path != before)
    assert waiting.is_alive()
    lock.release()
    assert waiting.result()
    assert (theirs.held, other.session_id != session) == (True, True)
    theirs.release()


def test_waiter_whose_znode_was_deleted_stands_in_line_anew(
    lock: Lock, theirs: Lock, observer: Observer, make_client: MakeClient
) -> None:
    """It wakes with the release, does not find itself, and must not believe that it holds."""
    lock.acquire()
    waiting = Running(theirs.acquire)
    eventually(lambda: len(lock.waiters()) == 1 and waiting_calls(theirs.client))
    observer.kazoo.delete(lock.waiters()[0].path)
    third = Lock(name="a", client=make_client())
    behind = Running(third.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    lock.release()
    assert behind.result()
    assert waiting.is_alive()
    third.release()
    assert waiting.result()
    theirs.release()


def test_dead_process_gives_the_lock_back_with_its_session(lock: Lock, make_mortal: Callable[..., Peer]) -> None:
    mortal = make_mortal()
    mortal.do(lock.acquire)
    mortal.kill()
    assert lock.acquire(timeout=PATIENCE)
    lock.release()


def test_process_that_ends_in_good_order_gives_the_lock_back_at_once(lock: Lock, peer: Peer) -> None:
    peer.do(lock.acquire)
    waiting = Running(lock.acquire)
    eventually(lambda: len(lock.waiters()) == 1)
    peer.leave()
    assert waiting.result(3.0)
    lock.release()


def test_closing_the_client_ends_waits_and_loses_what_is_held(make_client: MakeClient, lock: Lock) -> None:
    closing = make_client()
    held, waited = Lock(name="b", client=closing), Lock(name="a", client=closing)
    told: list[LockLostError] = []
    held.on_lost = told.append
    held.acquire()
    with lock:
        waiting = Running(waited.acquire)
        eventually(lambda: len(lock.waiters()) == 1)
        closing.close()
        with pytest.raises(ClientClosedError):
            waiting.result()
        eventually(lambda: told)
        assert lock.waiters() == []
    with pytest.raises((ClientClosedError, LockLostError)):
        held.release()


# ---- others in the folder


def test_foreign_clients_stand_in_one_line_with_us(lock: Lock, server: ServerProcess) -> None:
    """kazoo's Lock, told of our names; ours counts whatever ends in a sequence number."""
    kazoo = KazooClient(server.hosts)
    kazoo.start()
    try:
        foreign = kazoo.Lock(lock.path, "foreign", extra_lock_patterns=["-lock-"])
        assert foreign.acquire(timeout=PATIENCE)
        assert not lock.acquire(blocking=False)
        waiting = Running(lock.acquire)
        eventually(lambda: line_of(lock) == 2)
        assert (lock.holders()[0].pid, lock.waiters()[0].pid) == (None, remote.pid())
        behind = kazoo.Lock(lock.path, "behind", extra_lock_patterns=["-lock-"])
        third = Running(behind.acquire)
        eventually(lambda: line_of(lock) == 3)
        foreign.release()
        assert waiting.result()
        assert third.is_alive()
        lock.release()
        assert third.result()
        behind.release()
    finally:
        kazoo.stop()
        kazoo.close()


def test_children_that_are_no_contenders_are_in_nobodys_way(lock: Lock, observer: Observer) -> None:
    for name in ("notes", "lease_holder", "_c_12-lock-", "lock-00000001"):
        observer.kazoo.create(f"{lock.path}/{name}", makepath=True)
    with lock:
        assert (line_of(lock), lock.held) == (1, True)


def test_folder_deleted_under_holder_and_waiter_is_made_anew(lock: Lock, theirs: Lock, observer: Observer) -> None:
    lock.acquire()
    waiting = Running(theirs.acquire)
    eventually(lambda: len(lock.waiters()) == 1 and waiting_calls(theirs.client))
    observer.kazoo.delete(lock.waiters()[0].path)
    delete = observer.kazoo.transaction()
    delete.delete(lock.holders()[0].path)
    delete.delete(lock.path)
    assert delete.commit() == [True, True]
    assert waiting.result()
    assert theirs.held
    with pytest.raises(LockLostError):
        lock.release()
    theirs.release()


def test_release_before_the_next_one_has_woken_gives_it_to_the_one_behind(client: Client) -> None:
    """Whoever may release does: two releases in a row let two threads in, one after the other, and no two at once."""
    lock, inside, most = Lock(name="x", linger=0), [], [0]

    def use() -> None:
        lock.acquire()
        inside.append(1)
        most[0] = max(most[0], len(inside))
        eventually(lambda: go_on)
        inside.pop()
        try:
            lock.release()
        except NotHeldError:  # the second release below was of this holding
            pass

    go_on: list[int] = []
    lock.acquire()
    waiting = [Running(use) for _ in range(3)]
    eventually(lambda: len(lock._core.local_waiters) == 3)
    client._core.mutex.acquire()  # type: ignore[union-attr]  nobody wakes between the two
    try:
        lock.release()
        lock.release()
    finally:
        client._core.mutex.release()  # type: ignore[union-attr]
    eventually(lambda: len(inside) == 1)
    go_on.append(1)
    for one in waiting:
        one.result()
    assert most == [1]
