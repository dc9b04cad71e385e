"""Partitioner shared by clients and processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import take_part
from helpers.request_counts import counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire
from kazoo.security import make_acl

from distsync import DeadlineError, MismatchError, NotHeldError
from distsync._client.client import Client
from distsync._protocols.state import partitioner
from distsync.recipes import Partitioner

MakeClient = Callable[..., Client]
SHARES = [f"s/{number}" for number in range(7)]


def balance(*partitioners: Partitioner) -> list[int] | None:
    """Return how many shares each one holds, sorted, or None unless each share is held exactly once."""
    held = [each.shares for each in partitioners]
    together = sorted(share for shares in held for share in shares)
    return sorted(len(shares) for shares in held) if together == sorted(SHARES) else None


def test_shares_are_balanced_and_moved_only_where_necessary(client: Client, make_client: MakeClient) -> None:
    first, second, third = (
        Partitioner(SHARES, name="p", client=each) for each in (client, make_client(), make_client())
    )
    first.join()
    assert first.wait_for(lambda: len(first) == 7, PATIENCE)
    before = {share: first.fencing_token(share) for share in first}
    second.join()
    eventually(lambda: balance(first, second) == [3, 4])
    third.join()
    eventually(lambda: balance(first, second, third) == [2, 2, 3])
    assert all(first.fencing_token(share) == before[share] for share in first)
    moved = first.shares | second.shares
    third.leave()
    eventually(lambda: balance(first, second) == [3, 4])
    assert first.shares | second.shares > moved
    first.leave()
    eventually(lambda: balance(second) == [7])
    second.leave()


def test_memory_of_a_member_does_not_grow_with_the_number_of_shares_it_got(
    client: Client, make_client: MakeClient
) -> None:
    def recorded() -> int:
        """Return how many znodes and holds the client's background protocols have recorded."""
        assert client._runtime is not None
        runs = tuple(client._runtime.background_thread._runs)
        return sum(len(each.created_nodes.created_paths) + len(each.created_nodes.holds) for each in runs)

    first, second = Partitioner(SHARES, name="p"), Partitioner(SHARES, name="p", client=make_client())
    first.join()
    for _ in range(4):
        second.join()
        eventually(lambda: balance(first, second) == [3, 4])
        second.leave()
        eventually(lambda: balance(first, second) == [0, 7])
    eventually(lambda: recorded() == 0)
    first.leave()


def test_only_one_of_several_concurrent_joins_of_a_partitioner_succeeds(client: Client, observer: Observer) -> None:
    for number in range(5):
        ours = Partitioner(["a", "b"], name=f"p{number}")
        joining = [Running(ours.join) for _ in range(3)]
        ended = [error_of(each) for each in joining]
        assert len(observer.ephemerals(f"{ours.path}/members")) == 1
        assert ended.count(None) == 1
        assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)  # noqa: B023
        ours.leave()
        assert not observer.ephemerals(ours.path)


def error_of(joining: Running) -> str | None:
    """Return the message of the error, or None if the thread joined."""
    try:
        joining.result()
    except RuntimeError as error:
        return str(error)
    return None


def test_share_moves_only_after_its_holder_has_released_it(client: Client, make_client: MakeClient) -> None:
    may_release, asked = threading.Event(), threading.Event()

    def release(share: str) -> None:
        asked.set()
        assert share in first
        may_release.wait(PATIENCE)

    first = Partitioner(["only", "two"], name="p", on_release=release)
    second = Partitioner(["only", "two"], name="p", client=make_client())
    first.join()
    assert first.wait_for(lambda: len(first) == 2, PATIENCE)
    second.join()
    assert asked.wait(PATIENCE)
    assert not second.wait(UNIT)
    may_release.set()
    assert second.wait_for(lambda: len(second) == 1, PATIENCE)
    assert first.shares.isdisjoint(second.shares)
    first.leave()
    second.leave()


@pytest.mark.slow_on("zookeeper")
def test_leave_that_outlasts_the_session_timeout_raises_and_finishes_in_the_background(
    make_client: MakeClient, observer: Observer
) -> None:
    may_release = threading.Event()
    ours = Partitioner(["a", "b"], name="p", client=make_client(session_timeout=2.0))
    ours.on_release = lambda share: may_release.wait(PATIENCE)
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)
    with pytest.raises(DeadlineError, match="giving up shares"):
        ours.leave()
    assert len(ours) > 0
    may_release.set()
    eventually(lambda: not observer.ephemerals(ours.path))
    eventually(lambda: ours._core.member is None)
    with pytest.raises(NotHeldError):
        ours.leave()


def test_shares_of_a_killed_member_are_taken_by_the_others(client: Client, make_mortal: Callable[..., Peer]) -> None:
    ours, mortal = Partitioner(SHARES, name="p"), make_mortal()
    assert mortal.do(take_part, ours, 7) == 7
    with ours:
        assert ours.wait_for(lambda: len(ours) >= 3, PATIENCE)
        mortal.kill()
        assert ours.wait_for(lambda: len(ours) == 7, PATIENCE)


def test_session_loss_releases_all_shares_and_acquires_them_again(client: Client) -> None:
    events: list[str] = []
    ours = Partitioner(["a", "b"], name="p", on_acquire=lambda share: events.append(f"+{share}"))
    ours.on_release = lambda share: events.append(f"-{share}")
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)
    token, before = ours.fencing_token("a"), client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    eventually(lambda: len(events) == 6 and len(ours) == 2)
    assert sorted(events[:2] + events[4:]) == ["+a", "+a", "+b", "+b"]
    assert ours.fencing_token("a") > token
    ours.leave()
    assert len(events) == 8


