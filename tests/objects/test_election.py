"""Election between threads, clients and processes."""

from __future__ import annotations

import json
import math
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import lead, lead_and_resign
from helpers.request_counts import Cost, counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, waiting_calls

from distsync import LockLostError, NotHeldError, PayloadPickleError, PayloadTooLargeError
from distsync._client.client import Client
from distsync._client.lease import holds
from distsync._protocols.state import election as protocol
from distsync.recipes import Election, Group

MakeClient = Callable[..., Client]

pytestmark = pytest.mark.usefixtures("no_guards")


def test_leader_is_visible_to_other_clients_and_processes(client: Client, other: Client, peer: Peer) -> None:
    election = Election({"port": 80}, name="e")
    seen = Election(name="e", client=other)
    assert seen.leader is None
    with election:
        assert (election.is_leader, seen.is_leader) == (True, False)
        assert seen.wait_for_leader(PATIENCE).data == {"port": 80}
        leader = peer.do(election.find_leader)
        assert leader.data == {"port": 80} == seen.leader.data
        assert leader.fencing_token == election.fencing_token == seen.leader.fencing_token
        assert leader.owner.pid is not None
    eventually(lambda: seen.leader is None)
    eventually(lambda: peer.do(election.find_leader) is None)  # its cache is updated by its own watch


def test_other_clients_can_read_the_leader_from_its_znode(client: Client, observer: Observer) -> None:
    """LEADER is an ephemeral znode with the leader's data.

    Source: ZooKeeper recipes, Leader Election, and a mailing list thread about it.
    """
    election = Election("10.0.0.7:8080", name="e")
    with election:
        data, stat = observer.kazoo.get(f"{election.path}/LEADER")
        assert json.loads(data)["data"] == "10.0.0.7:8080"
        assert stat.ephemeralOwner == client.session_id
    assert not observer.kazoo.exists(f"{election.path}/LEADER")
    assert observer.ephemerals(election.path) == []


def test_fencing_token_grows_from_term_to_term_within_a_process(client: Client) -> None:
    election = Election(name="e")
    first = lead(election)
    second = Running(lead_and_resign, Election(name="e"))
    eventually(lambda: waiting_calls(client))
    election.release()
    assert second.result() > first


def test_release_wakes_only_the_next_candidate(client: Client, make_client: MakeClient) -> None:
    others, enough = [make_client() for _ in range(3)], threading.Event()
    election = Election(name="e")
    election.acquire()
    running = []
    for one in others:
        running.append(Running(lead_until, Election(name="e", client=one), enough))
        eventually(lambda one=one: waiting_calls(one))
    before = [one.statistics().events for one in others]
    election.release()
    eventually(lambda: Election(name="e", client=others[0]).is_leader)
    assert [one.statistics().events - then for one, then in zip(others, before, strict=True)] == [1, 0, 0]
    enough.set()
    for thread in running:
        thread.result()


def lead_until(election: Election, enough: threading.Event) -> None:
    with election:
        enough.wait(PATIENCE)


def test_candidates_are_listed_in_fifo_order(client: Client, other: Client) -> None:
    election = Election("a", name="e")
    with election:
        second = Running(lead_and_resign, Election("b", name="e", client=other))
        eventually(lambda: len(election.candidates()) == 2)
        assert [each.data for each in election.candidates()] == ["a", "b"]
        assert election.candidates()[0].fencing_token == election.fencing_token
    second.result()


def test_wait_for_leader_returns_the_leader_or_none_on_timeout(client: Client, other: Client) -> None:
    seen = Election(name="e", client=other)
    assert seen.wait_for_leader(UNIT) is None
    waiting = Running(seen.wait_for_leader, PATIENCE)
    eventually(lambda: waiting_calls(other))
    with Election("mine", name="e"):
        assert waiting.result().data == "mine"
        assert seen.wait_for_leader(0).data == "mine"


def test_on_change_gets_each_leader_and_each_announcement(client: Client, other: Client) -> None:
    changes: list[Any] = []
    seen = Election(name="e", client=other, on_change=lambda *leaders: changes.append(leaders))
    assert seen.leader is None
    election = Election("mine", name="e")
    with election:
        eventually(lambda: len(changes) == 1)
        election.announce({"done": [1, 2]})
        eventually(lambda: len(changes) == 2)
        assert seen.leader.announcement == {"done": [1, 2]}
    eventually(lambda: len(changes) == 3)
    shown = [[each and (each.data, each.announcement) for each in change] for change in changes]
    done = ("mine", {"done": [1, 2]})
    assert shown == [[None, ("mine", None)], [("mine", None), done], [done, None]]
    seen.on_change = None
    with election:
        assert election.leader.announcement is None
    assert len(changes) == 3


