"""Costs of the recipes and of status reads: counted, equal to the documented ones.

The znodes of the objects and the receipts of the processes already exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from helpers.request_counts import Cost, counted, is_at_rest, settle, spent
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, is_quiet, results, waiting_calls

from distsync import (
    ClientClosedError,
    Config,
    CountDownLatch,
    Counter,
    DoubleBarrier,
    Election,
    Group,
    IdGenerator,
    JoinableQueue,
    Lock,
    LockLostError,
    OverReleaseError,
    Partitioner,
    Registry,
    SharedLock,
    Transaction,
    Value,
)
from distsync._client.client import Client
from distsync.queue import PriorityQueue, Queue, SimpleQueue
from distsync.threading import Barrier, BoundedSemaphore, Condition, Event

MakeClient = Callable[..., Client]

pytestmark = pytest.mark.usefixtures("no_guards", "nothing_kept")


def total(client: Client) -> int:
    return sum(client.statistics().requests.values())


@contextmanager
def costing(client: Client, requests: int) -> Iterator[None]:
    """Check that the block and its background work make exactly ``requests`` requests."""
    before = total(client)
    yield
    eventually(lambda: total(client) - before >= requests)
    settle([client])
    assert total(client) - before == requests + 1


# ---- locks


def test_costs_of_non_blocking_acquires_and_status_reads_of_locks(client: Client, other: Client) -> None:
    lock, shared, far = Lock(name="a"), SharedLock(name="s"), SharedLock(name="s", client=other)
    for each in (lock, shared.reader):
        with each:
            pass
    for each in (lock, shared.reader):
        assert spent(client, lambda: each.acquire(blocking=False)) == (3, 2)  # noqa: B023
        each.release()
    with Lock(name="a", client=other):
        assert spent(client, lock.locked) == (2, 2)
    with shared.reader, far.reader:
        for look in (shared.holders, shared.waiters, shared.reader.holders, shared.writer.waiters):
            assert spent(client, look) == (3, 2)


def lock_and_revoke(kind: str, client: Client, other: Client) -> tuple[Any, Callable[[float], int]]:
    """Return a lock of another client, and the function that revokes it."""
    if kind == "Lock":
        return Lock(name="a", client=other), Lock(name="a", client=client).revoke
    far = SharedLock(name="a", client=other)
    return getattr(far, kind), SharedLock(name="a", client=client).revoke


@pytest.mark.parametrize(("kind", "more"), [("Lock", 0), ("reader", 0), ("writer", 1)])
def test_revoke_with_grace_costs_2_more_requests_per_holder_that_releases_and_5_per_one_that_does_not(
    kind: str, more: int, client: Client, other: Client
) -> None:
    """A holder that releases is read, and looked for after its release. Of one that does not, the znode is
    read and marked, and looked for until the holder has deleted it. A writer's successor is looked for too.
    """
    far, revoke = lock_and_revoke(kind, client, other)
    far.acquire()
    asking = Running(spent, client, partial(revoke, PATIENCE))
    assert far.revoked.wait(PATIENCE)
    eventually(lambda: waiting_calls(client))
    far.release()
    released, _ = asking.result()
    far.acquire()
    revoked, _ = spent(client, partial(revoke, UNIT))
    with suppress(LockLostError):
        far.release()
    assert (released, revoked) == (1 + 2 + 2 + more, 1 + 2 + 5 + more)


def test_wait_for_a_condition_costs_6_requests_and_those_of_its_lock(client: Client, other: Client) -> None:
    """Its lock costs 2 to acquire, 1 to release in the wait, 4 to acquire again behind the notifier,
    and 1 to release.
    """
    ours, theirs = Condition(name="c"), Condition(name="c", client=other)

    def wait() -> Cost:
        with counted(client) as cost, ours:
            assert ours.wait()
        return cost

    for _ in range(2):  # the first one creates the znodes
        waiting = Running(wait)
        eventually(lambda: waiting_calls(client))
        with theirs:
            with counted(other) as notify:
                theirs.notify_all()
            observed = Lock(path=theirs._lock.path, client=other)
            eventually(lambda: len(observed.waiters()) == 1 and waiting_calls(client))  # noqa: B023
        cost = waiting.result()
    assert notify.requests == 3
    assert cost.requests == 6 + 2 + 1 + 4 + 1


def test_wait_at_a_barrier_costs_2_requests_after_it_opened(client: Client, other: Client) -> None:
    ours, theirs = Barrier(2, name="b"), Barrier(2, name="b", client=other)
    for _ in range(2):
        with counted(client) as first, counted(other) as last:
            waiting = Running(ours.wait)
            eventually(lambda: waiting_calls(client))
            theirs.wait()
            waiting.result()
    assert (first.requests, first.events) == (3 + 2, 1)
    assert last.requests == 3 + 1


def enter_and_leave(barrier: Any) -> None:
    if isinstance(barrier, Barrier):
        barrier.wait()
    else:
        with barrier:
            pass


def test_first_entry_of_a_client_costs_2_more_requests(client: Client, other: Client, make_client: MakeClient) -> None:
    """It first registers, and reads the number of parties."""
    for kind, enter, requests in ((Barrier, Barrier.wait, 3), (DoubleBarrier, DoubleBarrier.enter, 4)):
        meeting = [Running(enter_and_leave, kind(2, name="b", client=each)) for each in (client, other)]
        results(meeting)
        late = make_client()
        late.sync()
        with counted(late) as cost:
            waiting = Running(enter, kind(2, name="b", client=late))
            eventually(lambda: waiting_calls(late))  # noqa: B023
        assert cost.requests == requests + 2
        late.close()
        with pytest.raises(ClientClosedError):
            waiting.result()
    client.close()
    other.close()


def test_clear_of_an_event_that_is_not_set_costs_3_requests_in_2_round_trips(client: Client) -> None:
    event = Event(name="e")
    event.set()
    event.clear()
    assert spent(client, event.clear) == (3, 2)
    with counted(client) as cost:
        client.sync()
    assert cost == Cost(1, 1)


def test_status_reads_of_double_barriers_cost_2_requests(client: Client) -> None:
    party = DoubleBarrier(1, name="d")
    with party:
        pass
    assert spent(client, lambda: party.n_waiting) == spent(client, lambda: party.n_inside) == (2, 1)


# ---- queues


def test_costs_of_status_reads_of_a_simple_queue_and_of_a_bounded_put_many(client: Client, other: Client) -> None:
    simple: SimpleQueue[int] = SimpleQueue(name="s")
    simple.put(1)
    assert spent(client, simple.qsize) == spent(client, simple.empty) == (3, 1)
    bounded: Queue[int] = Queue(100, name="b")
    bounded.put(0)
    assert spent(client, partial(bounded.put_many, range(10))) == (30, 10)


def test_join_of_a_queue_costs_3_requests_and_3_for_each_item_done(client: Client, other: Client) -> None:
    for kind in (Queue, JoinableQueue):
        queue = kind(name=f"q{kind.__name__}")
        queue.put_many([1, 2, 3])
        for _ in range(3):
            queue.get()
        far = kind(name=queue.name, client=other)
        far.qsize()
        before = total(other)
        joining = Running(far.join)
        for done in range(3):
            eventually(lambda: total(other) == before + 3 + 3 * done and waiting_calls(other))  # noqa: B023
            queue.task_done()
        joining.result()
        assert total(other) == before + 3 + 3 * 3


def test_task_done_for_an_item_of_another_client_costs_4_requests(client: Client, other: Client) -> None:
    queue, far = Queue[int](name="q"), Queue[int](name="q", client=other)
    queue.put_many([1, 2])
    far.put(3)  # creates its receipt
    for _ in range(2):
        queue.get()
    assert spent(other, far.task_done) == (4, 2)


def test_priority_that_names_do_not_encode_costs_1_request_per_item_once(client: Client) -> None:
    queue = PriorityQueue[str](5, name="p")
    queue.put("b")
    with counted(client) as put:
        queue.put("a")
    queue.put("c")
    assert put == Cost(3, 1)
    assert [spent(client, queue.get)[0] for _ in range(2)] == [3 + 3, 3]


def test_get_of_items_that_cannot_be_compared_costs_as_much_as_of_others(client: Client) -> None:
    queue = PriorityQueue[Any](name="p")
    queue.put((1, {}))
    assert spent(client, partial(queue.put, (1, {"n": 2}))) == (1, 1)
    with counted(client) as refused, pytest.raises(TypeError):
        queue.get()
    assert (refused.requests, spent(client, queue.get)[0]) == (3 + 2, 3)


def test_costs_of_status_reads_and_ends_of_deliveries(client: Client) -> None:
    queue = JoinableQueue[int](name="q")
    queue.put_many([1, 2])
    queue.claim().nack(delay=1e-3)
    time.sleep(UNIT)  # it is due; its waiter leaves the queue in the background
    queue.claim().done()
    assert spent(client, queue.qsize) == (4, 1)
    assert spent(client, lambda: queue.dead_letters) == (0, 0)
    delivery = queue.claim()
    assert spent(client, lambda: (delivery.deliveries, delivery.key, delivery.held)) == (0, 0)
    assert spent(client, delivery.nack) == (1, 1)
    assert spent(client, partial(queue.claim().nack, delay=1e-3)) == (2, 2)
    time.sleep(UNIT)
    assert spent(client, queue.claim().done) == (1, 1)


def test_shutdown_of_a_joinable_queue_costs_1_request_or_if_immediate_11_and_2_per_item(client: Client) -> None:
    for items, immediate, requests in ((0, True, 7), (3, False, 1), (1, True, 13), (3, True, 17)):
        queue = JoinableQueue[int](name=f"q{items}{immediate}")
        queue.put(0)
        queue.claim().done()
        queue.put_many(range(items))
        assert spent(client, partial(queue.shutdown, immediate))[0] == requests


# ---- counters, values, latches and ids


def test_costs_of_reads_of_counters_and_of_a_contended_update(client: Client, other: Client) -> None:
    number, value = Counter(name="c"), Value(1, name="v")
    number.add(1)
    value.set(2)
    assert spent(client, partial(number.get, sync=True)) == (2, 1)
    assert spent(client, partial(value.read, sync=True)) == (2, 1)
    assert spent(client, value.read) == (1, 1)
    far = Value(1, name="v", client=other)
    far.set(3)

    def lose_race(old: int) -> int:
        if old == 3:
            far.set(4)
        return old + 1

    assert spent(client, partial(value.update, lose_race)) == (2 + 2, 4)
    assert value.get() == 5


def test_try_set_count_of_an_open_latch_costs_2_requests_and_a_read_of_its_count_1(client: Client) -> None:
    latch = CountDownLatch(1, name="l")
    latch.count_down()
    assert spent(client, partial(latch.try_set_count, 2)) == (2, 2)
    assert spent(client, lambda: latch.count) == (1, 1)


def test_call_without_effect_costs_1_more_round_trip_to_verify_the_state(client: Client) -> None:
    latch, start, slots = CountDownLatch(1, name="l"), Barrier(2, name="b"), BoundedSemaphore(1, name="s")
    Barrier(2).reset()  # the first object without a name registers this process, and sweeps in the background
    eventually(lambda: is_quiet(client))
    assert spent(client, Barrier(2).reset) == (2 + 3, 2)
    assert latch.count == 1
    assert spent(client, partial(latch.try_set_count, 2)) == (1 + 2, 2)
    latch.count_down()
    assert spent(client, latch.count_down) == (1 + 2, 2)
    start.abort()
    assert spent(client, start.abort) == (1 + 2, 2)
    with slots:
        pass

    def release_in_excess() -> None:
        with pytest.raises(OverReleaseError):
            slots.release()

    assert spent(client, release_in_excess) == (2 + 3, 2)


def test_ids_cost_1_request_per_started_block(client: Client) -> None:
    ids = IdGenerator(10, name="i")
    ids.next_id()
    assert spent(client, partial(ids.next_ids, 25))[0] == 2


# ---- election, group, registry, configuration


def test_costs_of_reads_of_the_leader(client: Client, other: Client) -> None:
    election, seen = Election(name="e"), Election(name="e", client=other)
    with election:
        pass
    assert seen.leader is None
    waiting = Running(spent, other, seen.wait_for_leader)
    eventually(lambda: waiting_calls(other))
    election.acquire()
    assert waiting.result() == (1, 1)
    assert spent(other, lambda: seen.leader) == (0, 0)
    assert spent(other, partial(seen.find_leader, sync=True)) == (2, 2)
    assert spent(other, seen.candidates) == (2, 2)
    assert spent(client, lambda: election.is_leader) == (0, 0)
    election.release()
    eventually(lambda: seen.leader is None)
    assert spent(other, partial(seen.find_leader, sync=True)) == (3, 3)
    assert spent(client, partial(election.run, int)) == (4, 3)
    settle([other])
    assert spent(other, lambda: seen.leader) == (2, 2)


def test_costs_of_joins_and_reads_of_a_group(client: Client, other: Client) -> None:
    group, seen = Group(name="g"), Group(name="g", client=other)
    group.join()
    group.leave()
    with costing(client, 1 + 1):
        group.join()
    assert len(seen) == 1
    assert spent(other, partial(seen.find_members, sync=True)) == (2, 2)
    waiting = Running(spent, other, seen.wait)
    eventually(lambda: waiting_calls(other))
    with costing(client, 1 + 1):
        group.join()
    assert waiting.result() == (1 + 1, 2)
    with costing(client, 2):
        group.leave()
    settle([other])
    assert spent(other, lambda: seen.members) == (1, 1)
    calls: list[Any] = []
    seen.on_join = calls.append
    with costing(other, 1 + 1):
        group.join()
        eventually(lambda: calls)
    seen.on_join = None
    group.leave()


def test_costs_of_registrations_and_reads_of_a_registry(client: Client, other: Client) -> None:
    registry, seen = Registry(name="r"), Registry(name="r", client=other)
    registry["warm"] = 0
    eventually(lambda: is_at_rest(client))
    with costing(client, 2 + 1):
        registry.register("a", 1)
    with costing(client, 2 + 1 + 3):
        registry.register("a", 2)
    assert len(seen) == 2
    registry["b"] = 1
    settle([other])
    assert spent(other, lambda: len(seen)) == (1 + 1, 2)
    registry["b"] = 2
    settle([other])
    assert spent(other, lambda: seen["b"]) == (1 + 1, 2)
    assert spent(other, partial(seen.resolve, "b")) == (0, 0)
    assert spent(other, partial(seen.resolve, "b", sync=True)) == (2, 1)
    del registry["b"]
    settle([other])
    assert spent(other, lambda: len(seen)) == (1, 1)
    assert spent(other, partial(seen.wait_for, "a")) == (1, 1)
    waiting = Running(spent, other, partial(seen.wait_for, "z"))
    eventually(lambda: waiting_calls(other))
    registry["z"] = 1
    assert waiting.result()[0] == 3
    registry.clear()


def test_costs_of_changes_and_reads_of_a_configuration(client: Client, other: Client) -> None:
    config, seen = Config(name="c"), Config(name="c", client=other)
    seen["a"] = config["a"] = 1
    changes: list[Callable[[], Any]] = [
        lambda: config.update(b=1),
        lambda: config.replace({"b": 2, "c": 3}),
        lambda: config.pop("c"),
        lambda: config.setdefault("d", 1),
        lambda: config.compare_and_set("d", 1, 2),
        lambda: config.edit(lambda settings: settings.update(e=1)),
        config.clear,
    ]
    for change in changes:
        assert config.snapshot() is not None
        assert spent(client, change)[0] == 1
    for change in changes:
        seen.replace({"c": 1})
        seen["d" if change is not changes[3] else "e"] = 1
        settle([client])
        assert spent(client, change)[0] == 2
    config["a"] = 1
    assert config.snapshot()
    for nothing in (lambda: config.compare_and_set("a", 2, 3), lambda: config.pop("none", None)):
        assert spent(client, nothing) == (2, 2)
    assert spent(client, partial(config.snapshot, sync=True)) == (2, 2)
    assert spent(client, config.snapshot) == spent(client, lambda: config.setdefault("a", 2)) == (0, 0)
    settle([other])
    calls: list[Any] = []
    with costing(other, 1):
        seen.on_change = lambda *change: calls.append(change)
    with costing(other, 1):
        config["a"] = 3
        eventually(lambda: calls)
    seen.on_change = None
    waiting = Running(spent, client, config.wait)
    eventually(lambda: waiting_calls(client))
    seen["a"] = 4
    assert waiting.result()[0] <= 2


# ---- partitioner, two-phase commit


def test_costs_of_a_partitioner(client: Client, other: Client) -> None:
    """Another client has already created the permanent znodes."""
    shares = [f"s{number}" for number in range(6)]
    with Partitioner(shares, name="p", client=other) as far:
        assert far.wait_for(lambda: len(far) == 6, PATIENCE)
    ours = Partitioner(shares, name="p")
    with costing(client, 2 + 1 + 1 + 4 + 6):
        ours.join()
        assert ours.wait_for(lambda: len(ours) == 6, PATIENCE)
    with costing(client, 1 + 1 + 3):
        far.join()
        assert far.wait_for(lambda: len(far) == 3, PATIENCE)
    eventually(lambda: len(ours) == 3)
    assert spent(client, lambda: (ours.shares, [ours.fencing_token(share) for share in ours])) == (0, 0)
    assert spent(client, partial(ours.wait, UNIT)) == (0, 0)
    with costing(client, 1 + 4 + 3):
        far.leave()
        assert ours.wait_for(lambda: len(ours) == 6, PATIENCE)
    with costing(client, 6 + 3):
        ours.leave()


def test_leave_of_a_site_costs_2_requests_and_participant_none(client: Client) -> None:
    trip = Transaction(["a"], name="trip")
    trip.begin()
    trip.abort()
    site = trip.participant("a")
    eventually(lambda: is_quiet(client))
    assert spent(client, lambda: trip.participant("a")) == (0, 0)
    site.take_part(UNIT)
    eventually(lambda: is_quiet(client))
    assert spent(client, site.leave)[0] == 2
