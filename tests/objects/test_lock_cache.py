"""Cached locks: acquiring one again costs no request, and contenders elsewhere get it at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.preempted_lease_clock import Preempted
from helpers.request_counts import sent, settle
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running

from distsync import Condition, Lock, RLock, SharedLock
from distsync._client.client import Client
from distsync._client.clocks import lease_clock
from distsync._protocols.locks.grant import CacheState
from distsync._protocols.steps import GetData
from distsync.errors import LockLostError, NotHeldError

pytestmark = pytest.mark.usefixtures("no_guards")

LONG = 1000.0
"""Seconds: no cached lock expires during a test."""


class Counted:
    """Count the requests and events of a client during a block."""

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
    """Close the clients, which releases their cached locks."""
    yield
    client.close()
    other.close()


def writer(**options: Any) -> Any:
    return SharedLock(**options).writer


KINDS = pytest.mark.parametrize("kind", [Lock, RLock, writer])


def cached_lock(kind: Any, client: Client) -> Any:
    """Return a lock that is cached, and watched for contenders."""
    lock = kind(name="k", client=client, linger=LONG)
    with lock:
        pass
    eventually(lambda: is_watched(lock))
    return lock


def is_watched(lock: Any) -> bool:
    """Return whether the client would learn of a new contender."""
    zk_session = lock.client._runtime.zk_session
    return any(key[0] == "children" for key in zk_session.watches._signals)


@KINDS
def test_acquire_of_a_cached_lock_costs_nothing(kind: Any, client: Client) -> None:
    lock = cached_lock(kind, client)
    with Counted(client) as cost:
        for _ in range(1000):
            with lock:
                assert lock.held
    assert (cost.requests, cost.events) == (0, 0)
    assert not lock.held


@KINDS
def test_cached_lock_costs_2_requests_to_acquire_1_to_watch_and_1_to_evict(kind: Any, client: Client) -> None:
    with kind(name="k", client=client):
        pass
    eventually(lambda: not children(client, kind(name="k", client=client)))
    with Counted(client) as cost:
        lock = cached_lock(kind, client)
    assert cost.requests == 3
    with Counted(client) as cost:
        client.run(lock._core.evict(lock._core.cached))
    assert cost.requests == 1


def children(client: Client, lock: Any) -> list[str]:
    from distsync._protocols.wait_queue import contenders

    return [path for path, _ in client.run(contenders(lock.path))]


def test_cached_lock_is_evicted_after_its_linger_time(client: Client, observer: Observer) -> None:
    lock = Lock(name="k", linger=UNIT)
    with lock:
        pass
    eventually(lambda: not observer.ephemerals(lock.path))
    with lock:
        assert lock.held


@KINDS
def test_waiter_of_another_client_acquires_a_cached_lock_at_once(kind: Any, client: Client, other: Client) -> None:
    ours, theirs = cached_lock(kind, client), kind(name="k", client=other)
    assert theirs.acquire()
    assert not ours.acquire(blocking=False)
    theirs.release()


@KINDS
@pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 1e-5}, {"timeout": 4 * UNIT}])
def test_non_blocking_or_short_acquire_gets_a_lock_that_is_only_cached(
    kind: Any, options: dict[str, Any], client: Client, other: Client
) -> None:
    ours, theirs = cached_lock(kind, client), kind(name="k", client=other)
    assert theirs.acquire(**options)
    assert not ours.acquire(blocking=False)
    theirs.release()
    with ours:
        assert not theirs.acquire(**options)


@KINDS
def test_holder_replies_to_a_query_after_its_connection_was_lost(
    kind: Any, proxy: Any, make_client: MakeClient, other: Client
) -> None:
    near = make_client(hosts=proxy.hosts)
    ours, theirs = kind(name="k", client=near, linger=LONG), kind(name="k", client=other)
    with ours:
        for _ in range(2):
            eventually(lambda: is_watched(ours))
            proxy.cut()
            near.sync(timeout=PATIENCE)  # on the next connection
        assert not theirs.acquire(blocking=False)
        (holder,) = theirs.holders()
        eventually(lambda: b'"keep"' not in other.run(ask(GetData(holder.path))).data)
    near.close()


@KINDS
def test_lock_that_is_only_cached_is_reported_as_free(kind: Any, client: Client, other: Client) -> None:
    for look in ("locked", "holders", "revoke")[kind is RLock :]:
        ours, theirs = cached_lock(kind, client), kind(name="k", client=other)
        if look == "revoke":
            with pytest.raises(NotHeldError):
                theirs.revoke()
        else:
            assert not getattr(theirs, look)()
        with ours:
            assert len(theirs.holders()) == len(ours.holders()) == 1


@KINDS
def test_fencing_token_is_constant_while_cached_and_grows_from_client_to_client(
    kind: Any, client: Client, other: Client
) -> None:
    ours, theirs = cached_lock(kind, client), kind(name="k", client=other, linger=LONG)
    tokens = []
    for lock in (ours, ours, theirs, theirs, ours):
        with lock:
            tokens.append(int(lock.fencing_token))
    assert tokens == sorted(tokens)
    assert tokens[0] == tokens[1] < tokens[2]
    assert tokens[3] < tokens[4]


def test_transaction_of_an_earlier_acquire_is_refused_although_the_lock_is_cached(
    client: Client, namespace: str
) -> None:
    lock = cached_lock(Lock, client)
    with lock:
        late = lock.transaction()
        late.create(f"{namespace}/guarded")
    with pytest.raises(LockLostError):
        late.commit()
    with lock:
        later = lock.transaction()
    with lock, pytest.raises(LockLostError):
        later.commit()


def test_cached_lock_whose_znode_was_deleted_is_acquired_again_without_a_loss_callback(
    client: Client, observer: Observer
) -> None:
    losses: list[Any] = []
    lock = Lock(name="k", linger=LONG, on_lost=losses.append)
    with lock:
        before = lock.fencing_token
    eventually(lambda: is_watched(lock))
    observer.kazoo.delete(observer.ephemerals(lock.path)[0])
    eventually(lambda: lock._core.cached is None or lock._core.cached.loss.fired)
    with lock:
        assert lock.fencing_token > before
    assert losses == []


def test_forked_child_does_not_inherit_a_cached_lock(client: Client) -> None:
    lock = cached_lock(Lock, client)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(
            write,
            b"cached" if lock._fast_path is not None and lock._fast_path.acquire_from_cache([]) else b"not cached",
        )
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"not cached"
    os.close(read)
    os.close(write)
    with Counted(client) as cost, lock:
        assert lock.held
    assert cost.requests == 0


def test_cached_lock_is_not_reused_after_its_lease_has_expired(client: Client) -> None:
    lock = cached_lock(Lock, client)
    with lock:
        before = lock.fencing_token
    client._runtime.lease.proven_at = float("-inf")  # type: ignore[union-attr]
    with lock:
        assert lock.fencing_token > before


def test_locked_is_true_for_a_stale_cached_lock_that_another_client_holds(client: Client, other: Client) -> None:
    """As after a pause of the process: the lock still counts as cached, but session and lease have
    ended.
    """
    ours = cached_lock(Lock, client)
    cached = ours._core.cached
    assert cached is not None
    with Lock(name="k", client=other):
        eventually(lambda: ours._core.cached is None)
        ours._core.cached, cached.cache = cached, CacheState(LONG, idle=True)
        client._runtime.lease.proven_at = float("-inf")  # type: ignore[union-attr]
        assert ours.locked()
        ours._core.cached = None


def test_closing_a_client_releases_its_cached_lock(make_client: MakeClient, observer: Observer) -> None:
    client = make_client()
    lock = cached_lock(Lock, client)
    client.close()
    eventually(lambda: not observer.ephemerals(lock.path))


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_threads_of_a_process_share_a_cached_lock_without_a_request(kind: Any, client: Client) -> None:
    lock, counter, threads = cached_lock(kind, client), [0], 4

    def use() -> None:
        for _ in range(200):
            with lock:
                counter[0] += 1

    with Counted(client) as cost:
        for one in [Running(use) for _ in range(threads)]:
            one.result()
    assert counter == [200 * threads]
    assert cost.requests == 0


def test_waiter_of_another_client_acquires_a_cached_lock_despite_busy_local_threads(
    client: Client, other: Client
) -> None:
    ours, theirs, over = cached_lock(Lock, client), Lock(name="k", client=other), threading.Event()

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


def test_notifier_of_another_client_can_acquire_the_lock_of_a_waiting_condition(client: Client, other: Client) -> None:
    ours, theirs = Condition(name="c"), Condition(name="c", client=other)

    def wait() -> bool:
        with ours:
            return ours.wait()

    waiting = Running(wait)
    eventually(lambda: other.run(theirs._condition.waiting()) == 1)
    with theirs:
        theirs.notify()
    assert waiting.result()


def test_kazoo_contender_acquires_a_cached_lock(client: Client, observer: Observer) -> None:
    lock = cached_lock(Lock, client)
    foreign = observer.kazoo.Lock(lock.path, extra_lock_patterns=["-lock-"])
    assert foreign.acquire(timeout=200 * UNIT)
    assert not lock.acquire(blocking=False)
    foreign.release()
    with lock:
        assert lock.held


@pytest.mark.parametrize("linger", [-1, "x", float("nan"), True])
def test_invalid_linger_is_refused(linger: Any) -> None:
    with pytest.raises(ValueError, match="linger"):
        Lock(name="k", linger=linger)


def test_linger_of_the_client_applies_to_locks_without_their_own(make_client: MakeClient) -> None:
    client = make_client(linger=0)
    assert (Lock(name="a", client=client).linger, Lock(name="a", client=client, linger=3).linger) == (0.0, 3.0)
    lock = Lock(name="a", client=client)
    with lock:
        pass
    assert lock._core.cached is None


# ---- readers


def cached_reader(client: Client) -> Any:
    """Return a reader that is cached, and watched for contenders."""
    return cached_lock(lambda **given: SharedLock(**given).reader, client)


def cached_readers(makes: MakeClient, count: int) -> list[Any]:
    return [cached_reader(makes()) for _ in range(count)]


def close(readers: list[Any]) -> None:
    """Close the readers' clients, which releases their cached locks."""
    for reader in readers:
        reader.client.close()


