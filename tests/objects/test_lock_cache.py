"""Cached locks: re-acquiring costs nothing, and other contenders are served at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.preempted_lease_clock import Preempted
from helpers.request_counts import sent, settle
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running

from distsync import Condition, Lock, RLock, SharedLock
from distsync._client.client import Client
from distsync._client.clocks import lease_clock
from distsync._protocols.locks.grant import CacheState
from distsync.errors import LockLostError, NotHeldError

pytestmark = pytest.mark.usefixtures("no_guards")

LONG = 1000.0
"""Seconds: it is not kept too short to be seen."""


class Counted:
    """What a client sent, and what events it had, while the block ran."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.requests = self.events = 0

    def __enter__(self) -> Counted:
        self._before = self.client.statistics()
        return self

    def __exit__(self, *_: object) -> None:
        before, now = self._before, self.client.statistics()
        self.requests = sum(now.requests.values()) - sum(before.requests.values())
        self.events = now.events - before.events


MakeClient = Callable[..., Client]


@pytest.fixture(autouse=True)
def closed(client: Client, other: Client) -> Iterator[None]:
    """Close the clients, which evicts their cached locks."""
    yield
    client.close()
    other.close()


def writer(**options: Any) -> Any:
    return SharedLock(**options).writer


KINDS = pytest.mark.parametrize("kind", [Lock, RLock, writer])


def keeping(kind: Any, client: Client) -> Any:
    """A lock that is kept, and watched."""
    lock = kind(name="k", client=client, linger=LONG)
    with lock:
        pass
    eventually(lambda: is_watched(lock))
    return lock


def is_watched(lock: Any) -> bool:
    """Return whether the background thread would notice another contender."""
    link = lock.client._core.link
    return any(key[0] == "children" for key in link.watches._signals)


@KINDS
def test_lock_taken_again_while_it_is_kept_costs_nothing(kind: Any, client: Client) -> None:
    lock = keeping(kind, client)
    with Counted(client) as cost:
        for _ in range(1000):
            with lock:
                assert lock.held
    assert (cost.requests, cost.events) == (0, 0)
    assert not lock.held


@KINDS
def test_lock_that_is_kept_costs_2_to_acquire_1_to_watch_and_1_when_it_goes(kind: Any, client: Client) -> None:
    with kind(name="k", client=client):
        pass
    eventually(lambda: not children(client, kind(name="k", client=client)))
    with Counted(client) as cost:
        lock = keeping(kind, client)
    assert cost.requests == 3
    with Counted(client) as cost:
        client.run(lock._core.evict(lock._core.cached))
    assert cost.requests == 1


def children(client: Client, lock: Any) -> list[str]:
    from distsync._protocols.wait_queue import contenders

    return [path for path, _ in client.run(contenders(lock.path))]


def test_cached_lock_is_evicted_after_its_time(client: Client, observer: Observer) -> None:
    lock = Lock(name="k", linger=UNIT)
    with lock:
        pass
    eventually(lambda: not observer.ephemerals(lock.path))
    with lock:
        assert lock.held


@KINDS
def test_waiter_in_another_process_gets_a_kept_lock_at_once(kind: Any, client: Client, other: Client) -> None:
    ours, theirs = keeping(kind, client), kind(name="k", client=other)
    assert theirs.acquire()
    assert not ours.acquire(blocking=False)
    theirs.release()


@KINDS
@pytest.mark.parametrize("how", [{"blocking": False}, {"timeout": 1e-5}, {"timeout": 4 * UNIT}])
def test_who_must_not_wait_gets_a_lock_that_is_only_kept(
    kind: Any, how: dict[str, Any], client: Client, other: Client
) -> None:
    ours, theirs = keeping(kind, client), kind(name="k", client=other)
    assert theirs.acquire(**how)
    assert not ours.acquire(blocking=False)
    theirs.release()
    with ours:
        assert not theirs.acquire(**how)


@KINDS
def test_lock_that_is_only_kept_is_not_locked_and_nobody_holds_it(kind: Any, client: Client, other: Client) -> None:
    for look in ("locked", "holders", "revoke")[kind is RLock :]:
        ours, theirs = keeping(kind, client), kind(name="k", client=other)
        if look == "revoke":
            with pytest.raises(NotHeldError):
                theirs.revoke()
        else:
            assert not getattr(theirs, look)()
        with ours:
            assert len(theirs.holders()) == len(ours.holders()) == 1


