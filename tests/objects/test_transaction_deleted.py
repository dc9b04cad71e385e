"""Transaction and Participant where an administrator deletes a transaction, or a part of it, under them."""

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
    """Parts of the present transaction, at once; without names all of it."""
    top = next(path for path in observer.tree(trip.path) if "/t_" in path)
    below = [f"{top}/{name}" for name in names] or [*(path for path in observer.tree(top)), top]
    request = observer.kazoo.transaction()
    for path in below:
        request.delete(path)
    assert all(answer is True for answer in request.commit())


def is_lost(call: Callable[..., Any], *args: Any, error: type[Exception] = OutcomeUnknownError) -> None:
    with pytest.raises(error):
        call(*args)


def ends_well(trip: Transaction) -> None:
    """The next transaction is as any other."""
    trip.begin("next", PATIENCE)
    running = [Running(trip.participant(site).take_part) for site in SITES]
    assert trip.decide(PATIENCE)
    assert results(running) == ["commit"] * 2


def voted_and_waiting(trip: Transaction) -> list[Running]:
    """A site that has voted, and the coordinator, who wait for the other site."""
    trip.begin()
    running = [Running(trip.participant("bank").take_part), Running(trip.decide)]
    eventually(lambda: trip.votes()["bank"] == "commit" and waiting_calls(trip.client) == 2)
    return running


@pytest.mark.slow_on("zookeeper")
def test_one_that_is_not_the_present_one_is_aborted(
    make_client: Callable[..., Client], decider: str, observer: Observer
) -> None:
    """As after a site that forgets the previous transaction, when all was deleted and created again:
    no site comes.
    """
    trip = Transaction(SITES, decider, name="trip", client=make_client(session_timeout=2.0))
    trip.begin()
    sites, by, _, past = json.loads(observer.kazoo.get(trip.path)[0])
    observer.kazoo.set(trip.path, json.dumps([sites, by, None, past]).encode())
    assert not trip.decide(PATIENCE)
    ends_well(trip)
    trip.client.close()


def test_nobody_waits_for_one_that_was_deleted(trip: Transaction, observer: Observer) -> None:
    running = voted_and_waiting(trip)
    delete(trip, observer)
    for one in running:
        is_lost(one.result)
    is_lost(trip.decide)
    is_lost(trip.abort)
    assert trip.votes() == dict.fromkeys(SITES)
    ends_well(trip)


@pytest.mark.parametrize("look", ["outcome", "decide", "abort", "vote", "begin"])
def test_first_reader_notices_the_deletion(trip: Transaction, look: str, observer: Observer) -> None:
    trip.begin()
    delete(trip, observer)
    looks: dict[str, Callable[[], Any]] = {
        "outcome": lambda: trip.outcome,
        "decide": trip.decide,
        "abort": trip.abort,
        "vote": lambda: trip.participant("rail").vote(True),
    }
    if look in looks:
        is_lost(looks[look])
    ends_well(trip)


def test_nobody_waits_after_the_object_was_deleted(trip: Transaction, observer: Observer) -> None:
    running = voted_and_waiting(trip)
    request = observer.kazoo.transaction()
    for path in sorted(observer.tree(trip.path), reverse=True):
        request.delete(path)
    request.delete(trip.path)
    assert all(answer is True for answer in request.commit())
    for one in running:
        is_lost(one.result)
    ends_well(trip)


def test_without_open_nor_decision_it_is_corrupt(trip: Transaction, observer: Observer) -> None:
    running = voted_and_waiting(trip)
    delete(trip, observer, "open")
    for one in (*(each.result for each in running), trip.decide, trip.begin, lambda: trip.outcome):
        is_lost(one, error=CorruptNodeError)
    delete(trip, observer)
    is_lost(trip.participant("bank").take_part)  # it has prepared that
    ends_well(trip)


def test_deleted_decision_is_not_waited_for(trip: Transaction, observer: Observer) -> None:
    trip.begin()
    for site in SITES:
        trip.participant(site).vote(True)
    assert trip.decide(PATIENCE)
    eventually(lambda: not any(path.endswith("/coordinator") for path in observer.tree(trip.path)))
    delete(trip, observer, "decision")
    for call in (trip.participant("bank").take_part, trip.decide, trip.begin, lambda: trip.outcome):
        is_lost(call, error=CorruptNodeError)
    delete(trip, observer)
    ends_well(trip)


@pytest.mark.parametrize("part", ["ballot-rail", "commit-bank"])
def test_deleted_ballot_or_vote_is_none_for_commit(trip: Transaction, part: str, observer: Observer) -> None:
    running = voted_and_waiting(trip)
    delete(trip, observer, part)
    assert [one.result() for one in running] == ["abort", False]
    assert trip.reason == f"the ballot or vote of {part.split('-')[1]} was deleted"
    ends_well(trip)


def test_site_without_ballot_aborts(trip: Transaction, observer: Observer) -> None:
    trip.begin()
    delete(trip, observer, "ballot-bank")
    running = Running(trip.participant("bank").take_part)
    eventually(lambda: trip.outcome == "abort")
    assert not trip.decide()
    ends = Running(trip.participant("rail").take_part)
    trip.begin("next", PATIENCE)
    assert trip.decide(PATIENCE)
    assert results([running, ends]) == ["commit"] * 2