def test_acquire_of_a_cached_reader_costs_nothing(client: Client) -> None:
    reader = cached_reader(client)
    with Counted(client) as cost:
        for _ in range(1000):
            with reader, reader:
                assert reader.held
    assert (cost.requests, cost.events) == (0, 0)
    assert not reader.held


def test_cached_reader_costs_2_requests_to_acquire_1_to_watch_and_1_to_evict(client: Client) -> None:
    with SharedLock(name="k", client=client, linger=0).reader:
        pass
    with Counted(client) as cost:
        reader = cached_reader(client)
    assert cost.requests == 3
    with Counted(client) as cost:
        client.run(reader._core.evict(reader._core.cached))
    assert cost.requests == 1


def test_threads_of_a_process_share_a_cached_reader_without_a_request(client: Client) -> None:
    reader = cached_reader(client)

    def use() -> None:
        for _ in range(200):
            with reader:
                pass

    with Counted(client) as cost:
        for one in [Running(use) for _ in range(4)]:
            one.result()
    assert cost.requests == 0


def test_cached_reader_is_evicted_after_its_linger_time(client: Client, observer: Observer) -> None:
    reader = SharedLock(name="k", linger=UNIT).reader
    with reader:
        pass
    eventually(lambda: not observer.ephemerals(reader.path))
    with reader:
        assert reader.held


