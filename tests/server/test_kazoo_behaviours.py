"""Behaviour that programs using kazoo directly depend on: watchers, cache, transactions, credentials,
reconnection.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.kazoo_clients import Kazoos, Told
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, UNIT, eventually
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.watchers import PatientChildrenWatch
from kazoo.security import make_acl, make_digest_acl

# ---- watchers


def test_data_watch_gets_each_state_from_creation_to_deletion(kazoo: Kazoos) -> None:
    watcher, writer, told = kazoo(), kazoo(), Told()
    watcher.DataWatch("/data", told)
    assert told.calls == [(None, None, None)]
    writer.create("/data", b"one")
    told.waits_for(lambda call: call[0] == b"one" and call[1].version == 0)
    writer.set("/data", b"two")
    told.waits_for(lambda call: call[0] == b"two" and call[2].type == EventType.CHANGED)
    writer.delete("/data")
    told.waits_for(lambda call: call[0] is None and call[2] and call[2].type == EventType.DELETED)
    writer.create("/data", b"three")
    told.waits_for(lambda call: call[0] == b"three" and call[1].version == 0)


def test_data_watch_that_returns_false_is_not_called_again(kazoo: Kazoos) -> None:
    client, told, other = kazoo(), Told(lambda *_: False), Told()
    client.create("/data", b"one")
    client.DataWatch("/data", told)
    client.DataWatch("/data", other)
    client.set("/data", b"two")
    other.waits_for(lambda call: call[0] == b"two")
    assert [call[0] for call in told.calls] == [b"one"]


@pytest.mark.parametrize("fault", [Kazoos.break_connection, Kazoos.expire])
def test_data_and_children_watches_continue_after(kazoo: Kazoos, fault: object) -> None:
    watcher, writer, data, children = kazoo(), kazoo(), Told(), Told()
    writer.create("/top", b"one")
    watcher.DataWatch("/top", data)
    watcher.ChildrenWatch("/top", children)
    fault(kazoo, watcher)  # type: ignore[operator]
    writer.set("/top", b"two")
    writer.create("/top/child")
    data.waits_for(lambda call: call[0] == b"two")
    children.waits_for(lambda call: call[0] == ["child"])


def test_changes_during_a_disconnection_are_reported_afterwards(kazoo: Kazoos, server: ServerProcess) -> None:
    watcher, data, children = kazoo(), Told(), Told()
    watcher.create("/top", b"one")
    watcher.DataWatch("/top", data)
    watcher.ChildrenWatch("/top", children)
    elsewhere = Kazoos(server, watcher.chroot)
    try:
        writer = elsewhere()
        kazoo.refuse()
        eventually(lambda: not watcher.connected)
        writer.set("/top", b"two")
        writer.create("/top/child")
        kazoo.heal()
        data.waits_for(lambda call: call[0] == b"two")
        children.waits_for(lambda call: call[0] == ["child"])
    finally:
        elsewhere.close()


def test_children_watch_is_called_for_children_not_for_data(kazoo: Kazoos) -> None:
    client, told = kazoo(), Told()
    client.create("/top")
    client.ChildrenWatch("/top", told, send_event=True)
    client.create("/top/a", b"one")
    told.waits_for(lambda call: call[0] == ["a"] and call[1].type == EventType.CHILD)
    client.set("/top/a", b"two")
    client.create("/top/a/deeper")
    client.create("/top/b")
    told.waits_for(lambda call: sorted(call[0]) == ["a", "b"])
    client.delete("/top/b")
    eventually(lambda: [sorted(call[0]) for call in told.calls] == [[], ["a"], ["a", "b"], ["a"]])


def test_children_watch_ends_with_its_node(kazoo: Kazoos) -> None:
    client, told = kazoo(), Told()
    client.create("/top")
    watch = client.ChildrenWatch("/top", told)
    client.delete("/top")
    eventually(lambda: watch._stopped)
    assert told.calls == [([],)]


@pytest.mark.slow_on("zookeeper")
def test_patient_watch_waits_until_no_more_children_come(kazoo: Kazoos) -> None:
    client = kazoo()
    client.create("/top")
    result = PatientChildrenWatch(client, "/top", time_boundary=20 * UNIT).start()
    for name in ("a", "b", "c"):
        client.create(f"/top/{name}")
    children, changed = result.get(timeout=PATIENCE)
    assert sorted(children) == ["a", "b", "c"]
    assert not changed.ready()
    client.create("/top/d")
    changed.wait(PATIENCE)
    assert changed.ready()


# ---- the cache of a tree


REMOVED = TreeEvent.NODE_REMOVED


@pytest.fixture
def cache(kazoo: Kazoos) -> Iterator[tuple[TreeCache, Told]]:
    client, told = kazoo(), Told()
    cache = TreeCache(client, "/top")
    cache.listen(told)
    cache.start()
    told.waits_for(lambda call: call[0].event_type == TreeEvent.INITIALIZED)
    yield cache, told
    cache.close()


def test_tree_cache_follows_a_tree(kazoo: Kazoos, cache: tuple[TreeCache, Told]) -> None:
    mirror, told = cache
    writer = kazoo()
    for path in ("/top/a", "/top/a/b", "/top/c"):
        writer.create(path, path.encode())
    told.waits_for(lambda call: call[0].event_type == TreeEvent.NODE_ADDED and call[0].event_data.path == "/top/a/b")
    assert mirror.get_children("/top/a") == {"b"}
    eventually(lambda: mirror.get_children("/top") == {"a", "c"})
    writer.set("/top/a/b", b"newer")
    told.waits_for(lambda call: call[0].event_type == TreeEvent.NODE_UPDATED and call[0].event_data.data == b"newer")
    assert mirror.get_data("/top/a/b").stat.version == 1
    writer.delete("/top/a", recursive=True)
    eventually(lambda: mirror.get_data("/top/a") is None and mirror.get_children("/top") == {"c"})
    for gone in ("/top/a", "/top/a/b"):
        told.waits_for(lambda call, gone=gone: call[0].event_type == REMOVED and call[0].event_data.path == gone)


@pytest.mark.parametrize("fault", [Kazoos.break_connection, Kazoos.expire])
def test_tree_cache_is_up_to_date_after(kazoo: Kazoos, cache: tuple[TreeCache, Told], fault: object) -> None:
    mirror, told = cache
    writer = kazoo()
    writer.create("/top/a", b"one")
    fault(kazoo, mirror._client)  # type: ignore[operator]
    writer.set("/top/a", b"two")
    writer.create("/top/b")

    def is_up_to_date() -> bool:
        data = mirror.get_data("/top/a")  # None until the cache has read it again
        return mirror.get_children("/top") == {"a", "b"} and data is not None and data.data == b"two"

    eventually(is_up_to_date)
    told.waits_for(lambda call: call[0].event_type == TreeEvent.CONNECTION_RECONNECTED)


# ---- transactions


def test_transaction_performs_all_operations(kazoo: Kazoos) -> None:
    client = kazoo()
    client.create("/old")
    transaction = client.transaction()
    transaction.create("/new", b"x", ephemeral=True)
    transaction.create("/new-", sequence=True)
    transaction.set_data("/old", b"y", version=0)
    transaction.check("/old", 1)
    transaction.delete("/old")
    created, numbered, stat, checked, deleted = transaction.commit()
    assert (created, numbered, stat.version) == ("/new", "/new-0000000002", 1)
    assert checked is deleted is True
    assert client.exists("/new").ephemeralOwner == client.client_id[0]


def test_failed_transaction_changes_nothing_and_reports_the_failed_operation(kazoo: Kazoos) -> None:
    client = kazoo()
    client.create("/old", b"x")
    transaction = client.transaction()
    transaction.create("/new")
    transaction.check("/old", 7)
    transaction.delete("/old")
    assert [type(each) for each in transaction.commit()] == [RolledBackError, BadVersionError, RuntimeInconsistency]
    assert client.get_children("/") == ["old"]


# ---- identities


def test_credentials_are_valid_after_a_reconnection(kazoo: Kazoos) -> None:
    mine, other = kazoo(auth_data=[("digest", "ann:secret")]), kazoo()
    mine.create("/mine", b"x", acl=[make_digest_acl("ann", "secret", all=True)])
    kazoo.break_connection(mine)
    assert mine.get("/mine")[0] == b"x"
    kazoo.expire(mine)
    assert mine.get("/mine")[0] == b"x"
    for attempt in (other.get, other.get_children, other.get_acls):
        with pytest.raises(NoAuthError):
            attempt("/mine")
    other.add_auth("digest", "ann:secret")
    other.set("/mine", b"y")
    mine.delete("/mine")


def test_unknown_scheme_of_credentials_and_bad_acls(kazoo: Kazoos) -> None:
    client = kazoo()
    credentials = client.client_id
    with pytest.raises(InvalidACLError):
        client.create("/nobodys", acl=[make_acl("unknown", "x", all=True)])
    with pytest.raises(AuthFailedError):
        client.add_auth("unknown", "x:y")
    kazoo.end_session(credentials)


def test_the_default_acl_is_of_every_create(kazoo: Kazoos) -> None:
    acl = make_digest_acl("ann", "secret", all=True)
    client = kazoo(auth_data=[("digest", "ann:secret")])
    client.default_acl = (acl,)
    client.ensure_path("/a/b")
    assert client.get_acls("/a")[0] == client.get_acls("/a/b")[0] == [acl]
    client.delete("/a", recursive=True)


# ---- connections and sessions


def test_session_outlives_its_connection_and_not_its_expiry(kazoo: Kazoos) -> None:
    client = kazoo()
    session = client.client_id
    client.create("/ephemeral", ephemeral=True)
    kazoo.break_connection(client)
    assert client.client_id == session
    assert client.exists("/ephemeral").ephemeralOwner == session[0]
    kazoo.expire(client)
    assert client.client_id != session
    assert client.exists("/ephemeral") is None


def test_stopped_client_starts_again_with_another_session(kazoo: Kazoos) -> None:
    client = kazoo()
    session = client.client_id
    client.create("/ephemeral", ephemeral=True)
    client.restart()
    assert client.exists("/ephemeral") is None
    assert client.client_id != session


def test_outstanding_requests_are_answered_in_order(kazoo: Kazoos) -> None:
    client = kazoo()
    made = [client.create_async("/numbered-", b"%d" % number, sequence=True) for number in range(500)]
    names = [each.get(timeout=PATIENCE) for each in made]
    assert names == sorted(names)
    read = [client.get_async(name) for name in names]
    assert [each.get(timeout=PATIENCE)[0] for each in read] == [b"%d" % number for number in range(500)]
    children, stat = client.get_children("/", include_data=True)
    assert len(children) == stat.children_count == 500
    gone = [client.delete_async(name) for name in names]
    assert all(each.get(timeout=PATIENCE) for each in gone)


def test_too_long_a_request_costs_the_connection_and_nothing_else(kazoo: Kazoos) -> None:
    client = kazoo()
    client.create("/large", b"x" * 1_000_000)
    with pytest.raises(ConnectionLoss):
        client.create("/larger", b"x" * 1_100_000)
    assert client.retry(client.get_children, "/") == ["large"]


def test_names_of_all_kinds_and_whole_paths(kazoo: Kazoos) -> None:
    client = kazoo()
    assert client.create("/ünï/cödé/wörld", b"x", makepath=True) == "/ünï/cödé/wörld"
    assert client.get_children("/ünï/cödé") == ["wörld"]
    with pytest.raises(NotEmptyError):
        client.delete("/ünï")
    path, stat = client.create("/null", None, include_data=True)
    assert (path, stat.data_length, client.get("/null")[0]) == ("/null", 0, None)
    with pytest.raises(NodeExistsError):
        client.create("/null")
    assert client.sync("/null") == "/null"


def test_four_letter_words_over_kazoo(kazoo: Kazoos, server: ServerProcess) -> None:
    client = kazoo(hosts=server.hosts)
    assert client.command(b"ruok") == "imok"
    assert client.server_version() >= (3, 8)
