"""Two-phase commit in an outage: timeouts are observed, and the decision follows afterwards.

The coordinator or the site is behind a proxy; other participants connect to the server directly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, Control, eventually
from helpers.worker_processes import Running, results, waiting_calls

from distsync import Transaction
from distsync._client.client import Client
from distsync._client.deadlines import NONBLOCKING_GRACE_S
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

SITES = ["bank", "rail"]
SHORT_SESSION_S = 2.0

#: How many seconds a call may exceed its timeout, in addition to the measured delay of its process.
MORE_S = 0.5

pytestmark = [
    pytest.mark.parametrize("decider", ["coordinator", "peers"]),
    pytest.mark.parametrize("how", ["refuse", "blackhole"]),
]


@pytest.fixture
def near(client: Client, decider: str) -> Iterator[Transaction]:
    yield Transaction(SITES, decider, name="trip", client=client)
    client.close()


def behind(near: Transaction, far: Client) -> Transaction:
    return Transaction(SITES, near.decided_by, name="trip", client=far)


def start_outage(proxy: Proxy, how: str) -> None:
    getattr(proxy, how)()


def timed(call: Callable[..., Any], *args: Any) -> tuple[str, float]:
    began = time.monotonic()
    return remote.catch(call, *args), time.monotonic() - began


@pytest.mark.slow("outages")
@pytest.mark.parametrize("voters", [1, 2])
def test_coordinator_that_times_out_in_an_outage_decides_after_it(
    near: Transaction, far: Client, proxy: Proxy, how: str, voters: int
) -> None:
    """By the votes that have been cast then."""
    trip = behind(near, far)
    trip.begin()
    deciding = Running(timed, trip.decide, 1.0)
    eventually(lambda: waiting_calls(far) == 1)
    start_outage(proxy, how)
    for site in SITES[:voters]:
        near.participant(site).vote(True)
    with Control() as control:
        at_once = Running(timed, trip.decide, 0.0)
        ended = [running.result() for running in (deciding, at_once)]
    for (answer, seconds), longest in zip(ended, (1.0, NONBLOCKING_GRACE_S), strict=True):
        assert answer == "DeadlineError"
        assert seconds < longest + MORE_S + control.late
    assert near.outcome is None
    proxy.heal()
    outcome = "commit" if voters == 2 else "abort"
    eventually(lambda: near.outcome == outcome)
    assert trip.decide(PATIENCE) is (voters == 2)
    assert trip.reason == ("" if voters == 2 else "no vote of rail in time")
    assert results(Running(near.participant(site).take_part) for site in SITES[:voters]) == [outcome] * voters
    far.close()


@pytest.mark.slow("outages")
def test_coordinator_whose_session_expires_in_an_outage_learns_the_sites_decision(
    near: Transaction, make_far: MakeClient, proxy: Proxy, how: str
) -> None:
    far = make_far(SHORT_SESSION_S)
    trip = behind(near, far)
    trip.begin()
    bank = Running(near.participant("bank").take_part)
    deciding = Running(trip.decide)
    eventually(lambda: waiting_calls(far) == 1 and near.votes()["bank"] == "commit")
    start_outage(proxy, how)
    assert bank.result() == "abort"
    assert near.reason == "the coordinator left before rail had voted"
    proxy.heal()
    assert deciding.result() is False
    far.close()


@pytest.mark.slow("outages")
def test_begin_that_times_out_in_an_outage_is_aborted(near: Transaction, far: Client, proxy: Proxy, how: str) -> None:
    trip = behind(near, far)
    assert trip.outcome is None
    start_outage(proxy, how)
    with Control() as control:
        answer, seconds = timed(trip.begin, None, 1.0)
    assert answer == "DeadlineError"
    assert seconds < 1.0 + MORE_S + control.late
    proxy.heal()
    near.begin("next", PATIENCE)
    running = [Running(near.participant(site).take_part) for site in SITES]
    assert near.decide(PATIENCE)
    assert results(running) == ["commit"] * 2
    far.close()


@pytest.mark.slow("outages")
def test_take_part_observes_its_timeout_in_an_outage_and_the_vote_remains(
    near: Transaction, far: Client, proxy: Proxy, how: str
) -> None:
    rail = behind(near, far).participant("rail")
    assert rail.take_part(0.0) is None
    taking = Running(timed, rail.take_part, 1.0)
    near.begin()
    eventually(lambda: near.votes()["rail"] == "commit" and waiting_calls(far) == 1)
    start_outage(proxy, how)
    with Control() as control:
        ended = [taking.result(), timed(rail.take_part, 1.0)]
    for answer, seconds in ended:
        assert answer == "None"
        assert seconds < 1.0 + MORE_S + control.late
    near.participant("bank").vote(True)
    assert near.decide(PATIENCE)
    proxy.heal()
    assert rail.take_part(PATIENCE) == "commit"
    far.close()


@pytest.mark.slow_on("zookeeper")
def test_commit_function_called_before_an_outage_is_not_called_again(
    near: Transaction, far: Client, proxy: Proxy, how: str
) -> None:
    done: list[int] = []

    def commit(item: int) -> None:
        done.append(item)
        if item == 1:
            start_outage(proxy, how)

    alone = Transaction(["one"], near.decided_by, name="alone", client=near.client)
    site = Transaction(["one"], near.decided_by, name="alone", client=far).participant("one", commit=commit)
    alone.begin(1)
    site.vote(True)
    assert alone.decide()
    eventually(lambda: site.take_part(10 * UNIT) == "commit")
    proxy.heal()
    alone.begin(2, PATIENCE)
    site.vote(True)
    alone.decide(PATIENCE)
    assert site.take_part(PATIENCE)
    assert done.count(1) == 1
    far.close()
