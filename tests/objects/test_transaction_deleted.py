"""Two-phase commit when an administrator deletes a transaction, or a part of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, eventually
from helpers.worker_processes import Running, results, waiting_calls

from distsync import Transaction
from distsync._client.client import Client
from distsync.errors import CorruptNodeError, OutcomeUnknownError

SITES = ["bank", "rail"]

pytestmark = pytest.mark.parametrize("decider", ["coordinator", "peers"])


@pytest.fixture
def trip(client: Client, decider: str) -> Iterator[Transaction]:
    yield Transaction(SITES, decider, name="trip")
    client.close()


def delete(trip: Transaction, observer: Observer, *names: str) -> None:
    """Delete parts of the current transaction in one request; without names all of it."""
    top = next(path for path in observer.tree(trip.path) if "/t_" in path)
    below = [f"{top}/{name}" for name in names] or [*(path for path in observer.tree(top)), top]
    request = observer.kazoo.transaction()
    for path in below:
        request.delete(path)
    assert all(answer is True for answer in request.commit())


def check_raises(call: Callable[..., Any], *args: Any, error: type[Exception] = OutcomeUnknownError) -> None:
    with pytest.raises(error):
        call(*args)


def check_next_transaction(trip: Transaction) -> None:
    """Check that the next transaction works as usual."""
    trip.begin("next", PATIENCE)
    running = [Running(trip.participant(site).take_part) for site in SITES]
    assert trip.decide(PATIENCE)
    assert results(running) == ["commit"] * 2


def start_voter_and_coordinator(trip: Transaction) -> list[Running]:
    """Start a site that votes, and the coordinator. Both wait for the other site."""
    trip.begin()
    running = [Running(trip.participant("bank").take_part), Running(trip.decide)]
    eventually(lambda: trip.votes()["bank"] == "commit" and waiting_calls(trip.client) == 2)
    return running


@pytest.mark.slow_on("zookeeper")
def test_transaction_that_is_not_the_current_one_is_aborted(
    make_client: Callable[..., Client], decider: str, observer: Observer
) -> None:
    """As if a site forgot the previous one after everything was deleted and created again: no site
    takes part.
    """
    trip = Transaction(SITES, decider, name="trip", client=make_client(session_timeout=2.0))
    trip.begin()
    sites, by, _, past = json.loads(observer.kazoo.get(trip.path)[0])
    observer.kazoo.set(trip.path, json.dumps([sites, by, None, past]).encode())
    assert not trip.decide(PATIENCE)
    check_next_transaction(trip)
    trip.client.close()


def test_waiting_calls_raise_when_the_transaction_is_deleted(trip: Transaction, observer: Observer) -> None:
    running = start_voter_and_coordinator(trip)
    delete(trip, observer)
    for one in running:
        check_raises(one.result)
    check_raises(trip.decide)
    check_raises(trip.abort)
    assert trip.votes() == dict.fromkeys(SITES)
    check_next_transaction(trip)


@pytest.mark.parametrize("look", ["outcome", "decide", "abort", "vote", "begin"])
def test_first_call_after_the_deletion_of_a_transaction_notices_it(
    trip: Transaction, look: str, observer: Observer
) -> None:
    trip.begin()
    delete(trip, observer)
    looks: dict[str, Callable[[], Any]] = {
        "outcome": lambda: trip.outcome,
        "decide": trip.decide,
        "abort": trip.abort,
        "vote": lambda: trip.participant("rail").vote(True),
    }
    if look in looks:
        check_raises(looks[look])
    check_next_transaction(trip)


def test_waiting_calls_raise_when_the_whole_object_is_deleted(trip: Transaction, observer: Observer) -> None:
    running = start_voter_and_coordinator(trip)
    request = observer.kazoo.transaction()
    for path in sorted(observer.tree(trip.path), reverse=True):
        request.delete(path)
    request.delete(trip.path)
    assert all(answer is True for answer in request.commit())
    for one in running:
        check_raises(one.result)
    check_next_transaction(trip)


def test_transaction_without_open_znode_and_decision_is_corrupt(trip: Transaction, observer: Observer) -> None:
    running = start_voter_and_coordinator(trip)
    delete(trip, observer, "open")
    for one in (*(each.result for each in running), trip.decide, trip.begin, lambda: trip.outcome):
        check_raises(one, error=CorruptNodeError)
    delete(trip, observer)
    check_raises(trip.participant("bank").take_part)  # it has prepared the deleted transaction
    check_next_transaction(trip)


def test_calls_after_the_decision_was_deleted_raise_corrupt_node_error(trip: Transaction, observer: Observer) -> None:
    trip.begin()
    for site in SITES:
        trip.participant(site).vote(True)
    assert trip.decide(PATIENCE)
    eventually(lambda: not any(path.endswith("/coordinator") for path in observer.tree(trip.path)))
    delete(trip, observer, "decision")
    for call in (trip.participant("bank").take_part, trip.decide, trip.begin, lambda: trip.outcome):
        check_raises(call, error=CorruptNodeError)
    delete(trip, observer)
    check_next_transaction(trip)


@pytest.mark.parametrize("part", ["ballot-rail", "commit-bank"])
def test_deleted_ballot_or_vote_aborts_the_transaction(trip: Transaction, part: str, observer: Observer) -> None:
    running = start_voter_and_coordinator(trip)
    delete(trip, observer, part)
    assert [one.result() for one in running] == ["abort", False]
    assert trip.reason == f"the ballot or vote of {part.split('-')[1]} was deleted"
    check_next_transaction(trip)


def test_site_whose_ballot_was_deleted_aborts(trip: Transaction, observer: Observer) -> None:
    trip.begin()
    delete(trip, observer, "ballot-bank")
    running = Running(trip.participant("bank").take_part)
    eventually(lambda: trip.outcome == "abort")
    assert not trip.decide()
    ends = Running(trip.participant("rail").take_part)
    trip.begin("next", PATIENCE)
    assert trip.decide(PATIENCE)
    assert results([running, ends]) == ["commit"] * 2