@KINDS
def test_token_stays_the_same_in_a_process_and_grows_from_process_to_process(
    kind: Any, client: Client, other: Client
) -> None:
    ours, theirs = keeping(kind, client), kind(name="k", client=other, linger=LONG)
    tokens = []
    for lock in (ours, ours, theirs, theirs, ours):
        with lock:
            tokens.append(int(lock.fencing_token))
    assert tokens == sorted(tokens)
    assert tokens[0] == tokens[1] < tokens[2]
    assert tokens[3] < tokens[4]


def test_transaction_of_a_holding_that_is_over_is_refused_though_the_lock_is_kept(
    client: Client, namespace: str
) -> None:
    lock = keeping(Lock, client)
    with lock:
        late = lock.transaction()
        late.create(f"{namespace}/guarded")
    with pytest.raises(LockLostError):
        late.commit()
    with lock:
        later = lock.transaction()
    with lock, pytest.raises(LockLostError):
        later.commit()


def test_cached_lock_whose_znode_was_deleted_is_acquired_again_without_a_report(
    client: Client, observer: Observer
) -> None:
    told: list[Any] = []
    lock = Lock(name="k", linger=LONG, on_lost=told.append)
    with lock:
        before = lock.fencing_token
    eventually(lambda: is_watched(lock))
    observer.kazoo.delete(observer.ephemerals(lock.path)[0])
    eventually(lambda: lock._core.cached is None or lock._core.cached.loss.fired)
    with lock:
        assert lock.fencing_token > before
    assert told == []


def test_child_of_a_fork_has_no_kept_lock_and_its_parent_has(client: Client) -> None:
    lock = keeping(Lock, client)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(
            write, b"kept" if lock._fast_path is not None and lock._fast_path.acquire_from_cache([]) else b"not kept"
        )
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"not kept"
    os.close(read)
    os.close(write)
    with Counted(client) as cost, lock:
        assert lock.held
    assert cost.requests == 0


def test_lock_is_not_taken_again_when_its_lease_has_run_out(client: Client) -> None:
    lock = keeping(Lock, client)
    with lock:
        before = lock.fencing_token
    client._core.lease.proven_at = float("-inf")  # type: ignore[union-attr]
    with lock:
        assert lock.fencing_token > before


def test_suspended_process_sees_the_new_holder_of_its_cached_lock(client: Client, other: Client) -> None:
    """It believes that it keeps it, for a moment; its session has ended, and its lease has run out."""
    ours = keeping(Lock, client)
    kept = ours._core.cached
    assert kept is not None
    with Lock(name="k", client=other):
        eventually(lambda: ours._core.cached is None)
        ours._core.cached, kept.cache = kept, CacheState(LONG, idle=True)
        client._core.lease.proven_at = float("-inf")  # type: ignore[union-attr]
        assert ours.locked()
        ours._core.cached = None


def test_closed_client_keeps_nothing(make_client: MakeClient, observer: Observer) -> None:
    client = make_client()
    lock = keeping(Lock, client)
    client.close()
    eventually(lambda: not observer.ephemerals(lock.path))


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_threads_of_a_process_share_a_kept_lock_without_a_request(kind: Any, client: Client) -> None:
    lock, counter, threads = keeping(kind, client), [0], 4

    def use() -> None:
        for _ in range(200):
            with lock:
                counter[0] += 1

    with Counted(client) as cost:
        for one in [Running(use) for _ in range(threads)]:
            one.result()
    assert counter == [200 * threads]
    assert cost.requests == 0


def test_waiter_of_another_process_is_served_while_threads_continue(client: Client, other: Client) -> None:
    ours, theirs, over = keeping(Lock, client), Lock(name="k", client=other), threading.Event()

    def use() -> None:
        while not over.is_set():
            with ours:
                pass

    running = [Running(use) for _ in range(3)]
    try:
        for _ in range(3):
            with theirs:
                assert theirs.held
    finally:
        over.set()
    for one in running:
        one.result()


def test_notifier_elsewhere_does_not_find_the_lock_of_a_condition_kept(client: Client, other: Client) -> None:
    ours, theirs = Condition(name="c"), Condition(name="c", client=other)

    def wait() -> bool:
        with ours:
            return ours.wait()

    waiting = Running(wait)
    eventually(lambda: other.run(theirs._core.waiting()) == 1)
    with theirs:
        theirs.notify()
    assert waiting.result()


def test_kazoo_contender_gets_a_kept_lock(client: Client, observer: Observer) -> None:
    lock = keeping(Lock, client)
    foreign = observer.kazoo.Lock(lock.path, extra_lock_patterns=["-lock-"])
    assert foreign.acquire(timeout=200 * UNIT)
    assert not lock.acquire(blocking=False)
    foreign.release()
    with lock:
        assert lock.held


