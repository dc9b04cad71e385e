"""Two-phase commit between threads, clients and processes: all sites commit, or all abort.

Source: ZooKeeper recipes, Two-phased Commit.
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
    """Yield a transaction whose sites are present until the client closes."""
    yield Transaction(SITES, decider, name="trip")
    client.close()


class Log:
    """A site that records what it was asked to do."""

    def __init__(self, trip: Transaction, site: str, vote: Any = True) -> None:
        self.calls: list[Any] = []
        self.vote = vote
        self.participant = trip.participant(
            site, self.prepare, lambda item: self.calls.append(("commit", item)), lambda _: self.calls.append("abort")
        )

    def prepare(self, item: Any) -> Any:
        self.calls.append("prepare")
        if isinstance(self.vote, Exception):
            raise self.vote
        return self.vote


def remaining(trip: Transaction, observer: Observer) -> list[str]:
    return [path for path in observer.tree(trip.path) if "/t_" in path]


def owner(trip: Transaction, observer: Observer, site: str) -> int:
    """Return the session that represents this site, or 0."""
    stat = observer.kazoo.exists(f"{trip.path}/sites/s_{site}")
    return stat.ephemeralOwner if stat else 0


def test_all_sites_commit_when_all_vote_commit(trip: Transaction, peers: list[Peer], observer: Observer) -> None:
    for peer, site in zip(peers, SITES, strict=True):
        peer.start(remote.take_part, trip, site)
    assert trip.outcome is None
    trip.begin({"to": "Oslo"})
    assert trip.decide(PATIENCE)
    assert (trip.outcome, trip.reason) == ("commit", "")
    calls = ["prepare", ("commit", {"to": "Oslo"})]
    assert [peer.result() for peer in peers] == [("commit", calls)] * 3
    eventually(lambda: not remaining(trip, observer))
    assert trip.outcome == "commit"


@pytest.mark.parametrize("vote", [False, ValueError("no room")])
def test_all_sites_abort_early_when_one_votes_abort(trip: Transaction, vote: Any, observer: Observer) -> None:
    """Before the others have voted ("a node can decide abort earlier")."""
    hotel = Log(trip, "hotel", vote)
    trip.begin()
    running = Running(hotel.participant.take_part)
    assert not trip.decide()
    assert running.result() == "abort"
    assert hotel.calls == ["prepare", "abort"]
    assert trip.reason.startswith("hotel voted abort")
    assert ("no room" in trip.reason) is isinstance(vote, ValueError)
    eventually(lambda: not remaining(trip, observer))


def test_site_that_does_not_vote_in_time_aborts_all(trip: Transaction, observer: Observer) -> None:
    bank = Log(trip, "bank")
    running = Running(bank.participant.take_part)
    trip.begin()
    eventually(lambda: trip.votes()["bank"] == "commit")
    assert not trip.decide(UNIT)
    assert trip.reason == "no vote of hotel, rail in time"
    assert running.result() == "abort"
    assert bank.calls == ["prepare", "abort"]
    eventually(lambda: not remaining(trip, observer))


@pytest.mark.slow_on("zookeeper")
def test_site_killed_before_its_vote_aborts_all(
    trip: Transaction, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.start(remote.take_part, trip, "rail", True)
    trip.begin()
    others = [Running(Log(trip, site).participant.take_part) for site in SITES[:2]]
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
def test_site_killed_before_the_decision_was_requested_aborts_all(
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
        assert Running(Log(trip, "hotel").participant.take_part).result() == "abort"
    assert Running(trip.decide).result() is False
    assert trip.reason == "rail left before its vote"


@pytest.mark.slow
def test_sites_decide_after_the_coordinator_was_killed(
    trip: Transaction, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    for votes, outcome in ((SITES[:2], "abort"), (SITES, "commit")):
        mortal = make_mortal()
        sites = [Log(trip, site) for site in votes]
        running = [Running(each.participant.take_part) for each in sites]
        mortal.do(trip.begin, "x")
        if trip.decided_by == "coordinator":
            eventually(lambda: list(trip.votes().values()).count("commit") == len(votes))  # noqa: B023
        mortal.kill()
        assert results(running) == [outcome] * len(votes)
        assert trip.outcome == outcome
        eventually(lambda: not remaining(trip, observer))


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
    assert results([Running(Log(trip, site).participant.take_part) for site in SITES[:2]]) == ["commit"] * 2
    assert remaining(trip, observer)
    with pytest.raises(DeadlineError, match="waits for rail"):
        trip.begin("next", timeout=UNIT)
    assert peer.do(remote.take_part, trip, "rail") == ("commit", [("commit", "x")])
    eventually(lambda: not remaining(trip, observer))


def test_session_loss_between_vote_and_decision_does_not_change_the_outcome(
    client: Client, trip: Transaction, make_client: MakeClient
) -> None:
    other = make_client()
    far = Log(Transaction(SITES, trip.decided_by, name="trip", client=other), "rail")
    running = Running(far.participant.take_part)
    trip.begin("x")
    eventually(lambda: trip.votes()["rail"] == "commit")
    expire(other)
    for site in SITES[:2]:
        trip.participant(site).vote(True)
    assert trip.decide(PATIENCE)
    assert running.result() == "commit"
    assert far.calls == ["prepare", ("commit", "x")]
    other.close()


@pytest.mark.slow_on("zookeeper")
def test_second_process_takes_over_the_site_of_a_killed_one(
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
        Running(Log(trip, site).participant.take_part)
    trip.begin("x")
    assert trip.decide(PATIENCE)
    assert peer.result() == ("commit", ["prepare", ("commit", "x")])


def test_vote_after_the_decision_raises_with_the_decision(trip: Transaction, observer: Observer) -> None:
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
    eventually(lambda: not remaining(trip, observer))
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
def test_invalid_vote_is_refused_and_an_invalid_result_of_prepare_aborts(trip: Transaction, vote: Any) -> None:
    rail = Log(trip, "rail", vote)
    trip.begin()
    with pytest.raises(TypeError, match=f"True for commit or False for abort, not {vote!r}"):
        rail.participant.vote(vote)
    assert trip.votes()["rail"] is None
    for site in SITES[:2]:
        trip.participant(site).vote(True)
    running = Running(rail.participant.take_part)
    assert not trip.decide(PATIENCE)
    assert running.result() == "abort"
    assert (
        trip.reason
        == f"rail voted abort: TypeError: prepare: a vote is True for commit or False for abort, not {vote!r}"
    )


def test_other_sites_or_decider_raise_mismatch_error_with_both_values(trip: Transaction, peer: Peer) -> None:
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
    peer.do(remote.in_turn, other.begin, other.abort)  # no site is left with the previous terms


def test_commit_function_that_raised_is_called_again(trip: Transaction) -> None:
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


def test_site_interrupted_after_its_commit_function_does_not_call_it_again(
    trip: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    interrupted: list[str] = []

    def interrupt(path: str) -> Delete:
        if "/commit-" in path and not interrupted:
            interrupted.append(path)
            raise KeyboardInterrupt
        return Delete(path)

    alone = Transaction(["one"], trip.decided_by, name="alone")
    site = alone.participant("one", commit=done.append)
    alone.begin("x")
    site.vote(True)
    assert alone.decide()
    monkeypatch.setattr(site_protocol, "Delete", interrupt)
    with pytest.raises(KeyboardInterrupt):
        site.take_part()
    alone.begin("y", PATIENCE)
    site.vote(True)
    assert alone.decide()
    assert site.take_part(PATIENCE) == "commit"
    assert done == ["x", "y"]


def test_site_stays_present_after_its_function_raised(client: Client, decider: str, observer: Observer) -> None:
    """Otherwise the next transaction would consider it as having left."""
    alone = Transaction(["one"], decider, name="alone")
    site = alone.participant("one", commit=lambda item: [][item])
    with site:
        alone.begin(0)
        running = Running(site.take_part)
        assert alone.decide(PATIENCE)
        with pytest.raises(IndexError):
            running.result()
        # the first check may precede the work that the failure starts
        eventually(lambda: is_quiet(client) and is_quiet(client))
        assert owner(alone, observer, "one") == client.session_id


def test_site_that_takes_part_again_after_an_interrupted_leave_stays_present(
    trip: Transaction, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the interrupted leave runs late, in the background, and must not remove the site."""
    late: list[Coroutine[Any, Any, Any]] = []
    seen: list[int] = []

    def prepare(_: str) -> bool:
        alone.client.run(late.pop())
        seen.append(owner(alone, observer, "one"))
        return True

    def interrupt(protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> None:
        protocol.close()
        raise KeyboardInterrupt

    alone = Transaction(["one"], trip.decided_by, name="alone")
    site = alone.participant("one", prepare=prepare)
    assert site.take_part(UNIT) is None
    with monkeypatch.context() as patched:
        patched.setattr(alone, "_run", interrupt)
        patched.setattr(alone.client, "background", late.append)
        with pytest.raises(KeyboardInterrupt):
            site.leave()
    alone.begin("x")
    running = Running(site.take_part)
    assert alone.decide(PATIENCE)
    assert running.result() == "commit"
    assert seen == [alone.client.session_id]


def test_consecutive_transactions_of_the_same_sites(trip: Transaction) -> None:
    sites = [Log(trip, site) for site in SITES]
    running = [Running(each.participant.run) for each in sites]
    for number in range(3):
        trip.begin(number, PATIENCE)
        assert trip.decide(PATIENCE)
    eventually(lambda: all(len(site.calls) == 6 for site in sites))
    assert sites[0].calls[1::2] == [("commit", number) for number in range(3)]
    trip.client.close()
    results(running)


def test_invalid_arguments_are_refused_at_the_call(client: Client, decider: str) -> None:
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


def test_pickled_transaction_can_read_votes_but_not_decide(trip: Transaction, peer: Peer) -> None:
    again = pickle.loads(pickle.dumps(trip))
    assert (again.name, again.sites, again.decided_by) == (trip.name, trip.sites, trip.decided_by)
    trip.begin()
    trip.participant("rail").vote(True)
    assert peer.do(again.votes) == {"bank": None, "hotel": None, "rail": "commit"}
    assert peer.do(remote.catch, again.decide) == "UsageError"
    trip.abort()
    trip.participant("rail").take_part()
