"""Partitioner between clients and processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import take_part
from helpers.request_counts import counted
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire
from kazoo.client import KazooClient
from kazoo.security import make_acl

from distsync import DeadlineError, MismatchError, NotHeldError
from distsync._client.client import Client
from distsync.recipes import Partitioner

MakeClient = Callable[..., Client]
SHARES = [f"s/{number}" for number in range(7)]


def spread(*partitioners: Partitioner) -> list[int] | None:
    """How many each holds, if all are held, each once."""
    held = [each.shares for each in partitioners]
    together = sorted(share for shares in held for share in shares)
    return sorted(len(shares) for shares in held) if together == sorted(SHARES) else None


def test_shares_are_spread_and_move_only_where_they_must(client: Client, make_client: MakeClient) -> None:
    first, second, third = (
        Partitioner(SHARES, name="p", client=each) for each in (client, make_client(), make_client())
    )
    first.join()
    assert first.wait_for(lambda: len(first) == 7, PATIENCE)
    before = {share: first.fencing_token(share) for share in first}
    second.join()
    eventually(lambda: spread(first, second) == [3, 4])
    third.join()
    eventually(lambda: spread(first, second, third) == [2, 2, 3])
    assert all(first.fencing_token(share) == before[share] for share in first)
    moved = first.shares | second.shares
    third.leave()
    eventually(lambda: spread(first, second) == [3, 4])
    assert first.shares | second.shares > moved
    first.leave()
    eventually(lambda: spread(second) == [7])
    second.leave()


def test_of_threads_that_join_at_once_one_does(client: Client, observer: Observer) -> None:
    for number in range(5):
        ours = Partitioner(["a", "b"], name=f"p{number}")
        joining = [Running(ours.join) for _ in range(3)]
        ended = [refusal_of(each) for each in joining]
        assert len(observer.ephemerals(f"{ours.path}/members")) == 1
        assert ended.count(None) == 1
        assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)  # noqa: B023
        ours.leave()
        assert not observer.ephemerals(ours.path)


def refusal_of(joining: Running) -> str | None:
    """None: it joined."""
    try:
        joining.result()
    except RuntimeError as error:
        return str(error)
    return None


def test_share_moves_only_after_its_holder_has_released_it(client: Client, make_client: MakeClient) -> None:
    may_go, asked = threading.Event(), threading.Event()

    def release(share: str) -> None:
        asked.set()
        assert share in first
        may_go.wait(PATIENCE)

    first = Partitioner(["only", "two"], name="p", on_release=release)
    second = Partitioner(["only", "two"], name="p", client=make_client())
    first.join()
    assert first.wait_for(lambda: len(first) == 2, PATIENCE)
    second.join()
    assert asked.wait(PATIENCE)
    assert not second.wait(UNIT)
    may_go.set()
    assert second.wait_for(lambda: len(second) == 1, PATIENCE)
    assert first.shares.isdisjoint(second.shares)
    first.leave()
    second.leave()


@pytest.mark.slow_on("zookeeper")
def test_leave_that_takes_longer_than_a_session_raises_and_continues_in_the_background(
    make_client: MakeClient, observer: Observer
) -> None:
    may_go = threading.Event()
    ours = Partitioner(["a", "b"], name="p", client=make_client(session_timeout=2.0))
    ours.on_release = lambda share: may_go.wait(PATIENCE)
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)
    with pytest.raises(DeadlineError, match="giving up shares"):
        ours.leave()
    assert len(ours) > 0
    may_go.set()
    eventually(lambda: not observer.ephemerals(ours.path))
    eventually(lambda: ours._core.member is None)
    with pytest.raises(NotHeldError):
        ours.leave()


def test_shares_of_the_dead_go_to_the_others(client: Client, make_mortal: Callable[..., Peer]) -> None:
    ours, mortal = Partitioner(SHARES, name="p"), make_mortal()
    assert mortal.do(take_part, ours, 7) == 7
    with ours:
        assert ours.wait_for(lambda: len(ours) >= 3, PATIENCE)
        mortal.kill()
        assert ours.wait_for(lambda: len(ours) == 7, PATIENCE)


def test_session_loss_loses_all_and_brings_them_back(client: Client) -> None:
    told: list[str] = []
    ours = Partitioner(["a", "b"], name="p", on_acquire=lambda share: told.append(f"+{share}"))
    ours.on_release = lambda share: told.append(f"-{share}")
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 2, PATIENCE)
    token, before = ours.fencing_token("a"), client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    eventually(lambda: len(told) == 6 and len(ours) == 2)
    assert sorted(told[:2] + told[4:]) == ["+a", "+a", "+b", "+b"]
    assert ours.fencing_token("a") > token
    ours.leave()
    assert len(told) == 8


def test_costs(client: Client) -> None:
    ours = Partitioner(SHARES, name="p")
    with ours:
        assert ours.wait_for(lambda: len(ours) == 7, PATIENCE)
        with counted(client) as cost:
            for share in ours:
                assert share in ours
                assert ours.fencing_token(share) > 0
    assert cost.requests <= len(SHARES)  # the keeper's one look at each, for the first half second


def test_what_cannot_be_is_refused(client: Client, make_client: MakeClient) -> None:
    for shares, kind, text in (
        ("abc", TypeError, "several names"),
        ([1], TypeError, "not int"),
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


def test_travels_by_name_with_its_shares(client: Client) -> None:
    ours = pickle.loads(pickle.dumps(Partitioner(SHARES, name="p")))
    assert ours._shares == set(SHARES)


def test_member_that_may_not_claim_shares_leaves_them_to_others(
    server: ServerProcess, client: Client, make_client: MakeClient
) -> None:
    ours, theirs = Partitioner(SHARES, name="p"), Partitioner(SHARES, name="p", client=make_client())
    with permitted(server, ours, read=True, write=True, delete=True, admin=True) as admin:
        theirs.join()
        eventually(lambda: not theirs._core.member and not ours._core.member)  # each was to take what the other gave up
        assert admin.get_children(f"{ours.path}/members") == admin.get_children(f"{ours.path}/claims") == []
    ours.join()
    assert ours.wait_for(lambda: len(ours) == 7, PATIENCE)
    ours.leave()


def test_member_that_may_not_give_up_shares_is_a_member_no_more(
    server: ServerProcess, client: Client, make_client: MakeClient
) -> None:
    ours, theirs = Partitioner(SHARES, name="p"), Partitioner(SHARES, name="p", client=make_client())
    with permitted(server, ours, read=True, write=True, create=True, admin=True) as admin:
        theirs.join()
        eventually(lambda: not ours._core.member)
        assert len(admin.get_children(f"{ours.path}/members")) == 1
    theirs.leave()


@contextmanager
def permitted(server: ServerProcess, ours: Partitioner, **what: bool) -> Iterator[KazooClient]:
    """All shares are ours; then nobody may do anything else with claims."""
    ours.join()
    assert ours.wait_for(lambda: len(ours) == len(SHARES), PATIENCE)
    admin, path = KazooClient(server.hosts), f"{ours.path}/claims"
    admin.start()
    before = admin.get_acls(path)[0]
    admin.set_acls(path, [make_acl("world", "anyone", **what)])
    yield admin
    admin.set_acls(path, before)
    for name in admin.get_children(path):
        admin.delete(f"{path}/{name}")
    admin.stop()
    admin.close()