def lists_sent(client: Client) -> int:
    """Return how often the client has listed the queue."""
    return sent(client, "Children")


def two_cached_readers(client: Client, other: Client) -> tuple[Any, Any]:
    """Return two readers that are cached at the same time, after the first one has seen the second."""
    ours, before = cached_reader(client), lists_sent(client)
    theirs = cached_reader(other)
    eventually(lambda: lists_sent(client) == before + 1)
    return ours, theirs


def test_readers_of_two_clients_are_cached_at_the_same_time(client: Client, other: Client) -> None:
    ours, theirs = two_cached_readers(client, other)
    with Counted(client) as cost, Counted(other) as costs:
        for _ in range(100):
            with ours, theirs:
                pass
    assert (cost.requests, costs.requests) == (0, 0)


def test_idle_cached_reader_is_evicted_at_the_second_event_after_one_list(
    client: Client, make_client: MakeClient
) -> None:
    ours, theirs = cached_reader(client), SharedLock(name="k", client=make_client(linger=0)).reader
    before = lists_sent(client)
    with theirs:
        eventually(lambda: lists_sent(client) == before + 1)
        settle([client])  # the watch is armed
        assert ours._core.cached is not None
    eventually(lambda: ours._core.cached is None)
    assert lists_sent(client) == before + 1


