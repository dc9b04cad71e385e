"""Transaction and Participant between threads, clients and processes: all commit, or all abort.

Recipes, "Two-phased Commit".
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, is_quiet, results

from distsync import DeadlineError, MismatchError, Participant, PayloadError, Transaction, UsageError, VoteRefusedError
from distsync._client.client import Client
from distsync._protocols.steps import Delete
from distsync._protocols.transactions import participant as site_protocol

MakeClient = Callable[..., Client]

SITES = ["bank", "hotel", "rail"]

pytestmark = pytest.mark.parametrize("decider", ["coordinator", "peers"])


@pytest.fixture
def trip(client: Client, decider: str) -> Iterator[Transaction]:
    """The sites stay there as long as their client."""
    yield Transaction(SITES, decider, name="trip")
    client.close()


class Log:
    """A site that says what it was asked to do."""

    def __init__(self, trip: Transaction, site: str, vote: Any = True) -> None:
        self.said: list[Any] = []
        self.vote = vote
        self.side = trip.participant(
            site, self.prepare, lambda item: self.said.append(("commit", item)), lambda _: self.said.append("abort")
        )

    def prepare(self, item: Any) -> Any:
        self.said.append("prepare")
        if isinstance(self.vote, Exception):
            raise self.vote
        return self.vote


def left(trip: Transaction, observer: Observer) -> list[str]:
    return [path for path in observer.tree(trip.path) if "/t_" in path]


def owner(trip: Transaction, observer: Observer, site: str) -> int:
    """The session of the process that is there for this site; 0 for none."""
    stat = observer.kazoo.exists(f"{trip.path}/sites/s_{site}")
    return stat.ephemeralOwner if stat else 0


def test_all_commit_when_all_vote_so(trip: Transaction, peers: list[Peer], observer: Observer) -> None:
    for peer, site in zip(peers, SITES, strict=True):
        peer.start(remote.take_part, trip, site)
    assert trip.outcome is None
    trip.begin({"to": "Oslo"})
    assert trip.decide(PATIENCE)
    assert (trip.outcome, trip.reason) == ("commit", "")
    said = ["prepare", ("commit", {"to": "Oslo"})]
    assert [peer.result() for peer in peers] == [("commit", said)] * 3
    eventually(lambda: not left(trip, observer))
    assert trip.outcome == "commit"


@pytest.mark.parametrize("vote", [False, ValueError("no room")])
def test_all_abort_early_when_one_votes_so(trip: Transaction, vote: Any, observer: Observer) -> None:
    """Before the others have voted ("a node can decide abort earlier")."""
    hotel = Log(trip, "hotel", vote)
    trip.begin()
    running = Running(hotel.side.take_part)
    assert not trip.decide()
    assert running.result() == "abort"
    assert hotel.said == ["prepare", "abort"]
    assert trip.reason.startswith("hotel voted abort")
    assert ("no room" in trip.reason) is isinstance(vote, ValueError)
    eventually(lambda: not left(trip, observer))


def test_site_that_does_not_vote_in_time_aborts_all(trip: Transaction, observer: Observer) -> None:
    bank = Log(trip, "bank")
    running = Running(bank.side.take_part)
    trip.begin()
    eventually(lambda: trip.votes()["bank"] == "commit")
    assert not trip.decide(UNIT)
    assert trip.reason == "no vote of hotel, rail in time"
    assert running.result() == "abort"
    assert bank.said == ["prepare", "abort"]
    eventually(lambda: not left(trip, observer))


@pytest.mark.slow_on("zookeeper")
def test_site_that_leaves_before_its_vote_aborts_all(
    trip: Transaction, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.start(remote.take_part, trip, "rail", True)
    trip.begin()
    others = [Running(Log(trip, site).side.take_part) for site in SITES[:2]]
    eventually(lambda: list(trip.votes().values()) == ["commit", "commit", None])
    eventually(lambda: any(path.endswith("/s_rail") for path in observer.tree(trip.path)))
    deciding = Running(trip.decide)
    eventually(lambda: deciding.is_alive())
    mortal.kill()
    assert deciding.result() is False
    assert trip.reason == "rail left before its vote"
    assert results(others) == ["abort"] * 2


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("first", ["site", "transaction"])
def test_site_that_left_before_others_looked_aborts_all(
    trip: Transaction, first: str, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    if first == "transaction":
        trip.begin()
    mortal.start(remote.take_part, trip, "rail", True)
    eventually(lambda: owner(trip, observer, "rail"))
    if first == "site":
        trip.begin()
    mortal.kill()
    eventually(lambda: not owner(trip, observer, "rail"))
    if trip.decided_by == "peers":
        assert Running(Log(trip, "hotel").side.take_part).result() == "abort"
    assert Running(trip.decide).result() is False
    assert trip.reason == "rail left before its vote"


@pytest.mark.slow
def test_dead_coordinator_leaves_nobody_waiting(
    trip: Transaction, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    for votes, outcome in ((SITES[:2], "abort"), (SITES, "commit")):
        mortal = make_mortal()
        sites = [Log(trip, site) for site in votes]
        running = [Running(each.side.take_part) for each in sites]
        mortal.do(trip.begin, "x")
        if trip.decided_by == "coordinator":
            eventually(lambda: list(trip.votes().values()).count("commit") == len(votes))  # noqa: B023
        mortal.kill()
        assert results(running) == [outcome] * len(votes)
        assert trip.outcome == outcome
        eventually(lambda: not left(trip, observer))


@pytest.mark.slow_on("zookeeper")
def test_site_that_restarts_after_its_vote_learns_the_decision(
    trip: Transaction, make_mortal: Callable[..., Peer], peer: Peer, observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.start(remote.take_part, trip, "rail")
    trip.begin("x")
    eventually(lambda: trip.votes()["rail"] == "commit")
    mortal.kill()
    for site in SITES[:2]:
        trip.participant(site).vote(True)
    assert trip.decide(PATIENCE)
    assert results([Running(Log(trip, site).side.take_part) for site in SITES[:2]]) == ["commit"] * 2
    assert left(trip, observer)
    with pytest.raises(DeadlineError, match="waits for rail"):
        trip.begin("next", timeout=UNIT)
    assert peer.do(remote.take_part, trip, "rail") == ("commit", [("commit", "x")])
    eventually(lambda: not left(trip, observer))


def test_session_that_ends_between_vote_and_decision_changes_nothing(
    client: Client, trip: Transaction, make_client: MakeClient
) -> None:
    other = make_client()
    far = Log(Transaction(SITES, trip.decided_by, name="trip", client=other), "rail")
    running = Running(far.side.take_part)
    trip.begin("x")
    eventually(lambda: trip.votes()["rail"] == "commit")
    expire(other)
    for site in SITES[:2]:
        trip.participant(site).vote(True)
    assert trip.decide(PATIENCE)
    assert running.result() == "commit"
    assert far.said == ["prepare", ("commit", "x")]
    other.close()


@pytest.mark.slow_on("zookeeper")
def test_second_process_takes_the_place_of_a_site_that_went(
    trip: Transaction, peer: Peer, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.start(remote.take_part, trip, "rail")
    eventually(lambda: any(path.endswith("/s_rail") for path in observer.tree(trip.path)))
    peer.start(remote.take_part, trip, "rail")
    ours = owner(trip, observer, "rail")
    mortal.kill()
    eventually(lambda: owner(trip, observer, "rail") not in (0, ours))
    for site in SITES[:2]:
        Running(Log(trip, site).side.take_part)
    trip.begin("x")
    assert trip.decide(PATIENCE)
    assert peer.result() == ("commit", ["prepare", ("commit", "x")])


def test_vote_after_the_decision_is_refused_with_it(trip: Transaction, observer: Observer) -> None:
    rail, bank = trip.participant("rail"), trip.participant("bank")
    with pytest.raises(UsageError, match="nothing to vote about"):
        rail.vote(True)
    trip.begin()
    bank.vote(True)
    bank.vote(True)
    assert trip.abort("weather")
    for late in (rail, bank):
        with pytest.raises(VoteRefusedError, match=rf"'{late.site}'.*decision is abort \(weather\)"):
            late.vote(True)
    assert trip.abort("again")
    assert not trip.decide()
    assert bank.take_part() == "abort"
    eventually(lambda: not left(trip, observer))
    with pytest.raises(VoteRefusedError, match="abort"):
        rail.vote(True)


def test_vote_cannot_be_changed(trip: Transaction) -> None:
    rail = trip.participant("rail")
    trip.begin()
    rail.vote(True)
    with pytest.raises(UsageError):
        rail.vote(False)
    assert trip.votes() == {"bank": None, "hotel": None, "rail": "commit"}
    trip.abort()
    rail.take_part()


@pytest.mark.parametrize("vote", ["no", 1, None])
def test_what_is_no_vote_does_not_count_as_one(trip: Transaction, vote: Any) -> None:
    rail = Log(trip, "rail", vote)
    trip.begin()
    with pytest.raises(TypeError, match=f"True for commit or False for abort, not {vote!r}"):
        rail.side.vote(vote)
    assert trip.votes()["rail"] is None
    for site in SITES[:2]:
        trip.participant(site).vote(True)
    running = Running(rail.side.take_part)
    assert not trip.decide(PATIENCE)
    assert running.result() == "abort"
    assert (
        trip.reason
        == f"rail voted abort: TypeError: prepare: a vote is True for commit or False for abort, not {vote!r}"
    )


def test_members_with_other_terms_are_refused_with_both(trip: Transaction, peer: Peer) -> None:
    trip.begin()
    other = Transaction(["bank", "boat"], trip.decided_by, name="trip", path=None)
    with pytest.raises(MismatchError, match=r"list of sites .* \['bank', 'hotel', 'rail'\], not \['bank', 'boat'\]"):
        other.begin()
    assert peer.do(remote.error_text, other.begin).startswith("MismatchError: the list of sites")
    wrong = "peers" if trip.decided_by == "coordinator" else "coordinator"
    third = Transaction(SITES, wrong, name="trip")
    assert f"is {trip.decided_by}, not {wrong}" in peer.do(remote.error_text, third.begin)
    trip.abort()
    eventually(lambda: trip.votes() == dict.fromkeys(SITES))
    peer.do(remote.in_turn, other.begin, other.abort)  # no site uses the first configuration any more


def test_function_that_fails_is_called_again(trip: Transaction) -> None:
    tries: list[str] = []

    def commit(item: str) -> None:
        tries.append(item)
        if len(tries) == 1:
            raise LookupError(item)

    alone = Transaction(["one"], trip.decided_by, name="alone")
    site = alone.participant("one", commit=commit)
    alone.begin("x")
    site.vote(True)
    assert alone.decide()
    with pytest.raises(LookupError):
        site.take_part()
    assert site.take_part(PATIENCE) == "commit"
    assert tries == ["x", "x"]
    assert site.take_part(UNIT) is None


def test_site_that_is_interrupted_when_it_has_done_it_does_it_once(
    trip: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    struck: list[str] = []

    def strike(path: str) -> Delete:
        if "/commit-" in path and not struck:
            struck.append(path)
            raise KeyboardInterrupt
        return Delete(path)

    alone = Transaction(["one"], trip.decided_by, name="alone")
    site = alone.participant("one", commit=done.append)
    alone.begin("x")
    site.vote(True)
    assert alone.decide()
    monkeypatch.setattr(site_protocol, "Delete", strike)
    with pytest.raises(KeyboardInterrupt):
        site.take_part()
    alone.begin("y", PATIENCE)
    site.vote(True)
    assert alone.decide()
    assert site.take_part(PATIENCE) == "commit"
    assert done == ["x", "y"]


def test_site_is_still_there_after_its_function_failed(client: Client, decider: str, observer: Observer) -> None:
    """And so it is not taken for dead when the next transaction begins."""
    alone = Transaction(["one"], decider, name="alone")
    site = alone.participant("one", commit=lambda item: [][item])
    with site:
        alone.begin(0)
        running = Running(site.take_part)
        assert alone.decide(PATIENCE)
        with pytest.raises(IndexError):
            running.result()
        eventually(lambda: is_quiet(client) and is_quiet(client))  # the first may come before what the failure begins
        assert owner(alone, observer, "one") == client.session_id


def test_site_that_takes_part_again_after_an_interrupted_leave_stays(
    trip: Transaction, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its background work comes late, and removes no site."""
    late: list[Coroutine[Any, Any, Any]] = []
    seen: list[int] = []

    def prepare(_: str) -> bool:
        alone.client.run(late.pop())
        seen.append(owner(alone, observer, "one"))
        return True

    def strike(protocol: Coroutine[Any, Any, Any]) -> None:
        protocol.close()
        raise KeyboardInterrupt

    alone = Transaction(["one"], trip.decided_by, name="alone")
    site = alone.participant("one", prepare=prepare)
    assert site.take_part(UNIT) is None
    with monkeypatch.context() as patched:
        patched.setattr(alone, "_run", strike)
        patched.setattr(alone.client, "background", late.append)
        with pytest.raises(KeyboardInterrupt):
            site.leave()
    alone.begin("x")
    running = Running(site.take_part)
    assert alone.decide(PATIENCE)
    assert running.result() == "commit"
    assert seen == [alone.client.session_id]


