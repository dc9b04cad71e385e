"""SharedLock shared by threads, clients and processes.

Source: ZooKeeper recipes, Shared Locks.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.interrupt_every_line import PACKAGES, HandlerCall, in_protocols, strikes
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results

from distsync import (
    ConfigurationError,
    Counter,
    LockLostError,
    MismatchError,
    NameInUseError,
    NotHeldError,
    UpgradeError,
    UsageError,
    acquire_all,
    synchronized,
)
from distsync._client.client import Client
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS
from distsync._protocols.steps import Call
from distsync.recipes import SharedLock
from distsync.testing.faulty_proxy import Proxy
from distsync.threading import Condition, Lock, RLock

MakeClient = Callable[..., Client]


@pytest.fixture
def shared(client: Client) -> SharedLock:
    return SharedLock(name="t")


@pytest.fixture
def theirs(other: Client) -> SharedLock:
    """Return the same lock, used by another client."""
    return SharedLock(name="t", client=other)


def waiters(shared: SharedLock, count: int) -> None:
    eventually(lambda: len(shared.waiters()) == count, f"{shared.waiters()} wait, not {count}")


def wait_until_free(shared: SharedLock) -> None:
    """Wait until there is neither a holder nor a waiter."""
    eventually(lambda: not shared.holders() and not shared.waiters())


# ---- exclusion


def test_readers_share_the_lock_and_a_writer_excludes_all_others(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader, theirs.reader:
        assert (shared.reader.held, theirs.reader.held) == (True, True)
        assert not theirs.writer.locked()
        assert not Running(theirs.writer.acquire, False).result()
    with shared.writer:
        eventually(lambda: (theirs.writer.locked(), theirs.reader.locked()) == (True, False))
        assert not theirs.reader.acquire(blocking=False)
        assert not theirs.writer.acquire(timeout=UNIT)
    wait_until_free(shared)


def test_increments_of_several_processes_under_the_writer_are_not_lost(
    shared: SharedLock, peers: list[Peer], tmp_path: Any
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    for peer in peers:
        peer.start(remote.bump_in_threads, shared.writer, counter, 5, 2)
    for _ in range(20):
        with shared.reader:
            read = counter.read_text()
            assert read == counter.read_text() != ""
    for peer in peers:
        peer.result()
    assert counter.read_text() == "30"


def test_readers_behind_a_waiting_writer_are_admitted_together_after_it(
    shared: SharedLock, theirs: SharedLock, make_client: MakeClient
) -> None:
    """Shared Locks: a reader waits for the last writer ahead of it, a writer for the contender right
    ahead.
    """
    shared.reader.acquire()
    writing = Running(theirs.writer.acquire)
    waiters(shared, 1)
    late = [SharedLock(name="t", client=make_client()) for _ in range(2)]
    reading = [Running(each.reader.acquire) for each in late]
    waiters(shared, 3)
    assert [len(shared.reader.waiters()), len(shared.writer.waiters())] == [2, 1]
    shared.reader.release()
    assert writing.result()
    assert [one.is_alive() for one in reading] == [True, True]
    theirs.writer._core.owner = remote  # released by another thread than the acquiring one, as only a test does
    theirs.client.run(theirs.writer._core.release(remote))
    assert results(reading) == [True, True]
    assert len(shared.reader.holders()) == 2
    for each in late:
        each.client.close()


def test_waiting_writer_is_not_starved_by_overlapping_readers(shared: SharedLock, theirs: SharedLock) -> None:
    """Only a limited number of threads can share one entry in the queue; further ones enqueue behind
    the writer.
    """
    shared.reader.acquire()
    writing = Running(acquire_and_release, theirs.writer)
    waiters(shared, 1)
    # this client has noticed the waiting writer
    eventually(lambda: not shared.reader._core.shares[0].grant.may_be_cached)
    joined = 0
    while Running(shared.reader.acquire, False).result():
        joined += 1
        assert joined < MAX_LOCAL_HANDOVERS
    assert joined == MAX_LOCAL_HANDOVERS - 1
    assert writing.is_alive()
    shared.client.close()  # the threads that joined have ended
    assert writing.result()


def acquire_and_release(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


def test_reader_does_not_overtake_a_waiting_writer_of_its_own_process(shared: SharedLock) -> None:
    shared.reader.acquire()
    writing = Running(acquire_and_release, shared.writer)
    waiters(shared, 1)
    assert not Running(shared.reader.acquire, False).result()
    shared.reader.release()
    assert writing.result()


def test_threads_of_one_process_share_one_znode(shared: SharedLock) -> None:
    shared.reader.acquire()
    others = [Running(acquire_and_release, shared.reader) for _ in range(5)]
    assert all(results(others))
    assert len(shared.holders()) == 1
    shared.reader.release()
    wait_until_free(shared)


@pytest.mark.parametrize("limit", [(False,), (True, 0.0)])
def test_reader_that_does_not_wait_is_admitted_beside_one_that_waits_for_a_reply(
    limit: tuple[Any, ...], far: Client, proxy: Proxy
) -> None:
    """It gave up at once, as if a process wrote."""
    reader = SharedLock(name="t", client=far).reader
    leave = threading.Event()

    def read(*limit: Any) -> bool:
        acquired = reader.acquire(*limit)
        leave.wait(PATIENCE)
        if acquired:
            reader.release()
        return acquired

    proxy.blackhole()
    first = Running(read)
    eventually(lambda: reader._core.contending)
    second = Running(read, *limit)
    time.sleep(UNIT)
    proxy.heal()
    leave.set()
    assert results([first, second]) == [True, True]
    wait_until_free(SharedLock(name="t", client=far))


# ---- reentrance, downgrades, upgrades


def test_each_side_is_reentrant(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader, shared.reader, shared.reader:
        assert "count=3" in repr(shared.reader)
    with shared.writer, shared.writer:
        assert not theirs.reader.acquire(blocking=False)
    wait_until_free(shared)


def test_reader_is_reentrant_although_a_writer_waits(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader:
        writing = Running(acquire_and_release, theirs.writer)
        waiters(shared, 1)
        with shared.reader:
            assert shared.reader.held
    assert writing.result()


def test_writer_may_also_acquire_the_reader(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.writer, shared.reader:
        assert (shared.reader.held, shared.writer.held) == (True, True)
        assert shared.reader.fencing_token == shared.writer.fencing_token
    assert theirs.writer.acquire(blocking=False)
    theirs.writer.release()


def test_downgraded_writer_keeps_its_place_ahead_of_waiters(
    shared: SharedLock, theirs: SharedLock, make_client: MakeClient
) -> None:
    """Hazard 50: neither a writer that enqueued before the downgrade nor a reader behind it is
    admitted.
    """
    shared.writer.acquire()
    token = shared.writer.fencing_token
    writing = Running(acquire_and_release, theirs.writer)
    waiters(shared, 1)
    late = SharedLock(name="t", client=make_client())
    reading = Running(acquire_and_release, late.reader)
    waiters(shared, 2)
    shared.reader.acquire()
    shared.writer.release()
    assert (shared.writer.held, shared.reader.held, shared.reader.fencing_token) == (False, True, token)
    assert len(shared.reader.holders()) == 1
    assert (writing.is_alive(), reading.is_alive()) == (True, True)
    shared.reader.release()
    assert writing.result()
    assert reading.result()


def test_downgrade_of_the_writer_admits_waiting_readers(shared: SharedLock, theirs: SharedLock) -> None:
    shared.writer.acquire()
    reading = Running(acquire_and_release, theirs.reader)
    waiters(shared, 1)
    shared.reader.acquire()
    shared.writer.release()
    assert reading.result()
    assert Running(acquire_and_release, shared.reader).result()  # another thread of this client too
    shared.reader.release()


@pytest.mark.parametrize("options", [{}, {"blocking": False}, {"timeout": UNIT}])
def test_upgrade_from_reader_to_writer_raises(shared: SharedLock, theirs: SharedLock, options: dict[str, Any]) -> None:
    """Hazard 49."""
    with shared.reader:
        with pytest.raises(UpgradeError, match=r"upgrade .* on .*/sharedlock/t.*: release the read lock first"):
            shared.writer.acquire(**options)
        assert shared.reader.held
        assert Running(theirs.reader.acquire).result()
        theirs.client.close()


# ---- release


def test_release_by_a_thread_that_does_not_hold_the_side_raises(shared: SharedLock) -> None:
    for side in (shared.reader, shared.writer):
        with pytest.raises(NotHeldError):
            side.release()
        side.acquire()
        with pytest.raises(NotHeldError):
            Running(side.release).result()
        assert side.held
        side.release()


def test_transaction_of_each_side_is_refused_once_it_is_lost(shared: SharedLock, observer: Observer) -> None:
    target = f"{shared.client.namespace}/guarded"
    for side in (shared.reader, shared.writer):
        side.acquire()
        stale = side.transaction()
        stale.create(target, b"stale")
        observer.kazoo.delete(side.holders()[0].path)
        with pytest.raises(LockLostError):
            stale.commit()
        with pytest.raises(LockLostError):
            side.release()
    assert observer.kazoo.exists(target) is None


@pytest.mark.parametrize("concurrent", [False, True])
def test_transaction_of_a_reader_succeeds_although_its_writer_was_released(
    shared: SharedLock, observer: Observer, monkeypatch: pytest.MonkeyPatch, concurrent: bool
) -> None:
    target, receipts = f"{shared.client.namespace}/guarded", shared.writer._receipts
    commit, before = receipts.commit, [shared.writer.release]

    async def release_before_commit(*operations: Any) -> Any:
        """Release the writer before the transaction is sent."""
        if before:
            await Call(before.pop())
        return await commit(*operations)

    shared.writer.acquire()
    with shared.reader:
        transaction = shared.reader.transaction()
        transaction.create(target, b"of a reader")
        if not concurrent:
            before.pop()()
        monkeypatch.setattr(receipts, "commit", release_before_commit)
        transaction.commit()
        assert shared.reader.held
    assert observer.kazoo.get(target)[0] == b"of a reader"


# ---- loss


def delete_holder_znode(shared: SharedLock, observer: Observer) -> None:
    observer.kazoo.delete(shared.holders()[0].path)


def expire_session(shared: SharedLock, observer: Observer) -> None:
    expire(shared.client)


@pytest.mark.parametrize(
    ("lose", "reason"), [(delete_holder_znode, "znode deleted"), (expire_session, "session expired")]
)
def test_loss_is_reported_once_for_each_side(
    shared: SharedLock, theirs: SharedLock, observer: Observer, lose: Callable[..., None], reason: str
) -> None:
    losses: list[LockLostError] = []
    shared.writer.on_lost = shared.reader.on_lost = losses.append
    shared.writer.acquire()
    shared.reader.acquire()
    lose(shared, observer)
    eventually(lambda: len(losses) == 2, limit=60 * UNIT)
    assert {error.args for error in losses} == {(shared.path, reason)}
    assert theirs.writer.acquire(timeout=PATIENCE)
    for side in (shared.reader, shared.writer):
        with pytest.raises(LockLostError, match=reason):
            side.release()
        with pytest.raises(NotHeldError):
            side.release()
    assert not shared.reader.acquire(blocking=False)
    theirs.writer.release()


def test_loss_after_a_downgrade_is_reported_for_the_reader_only(shared: SharedLock, observer: Observer) -> None:
    losses: list[str] = []
    shared.writer.on_lost = lambda error: losses.append("writer")
    shared.reader.on_lost = lambda error: losses.append("reader")
    shared.writer.acquire()
    shared.reader.acquire()
    shared.writer.release()
    delete_holder_znode(shared, observer)
    eventually(lambda: losses)
    with pytest.raises(LockLostError):
        shared.reader.release()
    assert losses == ["reader"]


def test_downgrade_of_a_writer_whose_znode_was_deleted_raises_lock_lost_error(
    shared: SharedLock, theirs: SharedLock, observer: Observer
) -> None:
    """Otherwise a reader would hold the lock beside another writer that has acquired it."""
    shared.writer.acquire()
    shared.reader.acquire()
    delete_holder_znode(shared, observer)
    assert theirs.writer.acquire(timeout=PATIENCE)
    with pytest.raises(LockLostError):
        shared.writer.release()
    with pytest.raises(LockLostError):
        shared.reader.release()
    assert len(theirs.holders()) == 1
    theirs.writer.release()


def test_reader_and_writer_of_a_killed_process_are_released(
    shared: SharedLock, make_mortal: Callable[..., Peer]
) -> None:
    for side in (shared.reader, shared.writer):
        mortal = make_mortal()
        mortal.do(side.acquire)
        mortal.kill()
        assert shared.writer.acquire(timeout=PATIENCE)
        shared.writer.release()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_interrupt_at_any_line_leaves_the_lock_free(client: Client, make_client: MakeClient) -> None:
    ours, theirs = SharedLock(name="x"), SharedLock(name="x", client=make_client())

    def use() -> None:
        with ours.writer, ours.reader:
            pass
        with ours.reader:
            pass

    def check(where: str) -> None:
        if where.endswith("__exit__, call"):
            for side in (ours.reader, ours.writer):
                while side._is_owned():
                    side.release()
        assert theirs.writer.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.writer.release()

    use()
    assert strikes(use, check, 13) > 100


@pytest.mark.parametrize("linger", [0.0, 60.0])
@pytest.mark.parametrize("interrupted", ["acquire", "release"])
def test_interrupted_reader_of_a_writer_leaves_the_writer_held_until_its_release(
    interrupted: str, linger: float, client: Client, make_client: MakeClient
) -> None:
    lost: list[LockLostError] = []
    ours = SharedLock(name="x", linger=linger, on_lost=lost.append)
    theirs = SharedLock(name="x", linger=0, client=make_client())
    which, where = 0, ""
    while where is not None:
        which += 1
        ours.writer.acquire()
        if interrupted == "release":
            ours.reader.acquire()
        where = in_protocols(which).during(getattr(ours.reader, interrupted))
        assert ours.writer.held, where
        ours.writer.release()
        if where is None and interrupted == "acquire":
            ours.reader.release()
        assert not ours.reader.held, where
        assert theirs.writer.acquire(timeout=PATIENCE), f"not free after an interrupt at {where}"
        theirs.writer.release()
        assert lost == [], where
    assert which > 5


# ---- names, kinds, pickles


def test_shared_lock_and_its_sides_can_be_pickled(shared: SharedLock, peer: Peer) -> None:
    assert peer.do(remote.attributes, shared.writer) == remote.attributes(shared.writer)
    with shared.writer:
        assert peer.do(shared.reader.acquire, False) is False
    assert peer.do(shared.reader.acquire) is True
    assert shared.writer.acquire(blocking=False) is False
    peer.do(shared.reader.release)
    again = pickle.loads(pickle.dumps(shared))
    with again.writer:
        assert shared.writer.held


def test_shared_lock_is_named_after_its_variable() -> None:
    namespace: dict[str, Any] = {"__name__": "jobs"}
    exec("from distsync import SharedLock\ntable = SharedLock()", namespace)
    assert namespace["table"].name == "jobs.table"


def test_path_of_another_kind_or_layout_is_refused(shared: SharedLock, client: Client) -> None:
    assert not shared.reader.held
    with shared.reader:
        pass
    with pytest.raises(NameInUseError, match="sharedlock"):
        Lock(path=shared.path).acquire()
    with pytest.raises(MismatchError, match="layout"):
        SharedLock(path=shared.path, layout="kazoo").reader.acquire()
    with pytest.raises(ConfigurationError, match="'curator', 'kazoo'"):
        SharedLock(name="x", layout="zab")


def test_writer_can_be_the_lock_of_a_condition(shared: SharedLock, theirs: SharedLock) -> None:
    ours, other = Condition(shared.writer, name="c"), Condition(theirs.writer, name="c", client=theirs.client)
    waiting = Running(remote.wait_in, ours)
    eventually(lambda: shared.client.run(_contenders(f"{ours.path}/waiters")))
    remote.notify(other)
    assert waiting.result()


def _contenders(directory: str) -> Any:
    from distsync._protocols.wait_queue import contenders

    return contenders(directory)


# ---- the lock in place of an RLock


def test_lock_is_the_reentrant_lock_of_its_writer(shared: SharedLock, theirs: SharedLock) -> None:
    assert isinstance(shared, RLock)
    assert shared.acquire(timeout=UNIT)
    with shared, shared.writer, shared.reader:
        assert (shared.held, shared.writer.held, shared.locked(), shared.writer.locked()) == (True,) * 4
        assert shared.fencing_token == shared.writer.fencing_token
        writer = shared.writer
        assert (shared.path, shared.name, shared.linger) == (writer.path, writer.name, writer.linger)
        assert "locked" in repr(shared)
        assert "count=3" in repr(shared)
        for refused in (shared.acquire, theirs.acquire, theirs.reader.acquire):
            assert not Running(refused, False).result()
    eventually(theirs.locked)
    with pytest.raises(NotHeldError):
        Running(shared.release).result()
    shared.release()
    with pytest.raises(NotHeldError, match="un-acquired lock"):
        shared.release()
    with theirs:
        assert not shared.acquire(blocking=False)
    wait_until_free(shared)


def test_lock_is_not_locked_while_processes_only_read(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader, theirs.reader:
        assert not theirs.locked()


def test_writer_that_also_reads_is_downgraded_by_the_release_of_the_lock(
    shared: SharedLock, theirs: SharedLock
) -> None:
    shared.acquire()
    shared.reader.acquire()
    shared.release()
    assert (shared.held, shared.reader.held) == (False, True)
    assert Running(acquire_and_release, theirs.reader).result()
    assert not Running(theirs.acquire, False).result()
    with pytest.raises(UpgradeError, match="release the read lock first"):
        shared.acquire()
    with pytest.raises(UpgradeError, match="release the read lock first"), shared:
        pass
    shared.reader.release()


def test_lock_can_be_acquired_with_others_and_decorate_functions(shared: SharedLock, other: Client) -> None:
    with acquire_all(shared, Lock(name="z")) as held:
        assert held.held
        assert shared.held
        with pytest.raises(UsageError, match="given twice"):
            acquire_all(shared, shared.reader)
    with shared.reader, pytest.raises(UpgradeError):
        acquire_all(Lock(name="a"), shared)
    assert synchronized(shared)(lambda: shared.held)()

    @synchronized(shared)
    async def work() -> bool:
        return await again()

    @synchronized(shared)
    async def again() -> bool:
        return shared.held

    assert asyncio.run(work())
    assert not shared.held


def test_callbacks_of_the_lock_are_called_for_the_lock(shared: SharedLock, observer: Observer) -> None:
    lost: list[LockLostError] = []
    asked: list[Any] = []
    ours = SharedLock(name="t", on_lost=lost.append, on_revoke=asked.append)
    with pytest.raises(LockLostError), ours:  # noqa: PT012
        shared.revoke()
        eventually(lambda: asked)
        delete_holder_znode(shared, observer)
        eventually(lambda: lost)
    assert asked == [ours]
    assert (len(lost), lost[0].args[0]) == (1, ours.path)
    with ours.reader:
        shared.revoke()
        eventually(lambda: asked[1:] == [ours.reader])


def test_pickled_and_copied_locks_are_the_same_lock(shared: SharedLock, peer: Peer) -> None:
    with shared:
        assert peer.do(shared.acquire, False) is False
        for again in (copy.copy(shared), copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
            assert again.acquire(blocking=False)
            assert again.writer.held
            again.release()
    assert peer.do(shared.acquire) is True
    assert shared.acquire(blocking=False) is False
    peer.do(shared.release)


def test_unnamed_lock_is_deleted_with_the_last_of_it_and_its_sides(client: Client, observer: Observer) -> None:
    lock: Any = SharedLock()
    path = lock.path
    with lock:
        pass
    for side in ("reader", "writer"):
        lock = getattr(lock, side) if side == "reader" else lock._writer
        gc.collect()
        with lock:
            assert observer.kazoo.exists(path)
    del lock
    gc.collect()
    eventually(lambda: not observer.kazoo.exists(path))


# ---- Conditions


def test_wait_releases_and_restores_both_sides(shared: SharedLock, theirs: SharedLock) -> None:
    ours, other = Condition(shared, name="c"), Condition(theirs, name="c", client=theirs.client)

    def wait() -> tuple[bool, ...]:
        with ours, shared.writer, shared.reader, shared.reader:
            begun.set()
            notified = ours.wait(PATIENCE)
            again = (shared.held, shared._recursion_count() == 2, "count=2" in repr(shared.reader))
        return (notified, *again, shared.writer._is_owned(), shared.reader._is_owned())

    begun = threading.Event()
    waiting = Running(wait)
    assert begun.wait(PATIENCE)
    with other:
        assert theirs.held
        other.notify()
    assert waiting.result() == (True, True, True, True, False, False)
    wait_until_free(shared)


def test_wait_with_a_reader_releases_and_restores_all_of_its_levels(shared: SharedLock, theirs: SharedLock) -> None:
    """Only one level was released, so that no writer could notify the waiter."""
    ours = Condition(shared.reader, name="c")

    def wait() -> tuple[bool, ...]:
        with ours, shared.reader, shared.reader:
            notified = ours.wait(PATIENCE)
            return (notified, "count=3" in repr(shared.reader), theirs.acquire(False))

    waiting = Running(wait)
    eventually(lambda: shared.client.run(_contenders(f"{ours.path}/waiters")))
    assert theirs.acquire(timeout=PATIENCE)
    theirs.release()
    remote.notify(Condition(theirs.reader, name="c", client=theirs.client))
    assert waiting.result() == (True, True, False)
    wait_until_free(shared)


def test_wait_with_a_reader_restores_its_callbacks(shared: SharedLock, observer: Observer) -> None:
    lost: list[str] = []
    shared.reader.on_lost = lambda _: lost.append("reader")
    condition = Condition(shared.reader, name="c")
    shared.reader.acquire()
    shared.reader.acquire()
    condition.wait(0)
    shared.reader.release()
    delete_holder_znode(shared, observer)
    eventually(lambda: lost == ["reader"])
    with pytest.raises(LockLostError):
        shared.reader.release()


def test_wait_of_a_thread_that_only_reads_raises(shared: SharedLock) -> None:
    condition = Condition(shared, name="c")
    with shared.reader:
        for call in (condition.wait, condition.notify, condition.notify_all):
            with pytest.raises(NotHeldError):
                call()
    with shared.reader, pytest.raises(UpgradeError):
        condition.acquire()


def test_callbacks_are_called_for_what_is_held_after_a_wait(shared: SharedLock, observer: Observer) -> None:
    lost: list[str] = []
    shared.on_lost = lambda _: lost.append("lock")
    shared.reader.on_lost = lambda _: lost.append("reader")
    shared.writer.on_lost = lambda _: lost.append("writer")
    condition = Condition(shared, name="c")
    shared.acquire()
    shared.reader.acquire()
    condition.wait(0)
    delete_holder_znode(shared, observer)
    eventually(lambda: len(lost) == 2)
    assert sorted(lost) == ["lock", "reader"]
    for side in (shared.reader, shared):
        with pytest.raises(LockLostError):
            side.release()


def test_lock_that_is_lost_before_a_wait_is_reported_by_the_wait(shared: SharedLock, observer: Observer) -> None:
    condition = Condition(shared, name="c")
    shared.acquire()
    shared.reader.acquire()
    delete_holder_znode(shared, observer)
    eventually(lambda: not shared.held)
    with pytest.raises(LockLostError):
        condition.wait()
    for side in (shared.reader, shared):
        with pytest.raises(LockLostError):
            side.release()


def test_condition_with_the_lock_can_be_pickled(shared: SharedLock, peer: Peer) -> None:
    condition = Condition(shared, name="c")
    peer.start(remote.wait_in, condition)
    eventually(lambda: shared.client.run(_contenders(f"{condition.path}/waiters")))
    remote.notify(condition)
    assert peer.result()


def test_signal_handler_may_read_again_at_any_line_of_a_call(client: Client) -> None:
    """Also where the handler's thread cannot wait."""
    lock, counter = SharedLock(name="t"), Counter(name="n")

    def read() -> None:
        with lock.reader:
            pass

    def check(where: str) -> None:
        assert "count=1 " in repr(lock.reader), where

    counter.add(1)
    with lock.reader:
        places = strikes(
            partial(counter.add, 1), check, step=5, make=lambda which, error: HandlerCall(which, read, PACKAGES)
        )
    assert places > 50