def test_only_the_leader_announces(client: Client, other: Client, observer: Observer) -> None:
    election = Election(name="e")
    with pytest.raises(NotHeldError):
        election.announce(1)
    election.acquire()
    with pytest.raises(PayloadPickleError, match="an announcement"):
        election.announce({1})
    with pytest.raises(NotHeldError):
        Election(name="e", client=other).announce(1)
    observer.kazoo.delete(f"{election.path}/LEADER")
    election.announce(2)
    with counted(client) as cost:
        election.announce(3)
    assert cost == Cost(1, 1)
    assert election.find_leader(sync=True).announcement == 3
    observer.kazoo.delete(election.candidates()[0].owner.path)
    with pytest.raises(LockLostError):
        election.announce(4)
    with pytest.raises(LockLostError):
        election.release()


def test_announcement_is_in_a_leader_znode_that_was_recreated(
    client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "GUARD_AFTER_S", 0.01)
    election = Election("mine", name="e")
    with election:
        election.announce("done")
        observer.kazoo.delete(f"{election.path}/LEADER")
        eventually(lambda: observer.kazoo.exists(f"{election.path}/LEADER"))
        assert election.find_leader(sync=True).announcement == "done"


def test_leader_waits_until_a_later_leader_notifies_it(client: Client, other: Client) -> None:
    first, second = Election("first", name="e"), Election("second", name="e", client=other)

    def lead_and_wait() -> tuple[int, bool, int]:
        with first, first:
            before = first.fencing_token
            return before, first.wait(PATIENCE), first.fencing_token

    waiting = Running(lead_and_wait)
    assert second.wait_for_leader(PATIENCE).data == "first"
    with second:
        assert second.leader.data == "second"
        assert not first.is_leader
        second.notify()
        middle = second.fencing_token
    before, notified, after = waiting.result()
    assert notified
    assert before < middle < after
    assert not first.is_leader
    assert first.leader is None


def test_waits_and_notifications_need_leadership(client: Client, other: Client) -> None:
    election, onlooker = Election(name="e"), Election(name="e", client=other)
    with election:
        assert not election.wait(0)
        assert election.is_leader
        assert election.wait_for(lambda: 7) == 7
        for refused in (onlooker.wait, onlooker.notify, onlooker.notify_all, lambda: onlooker.wait_for(lambda: 0)):
            with pytest.raises(RuntimeError):
                refused()
        with pytest.raises(NotHeldError):
            Running(election.release).result()


def test_leader_may_acquire_again(client: Client) -> None:
    election = Election(name="e")
    with election:
        token = election.fencing_token
        with counted(client) as nested, election:
            assert election.fencing_token == token
        assert nested == Cost()
        assert election.is_leader
    assert not election.is_leader


def test_next_candidate_sends_one_request_after_the_end_of_a_term(client: Client, other: Client) -> None:
    """A candidate that saw only one ahead need not look for others after the event."""
    election = Election(name="e")
    election.acquire()
    following = Election("next", name="e", client=other)
    second = Running(lead_and_resign, following)
    eventually(lambda: waiting_calls(other))
    with counted(other) as handover:
        election.release()
        second.result()
    assert handover == Cost(2, 2, events=1), "1 to lead and 1 to resign"


def test_next_candidate_leads_after_the_leaders_process_was_killed(
    client: Client, make_mortal: Callable[..., Peer]
) -> None:
    mortal, election = make_mortal(), Election("mine", name="e")
    first = mortal.do(lead, Election("theirs", name="e"))
    assert election.leader.data == "theirs"
    assert not election.acquire(blocking=False)
    mortal.kill()
    assert lead(election) > first
    assert election.find_leader(sync=True).data == "mine"
    election.release()


def test_leftover_leader_znode_is_replaced(client: Client, observer: Observer) -> None:
    election = Election("mine", name="e")
    with election:
        pass
    observer.kazoo.create(f"{election.path}/LEADER", b"left over", ephemeral=True)
    assert election.find_leader(sync=True).data is None
    with election:
        assert election.leader.data == "mine"
    assert election.leader is None


def test_deleted_leader_znode_is_recreated(client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "GUARD_AFTER_S", 0.01)
    election = Election("mine", name="e")
    with election:
        for _ in range(2):
            czxid = observer.kazoo.exists(f"{election.path}/LEADER").czxid
            observer.kazoo.delete(f"{election.path}/LEADER")
            eventually(lambda: observer.kazoo.exists(f"{election.path}/LEADER"))
            assert observer.kazoo.exists(f"{election.path}/LEADER").czxid > czxid
        assert election.is_leader
    assert not observer.kazoo.exists(f"{election.path}/LEADER")


def test_deposed_leader_is_notified_and_its_leader_znode_is_deleted(
    client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "GUARD_AFTER_S", 0.01)
    calls: list[Any] = []
    election = Election(name="e", on_elected=calls.append, on_deposed=calls.append)
    token = lead(election)
    observer.kazoo.delete(election.candidates()[0].owner.path)
    eventually(lambda: len(calls) == 2)
    assert [type(each).__name__ for each in calls] == ["FencingToken", "LockLostError"]
    assert calls[0] == token
    assert not election.is_leader
    with pytest.raises(LockLostError):
        election.release()
    eventually(lambda: election.find_leader(sync=True) is None)
    eventually(lambda: observer.ephemerals(election.path) == [])