def test_transaction_after_transaction(trip: Transaction) -> None:
    sites = [Log(trip, site) for site in SITES]
    running = [Running(each.side.run) for each in sites]
    for number in range(3):
        trip.begin(number, PATIENCE)
        assert trip.decide(PATIENCE)
    eventually(lambda: all(len(site.said) == 6 for site in sites))
    assert sites[0].said[1::2] == [("commit", number) for number in range(3)]
    trip.client.close()
    results(running)


def test_wrong_arguments_are_refused_at_the_call(client: Client, decider: str) -> None:
    for sites, error in (("bank", TypeError), ([1], TypeError), ([], ValueError), (["a", "a"], ValueError)):
        with pytest.raises(error):
            Transaction(sites, decider, name="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'coordinator' or 'peers', not 'me'"):
        Transaction(["a"], "me", name="x")
    made = Transaction(["b", "a"], decider, name="x")
    assert made.sites == ("a", "b")
    with pytest.raises(ValueError, match=r"'c' is none of the sites \['a', 'b'\]"):
        made.participant("c")
    with pytest.raises(TypeError, match="prepare must be callable"):
        made.participant("a", "no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a Transaction"):
        Participant("x", "a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="call begin"):
        made.decide()
    for payload in (lambda: 0, b"x" * 1_100_000):
        with pytest.raises(PayloadError):
            made.begin(payload)
    assert made.outcome is None


def test_it_travels_by_name(trip: Transaction, peer: Peer) -> None:
    again = pickle.loads(pickle.dumps(trip))
    assert (again.name, again.sites, again.decided_by) == (trip.name, trip.sites, trip.decided_by)
    trip.begin()
    trip.participant("rail").vote(True)
    assert peer.do(again.votes) == {"bank": None, "hotel": None, "rail": "commit"}
    assert peer.do(remote.catch, again.decide) == "UsageError"
    trip.abort()
    trip.participant("rail").take_part()
