"""Costs of shared locks, revocation and foreign semaphores: counted, equal to the documented ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from helpers.request_counts import Cost, counted, is_at_rest, sent, settle
from helpers.timing import eventually
from helpers.worker_processes import Running, results, waiting_calls

from distsync import Election, JoinableQueue, Lock, Semaphore, SharedLock, acquire_all
from distsync._client.client import Client
from distsync._protocols import wait_queue
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import Delete
from distsync.queue import Queue
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

pytestmark = pytest.mark.usefixtures("no_guards", "nothing_kept")
WAITERS = 100


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_each_side_of_a_shared_lock_costs_3_requests_in_2_round_trips(client: Client, side: str) -> None:
    lock = getattr(SharedLock(name="t"), side)
    with lock:
        pass
    with counted(client) as acquire:
        lock.acquire()
    with counted(client) as again, lock, lock:
        pass
    with counted(client) as release:
        lock.release()
    assert (acquire, again, release) == (Cost(2, 1), Cost(), Cost(1, 1))


def test_thread_that_joins_a_reader_costs_nothing(client: Client) -> None:
    shared = SharedLock(name="t")
    with shared.reader, counted(client) as cost:
        assert all(results([Running(acquire_and_release, shared.reader) for _ in range(10)]))
    assert cost == Cost()


def acquire_and_release(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


def test_read_acquire_of_a_writer_costs_nothing_and_its_downgrade_1_request(client: Client) -> None:
    shared = SharedLock(name="t")
    shared.writer.acquire()
    with counted(client) as reading, shared.reader:
        pass
    shared.reader.acquire()
    with counted(client) as downgrade:
        shared.writer.release()
    with counted(client) as release:
        shared.reader.release()
    assert (reading, downgrade, release) == (Cost(), Cost(1, 1), Cost(1, 1))


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_failed_non_blocking_acquire_costs_2_requests(client: Client, other: Client, side: str) -> None:
    with SharedLock(name="t", client=other).writer:
        lock = getattr(SharedLock(name="t"), side)
        lock.locked()
        with counted(client) as cost:
            assert not lock.acquire(blocking=False)
        assert cost == Cost(2, 2)


def test_status_reads_cost_nothing_until_a_contender_is_added_or_removed(client: Client, other: Client) -> None:
    ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
    with ours.reader, counted(client) as cost:
        assert ours.reader.locked()
        assert ours.reader.held
        assert ours.reader.fencing_token > 0
    assert cost == Cost()
    for side in (theirs.reader, theirs.writer):
        with side:
            held = (side is theirs.reader, side is theirs.writer)
            eventually(lambda: (ours.reader.locked(), ours.writer.locked()) == held)  # noqa: B023
            with counted(client) as again:
                for _ in range(100):
                    assert (ours.reader.locked(), ours.writer.locked()) == held
            assert again == Cost()


def test_own_acquire_and_release_are_visible_in_the_next_status_read(client: Client, other: Client) -> None:
    ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
    assert not ours.writer.locked()
    for _ in range(5):
        ours.writer.acquire()
        assert Running(ours.writer.locked).result()
        ours.writer.release()
        assert not ours.writer.locked()
    with theirs.reader:
        eventually(ours.reader.locked)


def test_cached_state_is_not_used_after_a_connection_loss(make_client: MakeClient, other: Client) -> None:
    with Proxy(other.hosts) as proxy:
        away = make_client(hosts=proxy.hosts)
        ours, theirs = SharedLock(name="t", client=away), SharedLock(name="t", client=other)
        assert not ours.writer.locked()
        proxy.refuse()
        eventually(lambda: away.state == "suspended")
        with theirs.writer:
            proxy.heal()
            assert ours.writer.locked()
        away.close()


# ---- no herd effect


async def contend(path: str, mark: str, rule: wait_queue.Rule, held: list[wait_queue.QueueEntry]) -> None:
    """Add a contender, and record its entry once it is admitted."""
    place = await wait_queue.acquire(path, mark, b"{}", rule)
    if place is not None:
        held.append(place)


def start_waiters(client: Client, path: str, mark: str, rule: wait_queue.Rule) -> list[wait_queue.QueueEntry]:
    """Start ``WAITERS`` contenders, and wait until they are blocked.

    Return a list to which the admitted ones are appended.
    """
    held: list[wait_queue.QueueEntry] = []
    settle([client])
    before = sent(client, "GetData")
    for _ in range(WAITERS):
        client.background(contend(path, mark, rule, held))
    eventually(lambda: sent(client, "GetData") == before + WAITERS)
    settle([client])
    return held


@pytest.mark.parametrize(
    ("kind", "mark"),
    [(SharedLock, wait_queue.WRITE), (Lock, wait_queue.LOCK), (Election, wait_queue.LOCK)],
    ids=["writers", "locks", "candidates"],
)
def test_release_with_100_waiters_causes_one_event(
    kind: Callable[..., Any], mark: str, client: Client, other: Client
) -> None:
    made = kind(name="t")
    lock = made.writer if kind is SharedLock else made
    lock.acquire()
    held = start_waiters(other, lock.path, mark, wait_queue.any_contender)
    for turn in range(1, 6):
        with counted(other) as cost:
            if turn == 1:
                lock.release()
            else:
                client.run(remove(held[-1].path))
            eventually(lambda: len(held) == turn)  # noqa: B023
            settle([other])
        assert (cost.events, cost.requests) == (1, 2)  # one request of the waiter, one of settle
    other.close()


def start_calls(other: Client, calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Start calls that wait in one queue, each as if in a process of its own.

    Return a list to which their results are appended.
    """
    returned: list[Any] = []

    async def record(call: Coroutine[Any, Any, Any]) -> None:
        returned.append(await call)

    settle([other])
    for call in calls:
        other.background(record(call))
    eventually(lambda: len(other._runtime.background_thread._runs) >= len(calls))  # type: ignore[union-attr]
    eventually(lambda: is_at_rest(other))
    settle([other])
    return returned