@pytest.mark.parametrize("linger", [-1, "x", float("nan"), True])
def test_keep_that_is_no_time_is_refused(linger: Any) -> None:
    with pytest.raises(ValueError, match="linger"):
        Lock(name="k", linger=linger)


def test_keep_of_the_client_counts_where_the_lock_has_none(make_client: MakeClient) -> None:
    client = make_client(linger=0)
    assert (Lock(name="a", client=client).linger, Lock(name="a", client=client, linger=3).linger) == (0.0, 3.0)
    lock = Lock(name="a", client=client)
    with lock:
        pass
    assert lock._core.cached is None


# ---- readers


def reading(client: Client) -> Any:
    """A reader that is kept, and watched."""
    return keeping(lambda **given: SharedLock(**given).reader, client)


def readers_of(makes: MakeClient, count: int) -> list[Any]:
    return [reading(makes()) for _ in range(count)]


def close(readers: list[Any]) -> None:
    """Close the clients, which evicts their cached locks."""
    for reader in readers:
        reader.client.close()


def test_reader_taken_again_while_it_is_kept_costs_nothing(client: Client) -> None:
    reader = reading(client)
    with Counted(client) as cost:
        for _ in range(1000):
            with reader, reader:
                assert reader.held
    assert (cost.requests, cost.events) == (0, 0)
    assert not reader.held


def test_reader_that_is_kept_costs_2_to_acquire_1_to_watch_and_1_when_it_goes(client: Client) -> None:
    with SharedLock(name="k", client=client, linger=0).reader:
        pass
    with Counted(client) as cost:
        reader = reading(client)
    assert cost.requests == 3
    with Counted(client) as cost:
        client.run(reader._core.evict(reader._core.cached))
    assert cost.requests == 1


def test_threads_that_read_share_what_is_kept_without_a_request(client: Client) -> None:
    reader = reading(client)

    def use() -> None:
        for _ in range(200):
            with reader:
                pass

    with Counted(client) as cost:
        for one in [Running(use) for _ in range(4)]:
            one.result()
    assert cost.requests == 0


def test_cached_reader_is_evicted_after_its_time(client: Client, observer: Observer) -> None:
    reader = SharedLock(name="k", linger=UNIT).reader
    with reader:
        pass
    eventually(lambda: not observer.ephemerals(reader.path))
    with reader:
        assert reader.held


def listed(client: Client) -> int:
    """How often it has listed the line."""
    return sent(client, "Children")


def two_reading(client: Client, other: Client) -> tuple[Any, Any]:
    """They are kept beside each other, and the first one has seen the second."""
    ours, before = reading(client), listed(client)
    theirs = reading(other)
    eventually(lambda: listed(client) == before + 1)
    return ours, theirs


def test_readers_of_two_processes_are_kept_beside_each_other(client: Client, other: Client) -> None:
    ours, theirs = two_reading(client, other)
    with Counted(client) as cost, Counted(other) as costs:
        for _ in range(100):
            with ours, theirs:
                pass
    assert (cost.requests, costs.requests) == (0, 0)


def test_idle_reader_goes_at_the_second_event_and_lists_once(client: Client, make_client: MakeClient) -> None:
    ours, theirs = reading(client), SharedLock(name="k", client=make_client(linger=0)).reader
    before = listed(client)
    with theirs:
        eventually(lambda: listed(client) == before + 1)
        settle([client])  # the watch is armed
        assert ours._core.cached is not None
    eventually(lambda: ours._core.cached is None)
    assert listed(client) == before + 1


def test_reader_that_is_used_between_events_stays_and_lists_once_for_each(
    client: Client, make_client: MakeClient
) -> None:
    ours, theirs = reading(client), SharedLock(name="k", client=make_client(linger=0)).reader
    for come_or_go in (theirs.acquire, theirs.release) * 3:
        before = listed(client)
        with ours:
            come_or_go()
            eventually(lambda: listed(client) == before + 1)  # noqa: B023
            settle([client])  # the watch is armed
    with Counted(client) as cost, ours:
        pass
    assert cost.requests == 0


@pytest.mark.parametrize("how", [{}, {"blocking": False}, {"timeout": 1e-5}, {"timeout": 4 * UNIT}])
def test_writer_gets_what_only_kept_readers_have(how: dict[str, Any], client: Client, make_client: MakeClient) -> None:
    readers, writing = readers_of(make_client, 2), SharedLock(name="k", client=client).writer
    assert writing.acquire(**how)
    assert not any(reader.acquire(blocking=False) for reader in readers)
    writing.release()
    for reader in readers:
        with reader:
            if how:
                assert not writing.acquire(**how)
    close(readers)


