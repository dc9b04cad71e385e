"""Group shared by threads, clients and processes."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import join
from helpers.request_counts import Cost, counted
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, credentials, expire, waiting_calls
from kazoo.recipe.party import Party
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from distsync import ConfigurationError, Lock, NotHeldError, PayloadPickleError
from distsync._client.client import Client
from distsync._protocols.state import persistent_ephemeral
from distsync._protocols.state.group import GroupCore
from distsync.recipes import Group, Member
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]


def test_joins_and_leaves_are_visible_to_all_processes(client: Client, peers: list[Peer]) -> None:
    group = Group(name="g")
    assert len(group) == 0
    ids = {peer.do(join, group, number) for number, peer in enumerate(peers)}
    assert group.wait_for(lambda: len(group) == 3, PATIENCE)
    assert {member.id for member in group.members} == ids
    assert sorted(member.data for member in group) == [0, 1, 2]
    assert all(member in group and member.owner.pid for member in group)
    peers[0].do(group.leave)
    assert group.wait_for(lambda: len(group) == 2, PATIENCE)
    for peer in peers[1:]:
        peer.do(group.leave)
    assert group.wait_for(lambda: not group.members, PATIENCE)


def test_member_that_was_denied_to_return_after_a_session_loss_returns_once_permitted(
    client: Client, peer: Peer, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent_ephemeral, "REFUSED_S", UNIT)
    group = Group(name="g")
    member = group.join("we")
    observer.kazoo.add_auth("digest", "u:p")
    theirs = make_digest_acl("u", "p", all=True)
    observer.kazoo.set_acls(group.path, [theirs, make_acl("world", "anyone", read=True, delete=True)])
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    eventually(lambda: observer.kazoo.get_children(group.path) == [])
    assert not group.wait_for(lambda: member in group, 3 * UNIT)
    assert group.joined
    observer.kazoo.set_acls(group.path, OPEN_ACL_UNSAFE)
    eventually(lambda: peer.do(len, group) == 1)
    group.leave()


def test_join_and_leave_are_visible_at_once_in_the_own_process(client: Client) -> None:
    group = Group(name="g")
    for _ in range(20):
        assert group.join() in group
        assert group.joined
        group.leave()
        assert (len(group), group.joined) == (0, False)


@pytest.mark.parametrize("member", ["id", b"id", 0, {}])
def test_leave_of_what_is_no_member_is_refused_with_what_to_pass(client: Client, member: Any) -> None:
    group = Group(name="g")
    group.join()
    with pytest.raises(TypeError, match=r"member must be a Member, as join\(\) returns, or None, not "):
        group.leave(member)
    assert group.joined
    group.leave()


def test_join_during_a_read_of_joined_by_another_thread_is_not_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, real = Group(name="g"), GroupCore._present
    asker, joined = threading.get_ident(), list[Member]()

    def join_during_read(core: GroupCore) -> Any:
        present = real(core)
        if threading.get_ident() == asker:
            joined.append(Running(group.join).result())
        return present

    first = group.join()
    with monkeypatch.context() as patched:
        patched.setattr(GroupCore, "_present", join_during_read)
        assert group.joined
    group.leave(first)
    assert group.members == {*joined}
    group.leave(joined[0])


def test_other_clients_can_read_the_members_from_their_znodes(client: Client, observer: Observer) -> None:
    group = Group(name="g")
    me = group.join({"port": 1})
    assert observer.kazoo.get_children(group.path) == [me.id]
    data, stat = observer.kazoo.get(f"{group.path}/{me.id}")
    assert (json.loads(data)["data"], stat.ephemeralOwner) == ({"port": 1}, client.session_id)
    group.leave()


def test_member_of_a_killed_process_leaves_when_its_session_expires(
    client: Client, make_mortal: Callable[..., Peer]
) -> None:
    group, mortal = Group(name="g"), make_mortal()
    mortal.do(join, group, "x")
    assert group.wait_for(lambda: len(group) == 1, PATIENCE)
    mortal.kill()
    assert group.wait_for(lambda: len(group) == 0, PATIENCE)


def test_member_returns_after_a_session_loss(server: ServerProcess, far: Client, proxy: Proxy, other: Client) -> None:
    events: list[Any] = []
    watching = Group(
        name="g",
        client=other,
        on_join=lambda member: events.append(("join", member.id)),
        on_leave=lambda member: events.append(("leave", member.id)),
    )
    group = Group(name="g", client=far)
    me = group.join("here")
    eventually(lambda: events == [("join", me.id)])
    _, session = credentials(far)
    proxy.refuse()
    expire((server.hosts, session))
    eventually(lambda: events[1:] == [("leave", me.id)])
    proxy.heal()
    eventually(lambda: events == [("join", me.id), ("leave", me.id), ("join", me.id)])
    assert me in watching
    assert group.joined
    group.leave(me)
    eventually(lambda: events[-1] == ("leave", me.id))
    watching.on_join = watching.on_leave = None


@pytest.mark.slow_on("zookeeper")
def test_memory_of_a_member_does_not_grow_with_the_number_of_its_sessions(client: Client) -> None:
    group = Group(name="g")
    me = group.join("here")
    runtime = client._runtime
    assert runtime is not None
    for _ in range(3):
        before = runtime.lease.session_id
        expire(client)
        eventually(lambda: runtime.lease.session_id not in (None, before))  # noqa: B023
        eventually(lambda: me in group.find_members(sync=True))
    runs = tuple(runtime.background_thread._runs)
    eventually(lambda: not any(each.created_nodes.created_paths for each in runs))
    group.leave(me)


def test_member_whose_znode_was_deleted_does_not_return(client: Client, observer: Observer) -> None:
    group = Group(name="g")
    me = group.join()
    observer.kazoo.delete(f"{group.path}/{me.id}")
    eventually(lambda: not group.joined)
    assert me not in group
    with pytest.raises(NotHeldError, match=me.id):
        group.leave(me)


def reached(seen: list[Member], count: int) -> bool:
    return len(seen) == count


def test_joins_are_reported_after_the_znode_of_the_group_was_deleted(
    client: Client, other: Client, observer: Observer
) -> None:
    seen: list[Member] = []
    group, elsewhere = Group(name="g"), Group(name="g", client=other)
    group.on_join = seen.append
    for count in (1, 2):
        member = elsewhere.join()
        eventually(partial(reached, seen, count))
        assert group.members == {member} == {seen[-1]}
        observer.kazoo.delete(group.path, recursive=True)
        eventually(lambda: not group.members and not elsewhere.joined)


@pytest.mark.parametrize("error", [LookupError("a callback"), SystemExit(7)], ids=repr)
def test_callback_that_raised_is_called_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("threading.excepthook", reported.append)
    events: list[Any] = []

    def fail_at_first(member: Any) -> None:
        events.append(member)
        if len(events) == 1:
            raise error

    group = Group(name="g", on_join=fail_at_first)
    group.join()
    group.join()
    eventually(lambda: len(events) == 2)
    assert [each.exc_value for each in reported] == [error]
    group.leave()


def test_callback_that_is_replaced_repeatedly_is_called_once_per_join(client: Client) -> None:
    """The background thread is blocked at first, so that its tasks queue up in order."""
    events: list[Member] = []
    group = Group(name="g")
    assert not group.joined
    with client._fast_path_state()[0]:
        for _ in range(3):
            group.on_join = events.append
            group.on_join = None
        group.on_join = events.append
    joined = []
    for _ in range(2):
        joined.append(group.join())
        eventually(lambda: events[-1:] == joined[-1:])
    assert events == joined
    group.on_join = None
    eventually(lambda: group._watched.idle)
    group.leave()


def test_wait_returns_after_a_change_or_times_out(client: Client, other: Client) -> None:
    group = Group(name="g", client=other)
    assert not group.wait(UNIT)
    waiting = Running(group.wait)
    eventually(lambda: waiting_calls(other))
    Group(name="g").join()
    assert waiting.result()
    Group(name="g").leave()


def test_predicate_may_wait_for_a_lock_beyond_the_timeout_of_wait_for(client: Client, other: Client) -> None:
    group, mine, theirs = Group(name="g"), Lock(name="l"), Lock(name="l", client=other)
    held: list[bool] = []

    def predicate() -> bool:
        with mine:
            held.append(mine.held)
        return True

    theirs.acquire()
    waiting = Running(group.wait_for, predicate, UNIT)
    eventually(lambda: waiting_calls(client))
    time.sleep(3 * UNIT)
    assert not held
    theirs.release()
    assert waiting.result()
    assert held == [True]


def test_kazoo_party_of_the_same_path_is_the_same_group(client: Client, observer: Observer) -> None:
    group = Group(name="g", layout="kazoo")
    party = Party(observer.kazoo, group.path, "theirs")
    me = group.join("ours")
    party.join()
    assert sorted(party) == ["ours", "theirs"]
    assert group.wait_for(lambda: len(group) == 2, PATIENCE)
    assert sorted(member.data for member in group) == ["ours", "theirs"]
    group.leave(me)
    assert list(party) == ["theirs"]
    party.leave()


def test_costs_of_a_group(client: Client, other: Client) -> None:
    group, seen = Group(name="g"), Group(name="g", client=other)
    group.join()
    assert group.wait_for(lambda: len(group) == 1, PATIENCE)
    assert seen.wait_for(lambda: len(seen) == 1, PATIENCE)
    with counted(client, other) as look:
        for _ in range(10):
            assert len(group.members) == len(seen) == 1
    assert look == Cost()
    before = requests(other)
    seen.join()
    eventually(lambda: requests(other) == before + 2)
    with counted(other) as leave:
        seen.leave()
    assert (leave.requests, leave.round_trips) == (1, 1)
    with counted(other) as look:
        assert len(seen) == 1
    assert look.requests == 1
    group.leave()


def requests(client: Client) -> int:
    return sum(client.statistics().requests.values())


def test_invalid_arguments_and_calls_in_the_wrong_state_raise(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="layout='curator'"):
        Group(name="g", layout="curator")
    group = Group(name="g")
    with pytest.raises(NotHeldError, match="this process"):
        group.leave()
    with pytest.raises(PayloadPickleError, match="the data of a member"):
        group.join(object())
    with pytest.raises(TypeError, match="str, not int"):
        Group(name="g", layout="kazoo").join(1)


def test_pickled_group_has_the_same_name_and_layout(client: Client) -> None:
    group = pickle.loads(pickle.dumps(Group(name="g", layout="kazoo")))
    assert (group.name, group._layout) == ("g", "kazoo")
