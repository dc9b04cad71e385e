"""Costs of operations: counted requests, round trips and events equal the documented ones.

The znodes of the objects and the receipt of the process already exist.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.request_counts import Cost, counted, sent, settle, spent
from helpers.sample_protocols import ask
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running, is_quiet, waiting_calls

from distsync import JoinableQueue
from distsync._client.client import Client
from distsync._protocols.steps import Sync
from distsync.queue import LifoQueue, PriorityQueue, Queue
from distsync.threading import Barrier, Condition, Event, Lock, RLock, Semaphore

MakeClient = Callable[..., Client]

pytestmark = pytest.mark.usefixtures("no_guards", "nothing_kept")


# ---- uncontended


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_acquire_and_release_of_a_free_lock_cost_3_requests_in_2_round_trips(
    client: Client, kind: Callable[..., Any]
) -> None:
    lock = kind(name="a")
    with lock:
        pass
    with counted(client) as acquire:
        lock.acquire()
    with counted(client) as release:
        lock.release()
    assert acquire == Cost(2, 1)
    assert release == Cost(1, 1)


def test_reentrant_acquire_of_an_rlock_costs_nothing(client: Client) -> None:
    lock = RLock(name="a")
    with lock, counted(client) as cost, lock, lock:
        pass
    assert cost == Cost()


def test_non_blocking_acquire_and_locked_of_a_lock_held_elsewhere_cost_2_requests(
    client: Client, other: Client
) -> None:
    with Lock(name="a", client=other):
        lock = Lock(name="a")
        lock.locked()
        with counted(client) as tried:
            assert not lock.acquire(blocking=False)
        with counted(client) as looked:
            assert lock.locked()
    assert (tried, looked) == (Cost(2, 2), Cost(2, 2))


def test_reading_the_state_of_a_held_lock_costs_nothing(client: Client) -> None:
    with Lock(name="a") as _, counted(client) as cost:
        lock = Lock(name="a")
        assert (lock.held, lock.locked()) == (True, True)
        assert lock.fencing_token > 0
    assert cost == Cost()


def test_fenced_transaction_costs_1_request(client: Client, namespace: str) -> None:
    lock = Lock(name="a")
    with lock:
        with lock.transaction() as first:
            first.create(f"{namespace}/guarded", b"0")
        with counted(client) as cost, lock.transaction() as transaction:
            transaction.set_data(f"{namespace}/guarded", b"1")
    assert cost == Cost(1, 1)


def test_acquire_and_release_of_a_semaphore_cost_4_requests_in_2_round_trips(client: Client) -> None:
    slots = Semaphore(2, name="s")
    with slots:
        pass
    with counted(client) as acquire:
        slots.acquire()
    with counted(client) as release:
        slots.release()
    assert acquire == Cost(3, 1)
    assert release == Cost(1, 1)


def test_set_and_wait_of_a_set_event_cost_1_request_each_and_clear_costs_2(client: Client) -> None:
    event = Event(name="e")
    event.set()
    for operation, requests in [(event.wait, 1), (event.set, 1), (event.clear, 2)]:
        with counted(client) as cost:
            operation()
        assert cost.requests == cost.round_trips == requests, operation


def test_repeated_is_set_costs_nothing_until_the_event_changes(client: Client, other: Client) -> None:
    event, far = Event(name="e"), Event(name="e", client=other)
    for change, flag in [(event.set, True), (event.clear, False), (far.set, True), (far.clear, False)]:
        change()
        eventually(lambda: event.is_set() is flag)  # noqa: B023
        with counted(client) as again:
            assert {event.is_set() for _ in range(1000)} == {flag}
        assert again == Cost()


def test_first_is_set_costs_1_request_or_2_if_the_event_was_never_set(client: Client) -> None:
    assert spent(client, Event(name="fresh").is_set) == (2, 2)
    Event(name="e").set()
    assert spent(client, Event(name="e").is_set) == (1, 1)


def test_queue_put_costs_1_request(client: Client) -> None:
    queue: Queue[int] = Queue(name="q")
    queue.put(0)
    with counted(client) as cost:
        for item in range(10):
            queue.put(item)
    assert cost == Cost(10, 10)


def test_queue_get_costs_2_requests_in_1_round_trip_while_items_are_available(client: Client) -> None:
    queue: Queue[int] = Queue(name="q")
    for item in range(13):
        queue.put(item)
    queue.get()
    with counted(client) as cost:
        assert [queue.get() for _ in range(10)] == [*range(1, 11)]
    assert cost == Cost(20, 10)


def test_bounded_put_costs_3_requests_in_1_round_trip_while_there_is_room(client: Client) -> None:
    queue: Queue[int] = Queue(10, name="q")
    queue.put(0)
    with counted(client) as cost:
        queue.put(1)
    assert cost == Cost(3, 1)


def test_task_done_costs_1_request(client: Client) -> None:
    queue: Queue[int] = Queue(name="q")
    queue.put(0)
    queue.get()
    with counted(client) as cost:
        queue.task_done()
    assert cost == Cost(1, 1)


@pytest.mark.parametrize("kind", [LifoQueue, PriorityQueue])
def test_ordered_queue_costs_1_request_to_put_and_3_to_get(client: Client, kind: Callable[..., Any]) -> None:
    queue = kind(name="q")
    queue.put(0)
    with counted(client) as put:
        queue.put(1)
    with counted(client) as get:
        queue.get()
    assert put == Cost(1, 1)
    assert get.requests == 3


def test_reading_the_state_of_queues_semaphores_and_barriers_costs_what_is_documented(client: Client) -> None:
    queue: Queue[int] = Queue(name="q")
    bounded: Queue[int] = Queue(5, name="b")
    slots, start = Semaphore(2, name="s"), Barrier(1, name="g")
    for each in (queue, bounded):
        each.put(1)
    for _ in range(2):  # the first one creates the znode
        start.wait()
    slots.acquire()
    slots.release()
    looks = [queue.qsize, queue.empty, bounded.full, slots.get_value, lambda: start.n_waiting, lambda: start.broken]
    assert [spent(client, look) for look in looks] == [(3, 1)] * 3 + [(2, 1)] * 3
    assert spent(client, queue.full) == (0, 0)
    assert spent(client, lambda: queue.unfinished_tasks) == (3, 1)
    assert spent(client, lambda: queue.is_shutdown) == (1, 1)
    slots.release()
    assert spent(client, slots.release) == (3, 2)  # permits that were never acquired


def test_holders_and_waiters_cost_1_request_plus_1_per_holder_and_1_for_a_semaphore(
    client: Client, other: Client
) -> None:
    slots = Semaphore(3, name="s")
    with slots, Semaphore(3, name="s", client=other):
        assert spent(client, slots.holders) == (4, 3)
        assert spent(client, slots.waiters) == (4, 3)
    with Lock(name="a"):
        assert spent(client, Lock(name="a").holders) == (2, 2)


def test_abort_of_a_barrier_costs_2_requests_and_reset_6_with_those_in_the_background(client: Client) -> None:
    start = Barrier(1, name="g")
    start.wait()
    assert spent(client, start.abort) == (2, 2)
    before = sum(client.statistics().requests.values())
    assert spent(client, start.reset)[1] >= 2
    eventually(lambda: sum(client.statistics().requests.values()) == before + 6)


def test_queue_shutdown_costs_1_request_or_if_immediate_4_and_2_per_item(client: Client) -> None:
    for items, immediate, most in ((0, False, 1), (4, False, 1), (4, True, 12), (8, True, 20)):
        queue: Queue[int] = Queue(name=f"q{items}{immediate}")
        queue.put(0)
        queue.get()
        for each in range(items):
            queue.put(each)
        requests, _ = spent(client, lambda: queue.shutdown(immediate))  # noqa: B023
        assert requests == most


# ---- contended


def test_acquire_and_release_of_a_contended_lock_cost_5_requests(client: Client, other: Client) -> None:
    """Create and list in one round trip, watch the predecessor, list again after the event; then the
    delete.
    """
    ours, theirs = Lock(name="a"), Lock(name="a", client=other)
    with theirs:
        pass
    ours.acquire()
    with counted(other) as acquire:
        waiting = Running(theirs.acquire)
        eventually(lambda: waiting_calls(other) == 1)
        ours.release()
        assert waiting.result()
    with counted(other) as release:
        theirs.release()
    assert acquire == Cost(4, 3, 1)
    assert release == Cost(1, 1)


def test_handover_of_a_lock_between_local_threads_costs_nothing(client: Client) -> None:
    lock, turns = Lock(name="a"), 8
    lock.acquire()
    running = [Running(lock.acquire) for _ in range(turns)]
    eventually(lambda: len(lock._core.local_waiters) == turns)
    with counted(client) as cost:
        for left in reversed(range(turns)):
            lock.release()
            eventually(lambda: sum(one.is_alive() for one in running) == left)  # noqa: B023
    assert cost == Cost()
    lock.release()


def test_release_of_a_lock_wakes_one_of_20_waiters(client: Client, make_client: MakeClient) -> None:
    lock = Lock(name="a")
    lock.acquire()
    others = [make_client() for _ in range(20)]
    waiting = [Running(Lock(name="a", client=one).acquire) for one in others]
    eventually(lambda: all(map(waiting_calls, others)))
    for _ in range(len(others)):
        asked = sum(sent(one, "Sync") for one in others)
        with counted(*others) as cost:
            lock.release()
            eventually(lambda: any(not one.is_alive() for one in waiting))
            settle(others)
        proofs = sum(sent(one, "Sync") for one in others) - asked  # of waiters that waited for longer than a lease
        assert (cost.events, cost.requests - proofs) == (1, 1 + len(others))
        ended = next(place for place, one in enumerate(waiting) if not one.is_alive())
        assert waiting.pop(ended).result()
        lock = Lock(name="a", client=others.pop(ended))
    lock.release()


def test_release_of_a_permit_wakes_one_waiter_whose_admission_mark_wakes_the_next(
    client: Client, make_client: MakeClient
) -> None:
    slots = Semaphore(2, name="s")
    slots.acquire()
    slots.acquire()
    others = [make_client() for _ in range(5)]
    waiting = []
    for count, one in enumerate(others, 3):
        waiting.append(Running(Semaphore(2, name="s", client=one).acquire))
        eventually(lambda: len(slots.holders()) + len(slots.waiters()) == count)  # noqa: B023
    eventually(lambda: all(sent(one, "GetData") >= 2 for one in others))
    settle(others)
    before = [one.statistics().events for one in others]
    with counted(*others) as cost:
        slots.release()
        assert waiting[0].result()
        eventually(lambda: others[1].statistics().events > before[1])
        settle(others)
    assert cost.events == 2
    assert [one.is_alive() for one in waiting] == [False, True, True, True, True]
    for each, one in enumerate(waiting):
        assert one.result()
        Semaphore(2, name="s", client=others[each]).release()
    slots.release()


def test_barrier_wait_costs_3_requests_in_1_round_trip_and_opening_it_1_more(client: Client, other: Client) -> None:
    ours, theirs = Barrier(2, name="b"), Barrier(2, name="b", client=other)
    for early, late in ((ours, theirs), (theirs, ours)):  # creates the receipt of the opener, for both clients
        first = Running(early.wait)
        eventually(lambda: ours.n_waiting == 1)
        late.wait()
        first.result()
    begun = sent(client, "Multi")
    with counted(client) as before:
        waiting = Running(ours.wait)
        eventually(lambda: theirs.n_waiting == 1)
        eventually(lambda: sent(client, "Multi") == begun + 1)
    with counted(other) as opening:
        theirs.wait()
    waiting.result()
    assert before == Cost(3, 1)
    assert (opening.requests, opening.round_trips) == (4, 2)


def test_wait_for_an_event_costs_1_request_and_1_after_the_change(client: Client, other: Client) -> None:
    ours, theirs = Event(name="e"), Event(name="e", client=other)
    ours.set()
    ours.clear()
    with counted(client) as cost:
        waiting = Running(ours.wait)
        eventually(lambda: waiting_calls(client) == 1)
        theirs.set()
        assert waiting.result()
    assert cost == Cost(2, 2, 1)


def test_notify_costs_3_requests_and_wakes_one_waiter(
    client: Client, make_client: MakeClient, observer: Observer
) -> None:
    ours = Condition(name="c")
    others = [make_client() for _ in range(3)]
    waiting = [Running(wait_in, Condition(name="c", client=one)) for one in others]
    for left in (3, 2, 1):  # the first notify creates the receipt
        eventually(lambda: len(observer.tree(f"{ours.path}/waiters")) == left)  # noqa: B023
        ours.acquire()
        eventually(lambda: sum(map(waiting_calls, others)) == left)  # noqa: B023
        before = events_of(others)
        with counted(client) as notifying, counted(*others) as woken:
            ours.notify()
            eventually(lambda: events_of(others) > before)  # noqa: B023
            settle(others)
        ours.release()
        assert woken.events == 1
    assert [one.result() for one in waiting] == [True] * 3
    assert notifying.requests == 3


def events_of(clients: list[Client]) -> int:
    return sum(one.statistics().events for one in clients)


def wait_in(condition: Condition) -> bool:
    with condition:
        return condition.wait()


# ---- heartbeats, watches and batches


def test_held_lock_costs_1_sync_per_third_of_the_session_timeout_and_an_idle_client_none(
    make_client: MakeClient,
) -> None:
    """Measured by the holder's own lease clock: at least a third of the session timeout passes between
    two proofs.
    """
    idle, holder = make_client(session_timeout=2.0), make_client(session_timeout=2.0)
    with Lock(name="a", client=idle):
        pass
    idle.run(ask(Sync()))
    lock = Lock(name="b", client=holder)
    with lock, counted(holder, idle) as cost:
        for beat in range(1, 4):
            proven_at = holder._runtime.lease.proven_at  # type: ignore[union-attr]
            eventually(lambda: holder.statistics().heartbeats == beat, limit=60 * UNIT)  # noqa: B023
            eventually(lambda: holder._runtime.lease.proven_at > proven_at)  # type: ignore[union-attr]  # noqa: B023
            since = holder._runtime.lease.proven_at - proven_at  # type: ignore[union-attr]
            assert since >= 2.0 / 3
        assert lock.held
    assert cost == Cost()
    assert (holder.statistics().heartbeats, idle.statistics().heartbeats) == (3, 0)


def test_waiting_threads_of_one_process_share_one_watch(client: Client, other: Client) -> None:
    with Lock(name="a", client=other):
        lock, barrier = Lock(name="a"), threading.Barrier(11)

        def wait() -> bool:
            barrier.wait()
            return lock.acquire(timeout=40 * UNIT)

        waiting = [Running(wait) for _ in range(10)]
        barrier.wait()
        eventually(lambda: len(lock.waiters()) == 1)
        eventually(lambda: len(client._runtime.zk_session.watches) == 1)  # type: ignore[union-attr]
        eventually(lambda: len(lock.waiters()) == 1)
        assert len(client._runtime.zk_session.watches) == 1  # type: ignore[union-attr]
        assert not any(one.result() for one in waiting)
        assert len(client._runtime.zk_session.watches) == 0  # type: ignore[union-attr]


def test_put_many_costs_1_request_per_100_items_and_get_many_at_most_4(client: Client) -> None:
    queue = Queue[int](name="q")
    queue.put(-1)
    assert queue.get_many(5) == [-1]
    queue.put_many(range(100))  # the first hundred create their counter
    assert len(queue.get_many(100)) == 100
    with counted(client) as cost:
        queue.put_many(range(300))
    assert cost == Cost(3, 3)
    with counted(client) as cost:
        assert queue.get_many(1000) == list(range(100))
    assert cost.requests <= 4
    assert cost.round_trips <= 4
    with counted(client) as cost:
        assert queue.get_many(2) == [100, 101]
    assert cost == Cost(2, 2)


def test_put_many_of_a_joinable_queue_costs_1_request_per_100_items_although_they_fill_segments(client: Client) -> None:
    queue = JoinableQueue[int](name="q")
    queue.put(-1)
    queue.put_many(range(100))  # the first hundred create their counter
    with counted(client) as cost:
        queue.put_many(range(500))
    assert cost == Cost(5, 5)
    assert queue.qsize() == 601


def test_get_many_reads_each_large_item_with_its_own_request(client: Client) -> None:
    queue = Queue[bytes](name="q")
    large = bytes(200_000)
    queue.put_many([large] * 30)
    for _ in range(2):
        with counted(client) as cost:
            assert queue.get_many(10) == [large] * 10
        assert cost.requests >= 11


def test_joinable_queue_costs_1_request_to_put_6_to_get_and_1_to_acknowledge(client: Client) -> None:
    queue = JoinableQueue[int](name="q")
    queue.put(0)
    queue.put(0, delay=1e-3)
    time.sleep(UNIT)  # as below
    for _ in range(2):
        queue.get()
        queue.task_done()
    eventually(lambda: is_quiet(client))
    with counted(client) as put:
        queue.put(1, key="k")
    other = JoinableQueue[int](name="other")
    other.put(0)
    with counted(client) as delayed:
        other.put(1, delay=1000)
    bounded = JoinableQueue[int](2, name="bounded")
    bounded.put(0)
    with counted(client) as within:
        bounded.put(1)
    with counted(client) as get:
        queue.get()
    with counted(client) as nack:
        queue.nack()
    queue.get()
    with counted(client) as later:
        queue.nack(delay=1e-3)
    time.sleep(UNIT)  # it is due; its waiter leaves the queue in the background
    queue.get()
    with counted(client) as done:
        queue.task_done()
    assert (put, get, done) == (Cost(1, 1), Cost(6, 3), Cost(1, 1))
    assert (nack, later, delayed, within) == (Cost(1, 1), Cost(2, 2), Cost(2, 2), Cost(4, 1))
    eventually(lambda: is_quiet(client))
    with counted(client) as cost:
        queue.put_many(range(200))
    # The counter of hundreds is created. Two segments fill up and get a successor each. Items sent
    # to a segment that has just filled up are refused, which costs a read and a second attempt,
    # depending on timing.
    assert cost.requests <= 2 + 2 * 2 + 3 + 3
    assert queue.get() == 0
    eventually(lambda: is_quiet(client))
    with counted(client) as cost:
        assert queue.get_many(50) == [*range(1, 51)]
    assert cost == Cost(55, 3)
    for _ in range(51):
        queue.task_done()