def test_writer_of_the_same_process_gets_it_and_no_reader_is_kept_past_it(client: Client, other: Client) -> None:
    shared = SharedLock(name="k", client=client, linger=LONG)
    with shared.reader:
        pass
    eventually(lambda: is_watched(shared.reader))
    with Counted(client) as cost:
        assert shared.writer.acquire(blocking=False)
    assert cost.requests <= 5
    assert not SharedLock(name="k", client=other).reader.acquire(blocking=False)
    shared.writer.release()
    with shared.reader:
        writing = Running(lambda: shared.writer.acquire() and shared.writer.release())
        eventually(lambda: len(shared.waiters()) == 1)
        assert not Running(lambda: shared.reader.acquire(blocking=False)).result()
    writing.result()


def test_who_looks_sees_who_reads_and_not_who_keeps(client: Client, make_client: MakeClient) -> None:
    theirs = SharedLock(name="k", client=client)
    for look in ("locked", "holders", "revoke"):
        readers = readers_of(make_client, 2)
        if look == "revoke":
            with pytest.raises(NotHeldError):
                theirs.revoke()
        elif look == "holders":
            assert not theirs.holders()
            assert not theirs.reader.holders()
        else:
            assert not theirs.reader.locked()
        with readers[0]:
            assert theirs.reader.locked()
            assert len(theirs.reader.holders()) == len(theirs.holders()) == 1
            assert not theirs.revoke()
    close(readers)


def test_writer_of_another_process_is_served_while_readers_continue(client: Client, make_client: MakeClient) -> None:
    readers, over = [reader for reader in readers_of(make_client, 2) for _ in range(2)], threading.Event()
    writing = SharedLock(name="k", client=client).writer

    def use(reader: Any) -> None:
        while not over.is_set():
            with reader:
                pass

    running = [Running(use, reader) for reader in readers]
    try:
        for _ in range(3):
            with writing:
                assert writing.held
    finally:
        over.set()
    for one in running:
        one.result()
    close(readers)


def test_cached_reader_whose_znode_was_deleted_is_acquired_again_without_a_report(
    client: Client, observer: Observer
) -> None:
    told: list[Any] = []
    reader = SharedLock(name="k", linger=LONG, on_lost=told.append).reader
    with reader:
        before = reader.fencing_token
    eventually(lambda: is_watched(reader))
    observer.kazoo.delete(observer.ephemerals(reader.path)[0])
    eventually(lambda: reader._core.cached is None or reader._core.cached.grant.loss.fired)
    with reader:
        assert reader.fencing_token > before
    assert told == []


def test_reader_is_not_taken_again_when_its_lease_has_run_out(client: Client) -> None:
    reader = reading(client)
    with reader:
        before = reader.fencing_token
    client._core.lease.proven_at = float("-inf")  # type: ignore[union-attr]
    with reader:
        assert reader.fencing_token > before


def test_child_of_a_fork_has_no_kept_reader_and_its_parent_has(client: Client) -> None:
    reader = reading(client)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"kept" if reader.client._core is not None and reader._core.cached else b"not kept")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"not kept"
    os.close(read)
    os.close(write)
    with Counted(client) as cost, reader:
        assert reader.held
    assert cost.requests == 0


def test_closed_client_keeps_no_reader(make_client: MakeClient, observer: Observer) -> None:
    reader = reading(make_client())
    reader.client.close()
    eventually(lambda: not observer.ephemerals(reader.path))


def test_transaction_of_a_reading_that_is_over_is_refused_though_it_is_kept(client: Client, namespace: str) -> None:
    reader = reading(client)
    with reader:
        late = reader.transaction()
        late.create(f"{namespace}/guarded")
    with pytest.raises(LockLostError):
        late.commit()
    with reader:
        later = reader.transaction()
    with reader, pytest.raises(LockLostError):
        later.commit()


@pytest.mark.parametrize("reads", [1, 2, 3])
@pytest.mark.parametrize("step", ["acquire_from_cache", "release_to_cache"])
def test_cached_lock_is_neither_acquired_nor_cached_during_a_session_change(
    client: Client, step: str, reads: int
) -> None:
    lock = keeping(Lock, client)
    if step == "release_to_cache":
        lock.acquire()
    quick, now = lock._fast_path, lease_clock()
    before, quick.lease = quick.lease, Preempted(reads, (quick.session_id + 1, LONG, now))
    quick.lease.begin(quick.session_id, 10.0, now - LONG)
    try:
        assert not getattr(quick, step)([])
    finally:
        quick.lease = before
    assert lock.held is (step == "release_to_cache")