def test_costs_of_held_shares(client: Client) -> None:
    ours = Partitioner(SHARES, name="p")
    with ours:
        assert ours.wait_for(lambda: len(ours) == 7, PATIENCE)
        with counted(client) as cost:
            for share in ours:
                assert share in ours
                assert ours.fencing_token(share) > 0
    assert cost.requests <= len(SHARES)  # one read of each by the background thread


def test_invalid_arguments_and_calls_in_the_wrong_state_raise(client: Client, make_client: MakeClient) -> None:
    for shares, kind, text in (
        ("abc", TypeError, "several names"),
        ([1], TypeError, "not 1"),
        ([], ValueError, "a share"),
    ):
        with pytest.raises(kind, match=text):
            Partitioner(shares, name="p")
    with pytest.raises(ValueError, match="must differ"):
        Partitioner(["a", "a"], name="p")
    ours = Partitioner(["a"], name="p")
    with pytest.raises(NotHeldError, match="takes no part"):
        ours.leave()
    with pytest.raises(NotHeldError, match="'a'"):
        ours.fencing_token("a")
    with ours:
        with pytest.raises(RuntimeError, match="already"):
            ours.join()
        with pytest.raises(MismatchError, match="the shares of .* is a, not a, b"):
            Partitioner(["a", "b"], name="p").join()
        with pytest.raises(MismatchError, match="the shares of .* is a, not a, b"):
            Partitioner(["a", "b"], name="p", client=make_client()).join()


def test_pickled_partitioner_has_the_same_shares(client: Client) -> None:
    ours = pickle.loads(pickle.dumps(Partitioner(SHARES, name="p")))
    assert ours._shares == set(SHARES)


@pytest.mark.parametrize("what", ["member", "members", "everything"])
def test_member_whose_znodes_are_deleted_joins_again(
    what: str, client: Client, other: Client, observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    """It held no share any more, for good, and nothing said so."""
    ours, theirs = Partitioner(SHARES, name="p"), Partitioner(SHARES, name="p", client=other)
    ours.join()
    theirs.join()
    eventually(lambda: balance(ours, theirs) == [3, 4])
    member = observer.kazoo.get_children(f"{ours.path}/members")[0]
    deleted = ours.path + {"member": f"/members/{member}", "members": "/members", "everything": ""}[what]
    transaction = observer.kazoo.transaction()  # otherwise the members return in the meantime
    for path in sorted({deleted, *observer.tree(deleted)}, reverse=True):
        transaction.delete(path)
    assert not any(isinstance(each, Exception) for each in transaction.commit())
    eventually(lambda: not observer.kazoo.exists(f"{ours.path}/members/{member}"))
    eventually(lambda: len(observer.tree(f"{ours.path}/members")) == 2)
    eventually(lambda: balance(ours, theirs) == [3, 4])
    eventually(lambda: "joins again as soon as it can: its znode was deleted" in caplog.text)
    for each in ours, theirs:
        each.leave()


@pytest.mark.parametrize("denied", ["create", "delete"])
def test_member_whose_claims_are_refused_leaves_until_they_are_accepted(
    denied: str, client: Client, other: Client, observer: Observer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """One refused request, because of a quota for instance, put the member out for good, and nothing said so."""
    monkeypatch.setattr(partitioner, "REFUSED_S", UNIT / 5)
    ours, theirs = Partitioner(SHARES, name="p"), Partitioner(SHARES, name="p", client=other)
    ours.join()
    assert ours.wait_for(lambda: len(ours) == len(SHARES), PATIENCE)
    claims, members = f"{ours.path}/claims", f"{ours.path}/members"
    before = observer.kazoo.get_acls(claims)[0]
    permissions = {"create": True, "delete": True, denied: False}
    observer.kazoo.set_acls(claims, [make_acl("world", "anyone", read=True, write=True, admin=True, **permissions)])
    theirs.join()
    # either both try to take shares that the other one released, or the first one cannot release any
    eventually(lambda: len(observer.tree(members)) == (denied == "delete"))
    assert len(ours) == len(theirs) == 0
    assert "joins again as soon as it can" in caplog.text
    observer.kazoo.set_acls(claims, before)
    eventually(lambda: balance(ours, theirs) == [3, 4])
    for each in ours, theirs:
        each.leave()
    assert observer.tree(claims) == {}


def test_join_after_a_leave_that_was_late_waits_for_its_end(client: Client) -> None:
    """It said that the process takes part already, although `leave` had returned."""
    released, may_release = threading.Event(), threading.Event()

    def on_release(share: str) -> None:
        with pytest.raises(RuntimeError, match="callback"):
            ours.join()
        released.set()
        may_release.wait(PATIENCE)

    ours = Partitioner(["a"], name="p", on_release=on_release)
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 1, PATIENCE)
    with pytest.raises(DeadlineError):
        ours.leave(timeout=UNIT)
    assert released.wait(PATIENCE)
    with pytest.raises(DeadlineError):
        ours.join(timeout=UNIT)
    joining = Running(ours.join)
    may_release.set()
    joining.result()
    assert ours.wait_for(lambda: len(ours) == 1, PATIENCE)
    ours.leave()
