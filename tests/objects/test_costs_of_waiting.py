"""Additional costs of concurrent changes, of long waits, and of votes and members that arrive or
leave.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.request_counts import counted, sent, settle, spent
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running, is_quiet, waiting_calls

from distsync import CountDownLatch, JoinableQueue, Partitioner, Queue, Transaction
from distsync._client.client import Client
from distsync.threading import Barrier, Condition

MakeClient = Callable[..., Client]

pytestmark = pytest.mark.usefixtures("no_guards")


def requests_without_syncs(client: Client) -> int:
    """Return the number of requests sent, except for the Syncs that prove the lease."""
    return sum(count for kind, count in client.statistics().requests.items() if kind != "Sync")


def requests_since(client: Client, before: Counter[str]) -> Counter[str]:
    spent_on = Counter(client.statistics().requests) - before
    spent_on.pop("Sync", None)
    return spent_on


def wait_for(waiter: Any) -> None:
    if isinstance(waiter, Barrier):
        waiter.wait()
    else:
        with waiter:
            assert waiter.wait()


@pytest.mark.parametrize(("kind", "nodes"), [(Condition, 2), (partial(Barrier, 2), 1)], ids=["condition", "barrier"])
def test_long_wait_polls_with_2_or_3_requests_every_half_session_timeout(
    kind: Callable[..., Any], nodes: int, make_client: MakeClient, other: Client
) -> None:
    """Each poll lists the children and reads ``nodes`` znodes."""
    client = make_client(session_timeout=20 * UNIT)
    ours, theirs = kind(name="w", client=client), kind(name="w", client=other)
    waiting = Running(wait_for, ours)
    eventually(lambda: waiting_calls(client))
    since, before = time.monotonic(), Counter(client.statistics().requests)
    looks = 3

    def has_looked() -> bool:
        nonlocal looks
        cost = requests_since(client, before)
        looks = cost["Children"]
        return looks >= 3 and cost == {"Children": looks, "GetData": nodes * looks}

    eventually(has_looked)
    assert looks <= 1 + (time.monotonic() - since) / (10 * UNIT)
    if isinstance(theirs, Barrier):
        theirs.wait()
    else:
        with theirs:
            theirs.notify_all()
    waiting.result()
    client.close()


def test_count_down_costs_2_more_requests_for_each_concurrent_change_of_the_latch(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, far = CountDownLatch(9, name="l"), CountDownLatch(9, name="l", client=other)
    ours.count_down()
    far.count_down()
    write, races = ours._core._write, [True, True]

    async def change_before_write(*arguments: Any) -> bool:
        """Change the count between the read and the write of ``ours``."""
        if races:
            races.pop()
            far.count_down()
        return await write(*arguments)

    monkeypatch.setattr(ours._core, "_write", change_before_write)
    assert spent(client, ours.count_down) == (2 + 2 + 2, 6)
    assert ours.count == 9 - 5


def test_decide_costs_3_more_requests_for_each_vote_that_arrives(client: Client, other: Client) -> None:
    trip = Transaction(["a", "b", "c"], name="trip")
    far = Transaction(["a", "b", "c"], name="trip", client=other)
    trip.begin()
    trip.abort()
    eventually(lambda: is_quiet(client))
    trip.begin()
    deciding = Running(spent, client, trip.decide)
    for votes, site in enumerate(trip.sites, 1):
        eventually(lambda: waiting_calls(client))
        settle([client])
        before = requests_without_syncs(client)
        far.participant(site).vote(True)
        if votes < 3:
            eventually(lambda: requests_without_syncs(client) - before >= 3)  # noqa: B023
            settle([client])
            assert requests_without_syncs(client) - before == 3 + 1
    deciding.result()
    assert trip.outcome == "commit"


def test_asking_the_servers_for_their_roles_costs_no_request_of_the_session(client: Client) -> None:
    client.sync()
    assert spent(client, client.ensemble) == (0, 0)


def test_leave_of_a_member_costs_the_others_a_read_each_and_one_of_them_the_free_share(
    client: Client, make_client: MakeClient
) -> None:
    """No two members try to take the same share.

    Events: the deletions of the member and of its share, where the watch of an earlier read is
    still set, and the new owner of the share. Members that read between the two deletions read again.
    """
    shares = [f"s{number}" for number in range(6)]
    members = [Partitioner(shares, name="p", client=each) for each in (client, *(make_client() for _ in range(5)))]
    for member in members:
        member.join()
    eventually(lambda: [len(member) for member in members] == [1] * 6)
    clients = [member.client for member in members]
    settle(clients)
    creates = sum(sent(each, "Create") for each in clients)
    with counted(*clients) as cost:
        members[-1].leave()
        eventually(lambda: sorted(len(member) for member in members[:-1]) == [1, 1, 1, 1, 2])
        settle(clients)
    looks, taking, leaving = 5, 4 + 1, 1 + 3
    assert sum(sent(each, "Create") for each in clients) - creates == 1
    assert 0 <= cost.requests - (looks + taking + leaving + len(clients)) <= looks
    assert cost.events <= 2 * len(members) + 1
    for member in members[:-1]:
        member.leave()


@pytest.mark.parametrize(("kind", "now", "before"), [(Queue, 19, 20), (JoinableQueue, 33, 37)])
def test_backups_among_waiting_consumers_cost_less_than_their_gets_save(
    kind: Callable[..., Any], now: int, before: int, make_client: MakeClient, observer: Observer
) -> None:
    """One of three consumers gets the item and waits again, the next one becomes the first, and the last one
    looks once.

    Without backups, they needed ``before`` requests for each item.
    """
    clients = [make_client(session_timeout=100 * UNIT) for _ in range(3)]
    queues = [kind(name="q", client=each) for each in clients]
    running = [Running(remote.get_until, each, "end", kind is JoinableQueue) for each in queues]
    eventually(lambda: len(observer.tree(f"{queues[0].path}/getters")) == 3)
    putter, costs = kind(name="q", client=make_client()), []

    def total() -> int:
        return sum(map(requests_without_syncs, clients))

    for item in range(5):
        eventually(lambda: all(map(waiting_calls, clients)))
        settle(clients)
        start = total()
        putter.put(item)
        eventually(lambda: total() - start >= now)  # noqa: B023
        settle(clients)
        costs.append(total() - start - len(clients))
    assert all(now <= cost <= before for cost in costs[2:]), costs  # the first ones create receipts
    for _ in clients:
        putter.put("end")
    for each in running:
        each.result()
    for client in clients:
        client.close()