@pytest.mark.parametrize(("kind", "most"), [(Semaphore, 2), (Queue, 3), (JoinableQueue, 6)])
def test_free_permit_or_item_with_100_waiters_wakes_only_the_first_two(
    kind: Callable[..., Any], most: int, client: Client, other: Client
) -> None:
    """The first waiter receives some events, as the first getter of a queue watches all that may bring
    an item. The next one, which is now the first, receives one, and the others none.
    """
    ours = kind(name="t")
    receipts = kind(name="t", client=other)._receipts
    if kind is Semaphore:
        ours.acquire()
        calls = [SemaphoreCore(ours.path, 1, receipts).acquire(b"{}") for _ in range(WAITERS)]
        give = ours.release
    else:
        ours.put(0)
        ours.get()
        ours.task_done()
        cores = [type(ours._core)(ours.path, receipts) for _ in range(WAITERS)]
        calls = [core.claim(b"{}") if kind is JoinableQueue else core.get(b"{}") for core in cores]
        give = partial(ours.put, 1)
    returned = start_calls(other, calls)
    with counted(other) as cost:
        give()
        eventually(lambda: len(returned) == 1)
        eventually(lambda: is_at_rest(other))
        settle([other])
    assert 1 <= cost.events <= most
    other.close()


async def remove(path: str) -> None:
    await Delete(path)


def test_release_with_100_waiting_readers_admits_all_and_wakes_no_writer(
    client: Client, make_client: MakeClient
) -> None:
    shared = SharedLock(name="t")
    readers, writer = make_client(), make_client()
    shared.writer.acquire()
    held = start_waiters(readers, shared.path, wait_queue.READ, wait_queue.is_writer)
    waiting = Running(acquire_and_release, SharedLock(name="t", client=writer).writer)
    eventually(lambda: waiting_calls(writer) == 1)
    with counted(readers) as cost, counted(writer) as behind:
        shared.writer.release()
        eventually(lambda: len(held) == WAITERS)
        settle([readers, writer])
    assert (cost.events, cost.requests) == (1, WAITERS + 1)  # all watched one znode, and each lists once
    assert (behind.events, behind.requests) == (0, 1)
    readers.close()
    assert waiting.result()


def test_new_reader_behind_a_waiting_writer_causes_no_event(client: Client, make_client: MakeClient) -> None:
    shared, theirs = SharedLock(name="t"), make_client()
    with shared.reader:
        writing = Running(acquire_and_release, SharedLock(name="t", client=theirs).writer)
        eventually(lambda: waiting_calls(theirs) == 1)
        with counted(theirs) as cost:
            late = make_client()
            assert not SharedLock(name="t", client=late).reader.acquire(blocking=False)
            settle([theirs])
        assert cost == Cost(1, 1)
    assert writing.result()


# ---- revocation, acquire_all, foreign layouts


def test_watching_for_revocation_costs_1_request_and_nothing_if_unused(client: Client, other: Client) -> None:
    plain, heeding = Lock(name="a"), Lock(name="b", on_revoke=lambda lock: None)
    for lock in (plain, heeding):
        with lock:
            pass
    settle([client])
    before = sent(client, "GetData")
    with counted(client) as cost, plain:
        pass
    assert cost == Cost(3, 2)
    with heeding:
        eventually(lambda: sent(client, "GetData") == before + 1)
        settle([client])  # the watch is armed
        Lock(name="b", client=other).revoke()
        eventually(lambda: sent(client, "GetData") == before + 2)
        eventually(lambda: heeding.revoked.is_set())
        settle([client])
        assert sent(client, "GetData") == before + 2


def test_revoke_costs_1_request_and_2_per_holder(client: Client, other: Client, make_client: MakeClient) -> None:
    shared, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
    third = SharedLock(name="t", client=make_client())
    with shared.reader, theirs.reader:
        third.reader.locked()
        with counted(third.client) as cost:
            third.revoke()
        assert cost == Cost(1 + 2 * 2, 3)


def test_acquire_all_costs_as_much_as_its_locks(client: Client) -> None:
    locks = [Lock(name="a"), Lock(name="b"), SharedLock(name="c").reader]
    with acquire_all(*locks):
        pass
    with counted(client) as acquire:
        held = acquire_all(*locks)
    with counted(client) as release:
        held.release()
    assert (acquire, release) == (Cost(6, 3), Cost(3, 3))


@pytest.mark.parametrize(("layout", "requests"), [("kazoo", 9), ("curator", 8)])
def test_semaphore_in_a_foreign_layout_costs_8_or_9_requests(layout: str, requests: int, client: Client) -> None:
    """In distsync's own layout it costs 4."""
    slots = Semaphore(2, name="s", layout=layout)
    with slots:
        pass
    with counted(client) as cost, slots:
        pass
    assert cost.requests == requests
