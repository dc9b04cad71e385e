"""SharedLock (recipes.txt, Shared Locks) between threads, clients and processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from helpers.interrupt_every_line import strikes
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, results

from distsync import ConfigurationError, LockLostError, MismatchError, NameInUseError, NotHeldError, UpgradeError
from distsync._client.client import Client
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS
from distsync._protocols.steps import Call
from distsync.recipes import SharedLock
from distsync.threading import Condition, Lock

MakeClient = Callable[..., Client]


@pytest.fixture
def shared(client: Client) -> SharedLock:
    return SharedLock(name="t")


@pytest.fixture
def theirs(other: Client) -> SharedLock:
    """The same lock, for another client."""
    return SharedLock(name="t", client=other)


def waiters(shared: SharedLock, count: int) -> None:
    eventually(lambda: len(shared.waiters()) == count, f"{shared.waiters()} wait, not {count}")


def released_at_last(shared: SharedLock) -> None:
    """Check that the queue is empty."""
    eventually(lambda: not shared.holders() and not shared.waiters())


# ---- exclusion


def test_readers_read_together_and_a_writer_is_alone(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader, theirs.reader:
        assert (shared.reader.held, theirs.reader.held) == (True, True)
        assert not theirs.writer.locked()
        assert not Running(theirs.writer.acquire, False).result()
    with shared.writer:
        eventually(lambda: (theirs.writer.locked(), theirs.reader.locked()) == (True, False))
        assert not theirs.reader.acquire(blocking=False)
        assert not theirs.writer.acquire(timeout=UNIT)
    released_at_last(shared)


def test_threads_of_processes_lose_no_step(shared: SharedLock, peers: list[Peer], tmp_path: Any) -> None:
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


def test_writer_waits_for_the_last_reader_and_readers_behind_it_come_in_together(
    shared: SharedLock, theirs: SharedLock, make_client: MakeClient
) -> None:
    """Shared Locks: a reader waits for the last writer ahead, a writer for the one right ahead."""
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
    theirs.writer._core.owner = remote  # released by another thread than it was acquired by, as only a test does
    theirs.client.run(theirs.writer._core.release(remote))
    assert results(reading) == [True, True]
    assert len(shared.reader.holders()) == 2
    for each in late:
        each.client.close()


def test_writer_that_waits_is_not_starved_by_readers_of_another_process(shared: SharedLock, theirs: SharedLock) -> None:
    """Threads that overlap endlessly: after some turns with one znode they have to enqueue again."""
    shared.reader.acquire()
    writing = Running(cycle, theirs.writer)
    waiters(shared, 1)
    eventually(lambda: not shared.reader._core.shares[0].grant.may_be_kept)  # this process has seen that it waits
    joined = 0
    while Running(shared.reader.acquire, False).result():
        joined += 1
        assert joined < MAX_LOCAL_HANDOVERS
    assert joined == MAX_LOCAL_HANDOVERS - 1
    assert writing.is_alive()
    shared.client.close()  # the threads that joined are gone
    assert writing.result()


def cycle(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


def test_reader_does_not_pass_a_writer_of_its_own_process(shared: SharedLock) -> None:
    shared.reader.acquire()
    writing = Running(cycle, shared.writer)
    waiters(shared, 1)
    assert not Running(shared.reader.acquire, False).result()
    shared.reader.release()
    assert writing.result()


def test_threads_of_one_process_share_one_znode(shared: SharedLock) -> None:
    shared.reader.acquire()
    others = [Running(cycle, shared.reader) for _ in range(5)]
    assert all(results(others))
    assert len(shared.holders()) == 1
    shared.reader.release()
    released_at_last(shared)


# ---- again, down, and never up


def test_each_side_may_be_acquired_again_by_its_thread(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader, shared.reader, shared.reader:
        assert "count=3" in repr(shared.reader)
    with shared.writer, shared.writer:
        assert not theirs.reader.acquire(blocking=False)
    released_at_last(shared)


def test_reader_reads_again_though_a_writer_waits(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.reader:
        writing = Running(cycle, theirs.writer)
        waiters(shared, 1)
        with shared.reader:
            assert shared.reader.held
    assert writing.result()


def test_writer_reads_too(shared: SharedLock, theirs: SharedLock) -> None:
    with shared.writer, shared.reader:
        assert (shared.reader.held, shared.writer.held) == (True, True)
        assert shared.reader.fencing_token == shared.writer.fencing_token
    assert theirs.writer.acquire(blocking=False)
    theirs.writer.release()


def test_downgraded_writer_keeps_its_place_before_those_who_wait(
    shared: SharedLock, theirs: SharedLock, make_client: MakeClient
) -> None:
    """Hazard 50: a writer that arrived in between must not acquire; nor a reader behind it."""
    shared.writer.acquire()
    token = shared.writer.fencing_token
    writing = Running(cycle, theirs.writer)
    waiters(shared, 1)
    late = SharedLock(name="t", client=make_client())
    reading = Running(cycle, late.reader)
    waiters(shared, 2)
    shared.reader.acquire()
    shared.writer.release()
    assert (shared.writer.held, shared.reader.held, shared.reader.fencing_token) == (False, True, token)
    assert len(shared.reader.holders()) == 1
    assert (writing.is_alive(), reading.is_alive()) == (True, True)
    shared.reader.release()
    assert writing.result()
    assert reading.result()


def test_readers_come_in_when_the_writer_is_downgraded(shared: SharedLock, theirs: SharedLock) -> None:
    shared.writer.acquire()
    reading = Running(cycle, theirs.reader)
    waiters(shared, 1)
    shared.reader.acquire()
    shared.writer.release()
    assert reading.result()
    assert Running(cycle, shared.reader).result()  # another thread of ours too
    shared.reader.release()


@pytest.mark.parametrize("how", [{}, {"blocking": False}, {"timeout": UNIT}])
def test_reader_that_wants_to_write_is_refused(shared: SharedLock, theirs: SharedLock, how: dict[str, Any]) -> None:
    """Hazard 49."""
    with shared.reader:
        with pytest.raises(UpgradeError, match=r"upgrade .* on .*/sharedlock/t.*: release the read lock first"):
            shared.writer.acquire(**how)
        assert shared.reader.held
        assert Running(theirs.reader.acquire).result()
        theirs.client.close()


# ---- release


def test_release_by_a_thread_that_does_not_hold_is_an_error(shared: SharedLock) -> None:
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


@pytest.mark.parametrize("meanwhile", [False, True])
def test_transaction_of_a_reader_who_writes_no_more_is_done(
    shared: SharedLock, observer: Observer, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    target, receipts = f"{shared.client.namespace}/guarded", shared.writer._receipts
    commit, before = receipts.commit, [shared.writer.release]

    async def overtaken(*operations: Any) -> Any:
        """Release the writer before the transaction is sent."""
        if before:
            await Call(before.pop())
        return await commit(*operations)

    shared.writer.acquire()
    with shared.reader:
        transaction = shared.reader.transaction()
        transaction.create(target, b"of a reader")
        if not meanwhile:
            before.pop()()
        monkeypatch.setattr(receipts, "commit", overtaken)
        transaction.commit()
        assert shared.reader.held
    assert observer.kazoo.get(target)[0] == b"of a reader"


# ---- loss


def delete_own_znode(shared: SharedLock, observer: Observer) -> None:
    observer.kazoo.delete(shared.holders()[0].path)


def end_session(shared: SharedLock, observer: Observer) -> None:
    expire(shared.client)


@pytest.mark.parametrize(("lose", "reason"), [(delete_own_znode, "znode deleted"), (end_session, "session expired")])
def test_loss_is_reported_to_each_side_once(
    shared: SharedLock, theirs: SharedLock, observer: Observer, lose: Callable[..., None], reason: str
) -> None:
    told: list[LockLostError] = []
    shared.writer.on_lost = shared.reader.on_lost = told.append
    shared.writer.acquire()
    shared.reader.acquire()
    lose(shared, observer)
    eventually(lambda: len(told) == 2, limit=60 * UNIT)
    assert {error.args for error in told} == {(shared.path, reason)}
    assert theirs.writer.acquire(timeout=PATIENCE)
    for side in (shared.reader, shared.writer):
        with pytest.raises(LockLostError, match=reason):
            side.release()
        with pytest.raises(NotHeldError):
            side.release()
    assert not shared.reader.acquire(blocking=False)
    theirs.writer.release()


def test_loss_after_the_downgrade_is_reported_to_the_reader_only(shared: SharedLock, observer: Observer) -> None:
    told: list[str] = []
    shared.writer.on_lost = lambda error: told.append("writer")
    shared.reader.on_lost = lambda error: told.append("reader")
    shared.writer.acquire()
    shared.reader.acquire()
    shared.writer.release()
    delete_own_znode(shared, observer)
    eventually(lambda: told)
    with pytest.raises(LockLostError):
        shared.reader.release()
    assert told == ["reader"]


def test_downgrade_of_a_writer_whose_znode_was_deleted_is_a_loss(
    shared: SharedLock, theirs: SharedLock, observer: Observer
) -> None:
    """Otherwise another writer, which holds since, would overlap with a reader."""
    shared.writer.acquire()
    shared.reader.acquire()
    delete_own_znode(shared, observer)
    assert theirs.writer.acquire(timeout=PATIENCE)
    with pytest.raises(LockLostError):
        shared.writer.release()
    with pytest.raises(LockLostError):
        shared.reader.release()
    assert len(theirs.holders()) == 1
    theirs.writer.release()


def test_dead_process_gives_back_what_it_reads_and_writes(shared: SharedLock, make_mortal: Callable[..., Peer]) -> None:
    for side in (shared.reader, shared.writer):
        mortal = make_mortal()
        mortal.do(side.acquire)
        mortal.kill()
        assert shared.writer.acquire(timeout=PATIENCE)
        shared.writer.release()


@pytest.mark.slow_on("zookeeper")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_one_interrupt_anywhere_leaves_it_free(client: Client, make_client: MakeClient) -> None:
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


# ---- names, kinds, pickles


def test_lock_and_its_sides_travel_by_name(shared: SharedLock, peer: Peer) -> None:
    assert peer.do(remote.attributes, shared.writer) == remote.attributes(shared.writer)
    with shared.writer:
        assert peer.do(shared.reader.acquire, False) is False
    assert peer.do(shared.reader.acquire) is True
    assert shared.writer.acquire(blocking=False) is False
    peer.do(shared.reader.release)
    again = pickle.loads(pickle.dumps(shared))
    with again.writer:
        assert shared.writer.held


def test_lock_is_named_after_the_place_where_it_is_bound() -> None:
    namespace: dict[str, Any] = {"__name__": "jobs"}
    exec("from distsync import SharedLock\ntable = SharedLock()", namespace)
    assert namespace["table"].name == "jobs.table"


def test_path_that_is_another_kind_or_layout_is_refused(shared: SharedLock, client: Client) -> None:
    assert not shared.reader.held
    with shared.reader:
        pass
    with pytest.raises(NameInUseError, match="sharedlock"):
        Lock(path=shared.path).acquire()
    with pytest.raises(MismatchError, match="layout"):
        SharedLock(path=shared.path, layout="kazoo").reader.acquire()
    with pytest.raises(ConfigurationError, match="'curator', 'kazoo'"):
        SharedLock(name="x", layout="zab")


def test_writer_serves_a_condition(shared: SharedLock, theirs: SharedLock) -> None:
    ours, other = Condition(shared.writer, name="c"), Condition(theirs.writer, name="c", client=theirs.client)
    waiting = Running(remote.wait_in, ours)
    eventually(lambda: shared.client.run(_contenders(f"{ours.path}/waiters")))
    remote.notify(other)
    assert waiting.result()


def _contenders(directory: str) -> Any:
    from distsync._protocols.wait_queue import contenders

    return contenders(directory)