def test_cached_reader_used_between_events_stays_cached_and_lists_once_per_event(
    client: Client, make_client: MakeClient
) -> None:
    ours, theirs = cached_reader(client), SharedLock(name="k", client=make_client(linger=0)).reader
    for change in (theirs.acquire, theirs.release) * 3:
        before = lists_sent(client)
        with ours:
            change()
            eventually(lambda: lists_sent(client) == before + 1)  # noqa: B023
            settle([client])  # the watch is armed
    with Counted(client) as cost, ours:
        pass
    assert cost.requests == 0


@pytest.mark.parametrize("options", [{}, {"blocking": False}, {"timeout": 1e-5}, {"timeout": 4 * UNIT}])
def test_writer_acquires_a_lock_whose_readers_are_only_cached(
    options: dict[str, Any], client: Client, make_client: MakeClient
) -> None:
    readers, writing = cached_readers(make_client, 2), SharedLock(name="k", client=client).writer
    assert writing.acquire(**options)
    assert not any(reader.acquire(blocking=False) for reader in readers)
    writing.release()
    for reader in readers:
        with reader:
            if options:
                assert not writing.acquire(**options)
    close(readers)


def test_writer_of_the_same_client_evicts_the_cached_reader_and_blocks_new_ones(client: Client, other: Client) -> None:
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


def test_status_reads_report_active_readers_and_no_cached_ones(client: Client, make_client: MakeClient) -> None:
    theirs = SharedLock(name="k", client=client)
    for look in ("locked", "holders", "revoke"):
        readers = cached_readers(make_client, 2)
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


def test_writer_of_another_client_acquires_despite_busy_cached_readers(client: Client, make_client: MakeClient) -> None:
    readers, over = [reader for reader in cached_readers(make_client, 2) for _ in range(2)], threading.Event()
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


def test_cached_reader_whose_znode_was_deleted_is_acquired_again_without_a_loss_callback(
    client: Client, observer: Observer
) -> None:
    losses: list[Any] = []
    reader = SharedLock(name="k", linger=LONG, on_lost=losses.append).reader
    with reader:
        before = reader.fencing_token
    eventually(lambda: is_watched(reader))
    observer.kazoo.delete(observer.ephemerals(reader.path)[0])
    eventually(lambda: reader._core.cached is None or reader._core.cached.grant.loss.fired)
    with reader:
        assert reader.fencing_token > before
    assert losses == []


def test_cached_reader_is_not_reused_after_its_lease_has_expired(client: Client) -> None:
    reader = cached_reader(client)
    with reader:
        before = reader.fencing_token
    client._runtime.lease.proven_at = float("-inf")  # type: ignore[union-attr]
    with reader:
        assert reader.fencing_token > before


def test_forked_child_does_not_inherit_a_cached_reader(client: Client) -> None:
    reader = cached_reader(client)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"cached" if reader.client._runtime is not None and reader._core.cached else b"not cached")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"not cached"
    os.close(read)
    os.close(write)
    with Counted(client) as cost, reader:
        assert reader.held
    assert cost.requests == 0


def test_closing_a_client_releases_its_cached_reader(make_client: MakeClient, observer: Observer) -> None:
    reader = cached_reader(make_client())
    reader.client.close()
    eventually(lambda: not observer.ephemerals(reader.path))


def test_transaction_of_an_earlier_read_acquire_is_refused_although_the_reader_is_cached(
    client: Client, namespace: str
) -> None:
    reader = cached_reader(client)
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
def test_fast_path_does_not_use_the_cache_while_the_session_is_replaced(client: Client, step: str, reads: int) -> None:
    lock = cached_lock(Lock, client)
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
