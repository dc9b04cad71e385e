"""What shared locks, revocation and kazoo's semaphore cost: counted, equal to what their docstrings say."""

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
def test_each_side_costs_3_requests_in_2_round_trips(client: Client, side: str) -> None:
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
        assert all(results([Running(in_turn, shared.reader) for _ in range(10)]))
    assert cost == Cost()


def in_turn(lock: Any) -> bool:
    with lock:
        return bool(lock.held)


def test_writer_that_reads_too_costs_nothing_more_and_1_request_to_become_a_reader(client: Client) -> None:
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
def test_side_tried_in_vain_costs_2_requests(client: Client, other: Client, side: str) -> None:
    with SharedLock(name="t", client=other).writer:
        lock = getattr(SharedLock(name="t"), side)
        lock.locked()
        with counted(client) as cost:
            assert not lock.acquire(blocking=False)
        assert cost == Cost(2, 2)


def test_reading_both_sides_costs_nothing_until_a_contender_comes_or_leaves(client: Client, other: Client) -> None:
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


def test_what_this_client_does_shows_in_its_next_look(client: Client, other: Client) -> None:
    ours, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
    assert not ours.writer.locked()
    for _ in range(5):
        ours.writer.acquire()
        assert Running(ours.writer.locked).result()
        ours.writer.release()
        assert not ours.writer.locked()
    with theirs.reader:
        eventually(ours.reader.locked)


def test_what_was_kept_is_not_relied_upon_after_a_lost_connection(make_client: MakeClient, other: Client) -> None:
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


# ---- no herd


async def contend(path: str, mark: str, rule: wait_queue.Rule, held: list[wait_queue.QueueEntry]) -> None:
    """One contender more, that keeps what it gets."""
    place = await wait_queue.acquire(path, mark, b"{}", rule)
    if place is not None:
        held.append(place)


def crowd_of(client: Client, path: str, mark: str, rule: wait_queue.Rule) -> list[wait_queue.QueueEntry]:
    """Enqueue this many contenders, which wait; those that acquire are appended to the list."""
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
def test_with_100_waiters_one_release_sends_one_event(
    kind: Callable[..., Any], mark: str, client: Client, other: Client
) -> None:
    made = kind(name="t")
    lock = made.writer if kind is SharedLock else made
    lock.acquire()
    held = crowd_of(other, lock.path, mark, wait_queue.exclusive)
    for turn in range(1, 6):
        with counted(other) as cost:
            if turn == 1:
                lock.release()
            else:
                client.run(remove(held[-1].path))
            eventually(lambda: len(held) == turn)  # noqa: B023
            settle([other])
        assert (cost.events, cost.requests) == (1, 2)  # it looks once, and settle does
    other.close()


def asleep(other: Client, calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """These calls, each as if of a process of its own, wait in one line; what they return is appended to the list."""
    returned: list[Any] = []

    async def keep(call: Coroutine[Any, Any, Any]) -> None:
        returned.append(await call)

    settle([other])
    for call in calls:
        other.background(keep(call))
    eventually(lambda: len(other._core.keeper._tasks) >= len(calls))  # type: ignore[union-attr]
    eventually(lambda: is_at_rest(other))
    settle([other])
    return returned


@pytest.mark.parametrize(("kind", "most"), [(Semaphore, 2), (Queue, 3), (JoinableQueue, 6)])
def test_with_100_waiters_what_comes_free_wakes_one_and_the_next_moves_up(
    kind: Callable[..., Any], most: int, client: Client, other: Client
) -> None:
    """Some events for the one who gets it (a queue's first one watches all that may bring an item), and one for the
    next one, who is the first now; none to all the others."""
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
    returned = asleep(other, calls)
    with counted(other) as cost:
        give()
        eventually(lambda: len(returned) == 1)
        eventually(lambda: is_at_rest(other))
        settle([other])
    assert 1 <= cost.events <= most
    other.close()


async def remove(path: str) -> None:
    await Delete(path)


def test_with_100_waiting_readers_one_release_lets_all_in_and_no_writer_wakes(
    client: Client, make_client: MakeClient
) -> None:
    shared = SharedLock(name="t")
    readers, writer = make_client(), make_client()
    shared.writer.acquire()
    held = crowd_of(readers, shared.path, wait_queue.READ, wait_queue.shared)
    waiting = Running(in_turn, SharedLock(name="t", client=writer).writer)
    eventually(lambda: waiting_calls(writer) == 1)
    with counted(readers) as cost, counted(writer) as behind:
        shared.writer.release()
        eventually(lambda: len(held) == WAITERS)
        settle([readers, writer])
    assert (cost.events, cost.requests) == (1, WAITERS + 1)  # all watched one znode, and each looks once
    assert (behind.events, behind.requests) == (0, 1)
    readers.close()
    assert waiting.result()


def test_new_reader_behind_a_waiting_writer_wakes_nobody(client: Client, make_client: MakeClient) -> None:
    shared, theirs = SharedLock(name="t"), make_client()
    with shared.reader:
        writing = Running(in_turn, SharedLock(name="t", client=theirs).writer)
        eventually(lambda: waiting_calls(theirs) == 1)
        with counted(theirs) as cost:
            late = make_client()
            assert not SharedLock(name="t", client=late).reader.acquire(blocking=False)
            settle([theirs])
        assert cost == Cost(1, 1)
    assert writing.result()


# ---- revocation, several, kazoo's names


def test_watching_for_revocation_costs_1_request_and_not_watching_none(client: Client, other: Client) -> None:
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


def test_revoking_costs_1_request_and_2_for_each_holder(client: Client, other: Client, make_client: MakeClient) -> None:
    shared, theirs = SharedLock(name="t"), SharedLock(name="t", client=other)
    third = SharedLock(name="t", client=make_client())
    with shared.reader, theirs.reader:
        third.reader.locked()
        with counted(third.client) as cost:
            third.revoke()
        assert cost == Cost(1 + 2 * 2, 3)


def test_acquiring_all_costs_what_each_does(client: Client) -> None:
    locks = [Lock(name="a"), Lock(name="b"), SharedLock(name="c").reader]
    with acquire_all(*locks):
        pass
    with counted(client) as acquire:
        held = acquire_all(*locks)
    with counted(client) as release:
        held.release()
    assert (acquire, release) == (Cost(6, 3), Cost(3, 3))


@pytest.mark.parametrize(("layout", "requests"), [("kazoo", 9), ("curator", 8)])
def test_semaphore_in_another_layout_costs_what_theirs_does(layout: str, requests: int, client: Client) -> None:
    """As much as kazoo's own; in our layout it is 4."""
    slots = Semaphore(2, name="s", layout=layout)
    with slots:
        pass
    with counted(client) as cost, slots:
        pass
    assert cost.requests == requests