def test_other_client_can_depose_the_leader(client: Client, other: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "GUARD_AFTER_S", 0.01)
    election, onlooker = Election(name="e"), Election(name="e", client=other)
    election.acquire()
    onlooker.revoke(grace=UNIT)
    eventually(lambda: not election.is_leader)
    with pytest.raises(LockLostError):
        election.release()
    eventually(lambda: onlooker.leader is None)


def test_run_calls_the_function_once_as_leader_and_resigns(client: Client) -> None:
    election = Election(name="e")
    assert election.run(lambda number: (number, election.is_leader), 7) == (7, True)
    assert not election.is_leader
    with pytest.raises(LookupError):
        election.run({}.__getitem__, "nothing")
    assert election.leader is None


def test_costs_of_an_election(client: Client, other: Client) -> None:
    election, seen = Election(name="e"), Election(name="e", client=other)
    with election:
        pass
    with counted(client) as acquire:
        election.acquire()
    assert acquire == Cost(3, 2)
    assert seen.leader == election.leader
    with counted(client, other) as look:
        assert seen.leader == election.leader
    assert look == Cost()
    with counted(client) as release:
        election.release()
    assert (release.requests, release.round_trips) == (1, 1)


def test_invalid_data_and_arguments_raise(client: Client) -> None:
    with pytest.raises(PayloadPickleError, match="the data of a candidate"):
        Election({1, 2}, name="e")
    election = Election(name="e")
    with pytest.raises(NotHeldError):
        election.release()
    with pytest.raises(ValueError, match="non-blocking"):
        election.acquire(False, 1)


def test_pickled_election_has_the_same_name_and_data(client: Client) -> None:
    election = pickle.loads(pickle.dumps(Election([1], name="e")))
    assert (election.name, election._data) == ("e", [1])


def test_data_of_any_script_may_be_as_large_as_that_in_ascii(client: Client, other: Client) -> None:
    """LEADER contained each character in six bytes or more, and exceeded the limit of a request."""
    text = "ü" * 400_000
    with Election(text, name="e"):
        leader = Election(name="e", client=other).wait_for_leader(PATIENCE)
        assert leader is not None
        assert leader.data == text


def test_announcement_that_is_too_large_with_the_data_changes_nothing(
    client: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEADER was not created again afterwards, because it would have contained that announcement."""
    monkeypatch.setattr(protocol, "GUARD_AFTER_S", 0.01)
    election = Election("x" * 600_000, name="e")
    with election:
        election.announce("done")
        with pytest.raises(PayloadTooLargeError):
            election.announce("y" * 600_000)
        observer.kazoo.delete(f"{election.path}/LEADER")
        eventually(lambda: observer.kazoo.exists(f"{election.path}/LEADER"))
        assert election.find_leader(sync=True).announcement == "done"


def test_leadership_that_is_lost_at_once_calls_on_elected_before_on_deposed(client: Client) -> None:
    """A program that works from on_elected to on_deposed would otherwise never stop."""
    calls: list[str] = []

    class LostAtOnce(Election):
        def _tell_elected(self, grant: Any) -> None:
            self.client._runtime.mark_lost(grant.entry.path)  # type: ignore[union-attr]
            super()._tell_elected(grant)

    election = LostAtOnce(
        name="e", on_elected=lambda _: calls.append("elected"), on_deposed=lambda _: calls.append("deposed")
    )
    election.acquire()
    eventually(lambda: len(calls) == 2)
    assert calls == ["elected", "deposed"]
    with pytest.raises(LockLostError):
        election.release()


def test_refused_timeout_leaves_no_coroutine_that_was_never_awaited(client: Client) -> None:
    election = Election(name="e")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OverflowError):
            election.wait_for_leader(math.inf)
        with pytest.raises(TypeError):
            election.wait_for_leader("1")  # type: ignore[arg-type]
        with pytest.raises(OverflowError):
            Group(name="g").wait(math.inf)
    with pytest.raises(TypeError, match="on_deposed must be callable"):
        Election(name="e", on_deposed=3)  # type: ignore[arg-type]


def test_thread_whose_name_is_not_unicode_may_be_a_candidate(client: Client) -> None:
    """As the path of a program in a folder with such a name, it comes from the file system's bytes."""
    election = Election(name="e")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.current_thread(), "name", "caf\udce9")
        with election:
            assert election.leader.owner.thread == "caf?"


def test_invalid_timeout_is_refused_whether_or_not_the_leader_is_cached(client: Client) -> None:
    election = Election(name="e")
    with election:
        for _ in range(2):
            with pytest.raises(ValueError, match="timeout must be seconds >= 0"):
                election.find_leader(timeout=-2)
            with pytest.raises(TypeError, match="cannot be interpreted as a number of seconds"):
                election.find_leader(timeout="1")  # type: ignore[arg-type]
            assert election.leader is not None
