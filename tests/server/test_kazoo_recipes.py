"""kazoo's recipes work between several clients, and continue if one of them loses its connection or
session.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from helpers.kazoo_clients import Kazoos
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, LockTimeout
from kazoo.recipe.lease import MultiNonBlockingLease, NonBlockingLease
from kazoo.recipe.partitioner import PartitionState, SetPartitioner

SHORT = 4 * UNIT


# ---- locks


def test_lock_passes_from_one_client_to_the_next(kazoo: Kazoos) -> None:
    locks = [kazoo().Lock("/lock", name) for name in ("ann", "bob", "cat")]
    first, second, third = locks
    assert first.acquire()
    waiting = [start_waiting(second, 1), start_waiting(third, 2)]
    assert first.contenders() == ["ann", "bob", "cat"]
    for lock, running in zip(locks, waiting, strict=False):
        lock.release()
        assert running.result()
    third.release()
    assert first.contenders() == []


def start_waiting(lock: Any, before: int) -> Running:
    """Wait until it has enqueued behind that many contenders."""
    running = Running(lock.acquire)
    eventually(lambda: len(lock.contenders()) == before + 1)
    return running


def test_lock_of_an_expired_session_is_free(kazoo: Kazoos) -> None:
    holder, other = kazoo(), kazoo()
    assert holder.Lock("/lock", "ann").acquire()
    lock = other.Lock("/lock", "bob")
    running = start_waiting(lock, 1)
    kazoo.expire(holder)
    assert running.result()
    assert lock.contenders() == ["bob"]
    lock.release()


def test_lock_and_its_waiters_survive_a_reconnection(kazoo: Kazoos) -> None:
    holder, other = kazoo(), kazoo()
    held, wanted = holder.Lock("/lock", "ann"), other.Lock("/lock", "bob")
    assert held.acquire()
    running = start_waiting(wanted, 1)
    kazoo.break_connection(holder)
    kazoo.break_connection(other)
    assert held.contenders() == ["ann", "bob"]
    assert not wanted.is_acquired
    held.release()
    assert running.result()
    wanted.release()


def test_lock_acquire_can_be_non_blocking_timed_or_cancelled(kazoo: Kazoos) -> None:
    held, wanted = kazoo().Lock("/lock", "ann"), kazoo().Lock("/lock", "bob")
    assert held.acquire()
    assert not wanted.acquire(blocking=False)
    with pytest.raises(LockTimeout):
        wanted.acquire(timeout=SHORT)
    running = start_waiting(wanted, 1)
    wanted.cancel()
    with pytest.raises(CancelledError):
        running.result()
    assert held.contenders() == ["ann"]
    held.release()


def test_readers_share_the_lock_and_a_writer_excludes_them(kazoo: Kazoos) -> None:
    one, two, three = kazoo(), kazoo(), kazoo()
    readers, writer = [one.ReadLock("/lock"), two.ReadLock("/lock")], three.WriteLock("/lock")
    assert all(lock.acquire(timeout=PATIENCE) for lock in readers)
    assert not writer.acquire(blocking=False)
    running = start_waiting(writer, 2)
    for lock in readers:
        lock.release()
    assert running.result()
    assert not readers[0].acquire(blocking=False)
    writer.release()


def test_semaphore_grants_its_number_of_leases(kazoo: Kazoos) -> None:
    clients = [kazoo() for _ in range(3)]
    first, second, third = (client.Semaphore("/leases", str(at), max_leases=2) for at, client in enumerate(clients))
    assert first.acquire()
    assert second.acquire()
    assert not third.acquire(blocking=False)
    running = Running(third.acquire)
    kazoo.expire(clients[0])
    assert running.result()
    eventually(lambda: sorted(second.lease_holders()) == ["1", "2"])
    with pytest.raises(ValueError, match="max"):
        clients[0].Semaphore("/leases", max_leases=5).acquire()
    for lock in (second, third):
        lock.release()


# ---- barriers


def test_barrier_holds_until_it_is_removed(kazoo: Kazoos) -> None:
    one, two = kazoo().Barrier("/barrier"), kazoo().Barrier("/barrier")
    assert one.wait(0)
    one.create()
    assert not two.wait(SHORT)
    running = Running(two.wait, PATIENCE)
    assert one.remove()
    assert running.result()
    assert not one.remove()


def test_double_barrier_lets_all_in_and_all_out_together(kazoo: Kazoos) -> None:
    barriers = [kazoo().DoubleBarrier("/double", 3, str(at)) for at in range(3)]
    entering = [Running(barrier.enter) for barrier in barriers[:2]]
    assert all(running.is_alive() for running in entering)
    barriers[2].enter()
    for running in entering:
        running.result()
    assert all(barrier.participating for barrier in barriers)
    leaving = [Running(barrier.leave) for barrier in barriers]
    for running in leaving:
        running.result()
    assert not any(barrier.participating for barrier in barriers)


def test_election_is_won_by_another_candidate_after_the_leader_is_gone(kazoo: Kazoos) -> None:
    led: list[str] = []
    over = threading.Event()

    def lead(name: str) -> None:
        led.append(name)
        over.wait(PATIENCE)

    clients = {name: kazoo() for name in ("ann", "bob")}
    elections = {name: client.Election("/lead", name) for name, client in clients.items()}
    running = [Running(election.run, lead, name) for name, election in elections.items()]
    eventually(lambda: led and sorted(elections["ann"].contenders()) == ["ann", "bob"])
    kazoo.expire(clients[led[0]])
    eventually(lambda: sorted(led) == ["ann", "bob"])
    over.set()
    for one in running:
        one.result()


# ---- queues and counters


def test_queue_delivers_each_item_once_by_priority(kazoo: Kazoos) -> None:
    one, two = kazoo().Queue("/queue"), kazoo().Queue("/queue")
    assert one.get() is None
    for number, priority in ((1, 100), (2, 50), (3, 100)):
        one.put(b"%d" % number, priority)
    assert len(two) == 3
    assert [queue.get() for queue in (two, one, two, one)] == [b"2", b"1", b"3", None]


def test_locking_queue_redelivers_unconsumed_items(kazoo: Kazoos) -> None:
    clients = kazoo(), kazoo()
    one, two = (client.LockingQueue("/work") for client in clients)
    one.put_all([b"a", b"b"])
    one.put(b"urgent", 10)
    assert one.get() == b"urgent"
    assert two.get() == b"a"
    assert one.holds_lock()
    assert one.consume()
    kazoo.expire(clients[1])
    assert one.get(PATIENCE) == b"a"
    assert one.release()
    assert one.get(PATIENCE) == b"a"
    assert one.consume()
    assert one.get(PATIENCE) == b"b"
    assert one.consume()
    assert one.get(SHORT) is None


def test_counter_sums_the_changes_of_all_clients(kazoo: Kazoos) -> None:
    def add(client: KazooClient) -> None:
        counter = client.Counter("/counter")
        for _ in range(20):
            counter += 1

    clients = [kazoo() for _ in range(3)]
    for running in [Running(add, client) for client in clients]:
        running.result()
    assert clients[0].Counter("/counter").value == 60
    part = clients[0].Counter("/part", default=0.5)
    part -= 2.0
    assert clients[1].Counter("/part", default=0.5).value == -1.5


# ---- membership


@pytest.mark.parametrize("kind", ["Party", "ShallowParty"])
def test_party_lists_its_members(kazoo: Kazoos, kind: str) -> None:
    clients = [kazoo() for _ in range(3)]
    parties = [getattr(client, kind)("/party", f"guest{at}") for at, client in enumerate(clients)]
    for party in parties:
        party.join()
    assert sorted(parties[0]) == ["guest0", "guest1", "guest2"]
    parties[1].leave()
    kazoo.expire(clients[2])
    assert (list(parties[0]), len(parties[0])) == (["guest0"], 1)
    parties[0].leave()


def test_lease_has_one_holder_until_it_expires(kazoo: Kazoos) -> None:
    now = datetime(2030, 1, 1)
    one, two = kazoo(), kazoo()

    def lease(client: KazooClient, name: str, minutes: int) -> NonBlockingLease:
        when = now + timedelta(minutes=minutes)
        return NonBlockingLease(client, "/lease", timedelta(minutes=10), name, lambda: when)

    assert lease(one, "ann", 0)
    assert not lease(two, "bob", 5)
    assert lease(one, "ann", 8)
    assert not lease(two, "bob", 12)
    assert lease(two, "bob", 19)
    assert not lease(one, "ann", 20)


def test_multi_lease_grants_its_number_of_leases(kazoo: Kazoos) -> None:
    clients = [kazoo() for _ in range(3)]
    given = [
        MultiNonBlockingLease(client, 2, "/leases", timedelta(hours=1), str(at)) for at, client in enumerate(clients)
    ]
    assert [bool(each) for each in given] == [True, True, False]


def test_partitioner_redistributes_a_set_when_a_member_is_gone(kazoo: Kazoos) -> None:
    clients, things = [kazoo(), kazoo()], ("a", "b", "c")
    one, two = (SetPartitioner(client, "/set", things, None, str(at), SHORT) for at, client in enumerate(clients))
    acquired([one, two])
    assert sorted([*one, *two]) == list(things)
    assert {len(list(one)), len(list(two))} == {1, 2}
    two.finish()
    eventually(lambda: one.state != PartitionState.ACQUIRED)
    acquired([one])
    assert sorted(one) == list(things)
    one.finish()


def acquired(partitioners: Iterable[SetPartitioner]) -> None:
    """Wait until each member has its part."""

    def step() -> bool:
        for one in partitioners:
            if one.state == PartitionState.RELEASE:
                one.release_set()
            elif one.state == PartitionState.ALLOCATING:
                one.wait_for_acquire(SHORT)
        return all(one.state == PartitionState.ACQUIRED for one in partitioners)

    eventually(step)
