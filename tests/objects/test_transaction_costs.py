"""Costs of two-phase commit: counted requests equal the documented ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from helpers.leak_census import Observer
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Running, is_quiet, waiting_calls

from distsync import Participant, Transaction
from distsync._client.client import Client


def requests(client: Client) -> int:
    return sum(client.statistics().requests.values())


@pytest.mark.parametrize("count", [1, 8])
def test_begin_costs_3_requests_a_vote_2_and_decide_13_whatever_the_number_of_sites(client: Client, count: int) -> None:
    trip = Transaction([f"s{number}" for number in range(count)], name="trip")
    trip.begin()
    trip.abort()
    eventually(lambda: trip.outcome == "abort")
    before = requests(client)
    trip.begin()
    assert requests(client) - before == 3
    for site in trip.sites:
        before = requests(client)
        trip.participant(site).vote(True)
        assert requests(client) - before == 2
    before = requests(client)
    assert trip.decide()
    eventually(lambda: requests(client) - before == 3 + 1 + 3 + 2 + 4)
    client.close()


def test_status_reads_a_vote_and_an_abort_cost_what_is_documented(client: Client) -> None:
    trip = Transaction(["a", "b"], name="trip")
    trip.begin()
    looks = (trip.votes, Cost(4, 2)), (partial(trip.participant("a").vote, True), Cost(2, 2))
    ends = (trip.abort, Cost(11, 6)), (lambda: trip.outcome, Cost(2, 1)), (lambda: trip.reason, Cost(2, 1))
    for function, expected in (*looks, *ends):
        eventually(lambda: is_quiet(client))
        with counted(client) as cost:
            function()
        assert cost == expected
    client.close()


def cost_of_one_transaction(trip: Transaction, far: Participant) -> int:
    """Run one transaction, and return the number of requests of the site."""
    client = far.transaction.client
    eventually(lambda: is_quiet(client) and is_quiet(trip.client))
    before = requests(client)
    taking = Running(far.take_part)
    eventually(lambda: waiting_calls(client) == 1)
    trip.begin(timeout=PATIENCE)
    eventually(lambda: trip.votes()["one"] == "commit" and waiting_calls(client) == 1)
    assert trip.decide()
    assert taking.result() == "commit"
    return requests(client) - before


def test_take_part_costs_a_site_18_requests(
    client: Client, make_client: Callable[..., Client], observer: Observer
) -> None:
    other = make_client()
    trip = Transaction(["one"], name="trip")

    def commit(_: object) -> None:
        """Wait until the coordinator has left, so that it does not clean up at the same time as the
        site.
        """
        eventually(lambda: not any(path.endswith("/coordinator") for path in observer.tree(trip.path)))
        eventually(lambda: is_quiet(client))

    far = Transaction(["one"], name="trip", client=other).participant("one", commit=commit)
    cost_of_one_transaction(trip, far)
    for _ in range(5):
        assert cost_of_one_transaction(trip, far) == 18
    other.close()
    client.close()


def test_deciding_peer_costs_5_more_requests_and_4_for_each_vote_after_its_own(
    client: Client, make_client: Callable[..., Client]
) -> None:
    other, third = make_client(), make_client()
    alone, trip = (
        Transaction(["one"], "peers", name="alone"),
        Transaction(["one", "two", "three"], "peers", name="trip"),
    )
    asked, over = threading.Event(), threading.Event()

    def prepare(_: object) -> bool:
        """Vote when the coordinator waits for the decision."""
        return asked.wait(PATIENCE)

    def commit(_: object) -> None:
        """Wait until the coordinator knows the decision, so that it does not clean up at the same
        time.
        """
        assert over.wait(PATIENCE)

    far = Transaction(["one"], "peers", name="alone", client=other).participant("one", prepare, commit)
    for number in range(3):
        asked.clear()
        over.clear()
        eventually(lambda: is_quiet(client) and is_quiet(other))
        before = requests(other)
        taking = Running(far.take_part)
        eventually(lambda: waiting_calls(other) == 1)
        alone.begin(timeout=PATIENCE)
        deciding = Running(alone.decide)
        eventually(lambda: waiting_calls(client) == 1)
        asked.set()
        assert deciding.result()
        eventually(lambda: is_quiet(client))
        over.set()
        assert taking.result() == "commit"
        assert number == 0 or requests(other) - before == 18 + 5
    far.leave()
    sites = [Transaction(trip.sites, "peers", name="trip", client=c).participant for c in (other, third)]
    taking = Running(sites[0]("one").take_part)
    eventually(lambda: waiting_calls(other) == 1)
    trip.begin(timeout=PATIENCE)
    eventually(lambda: trip.votes()["one"] == "commit" and waiting_calls(other) == 1)
    before = requests(other)
    assert sites[1]("two").vote(True) is None
    eventually(lambda: requests(other) == before + 4)
    trip.abort()
    assert taking.result() == "abort"
    for each in (other, third, client):
        each.close()
