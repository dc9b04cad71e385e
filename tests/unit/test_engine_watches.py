"""Each watch fires once, for the right clients, in order."""

from __future__ import annotations

import pytest
from helpers.engine_harness import Bench, Client

from distsync._server.effects import Commit, Notify, Reply
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType, Permission

CREATED, DELETED, DATA, CHILDREN = EventType


@pytest.fixture
def client() -> Client:
    return Bench().client()


class TestRegistration:
    """M-9."""

    @pytest.mark.parametrize("kind", [r.GetDataRequest, r.GetChildrenRequest, r.GetChildren2Request])
    def test_a_read_of_a_missing_node_arms_nothing(self, client: Client, kind: type[r.GetDataRequest]) -> None:
        assert client.err(kind("/a", True)) == ErrorCode.NO_NODE
        client.create("/a")
        client.create("/a/b")
        assert client.events() == []

    def test_exists_waits_for_a_missing_node(self, client: Client) -> None:
        client.err(r.ExistsRequest("/a", True))
        client.create("/a")
        assert client.events() == [(CREATED, "/a")]

    def test_a_read_that_is_not_permitted_arms_nothing(self, client: Client) -> None:
        client.create("/a", acl=(r.Acl(Permission.WRITE, "world", "anyone"),))
        assert client.err(r.GetDataRequest("/a", True)) == ErrorCode.NO_AUTH
        client.body(r.SetDataRequest("/a", b""))
        assert client.events() == []

    def test_arming_twice_is_arming_once(self, client: Client) -> None:
        client.create("/a")
        for kind in (r.ExistsRequest, r.GetDataRequest, r.GetDataRequest):
            client.body(kind("/a", True))
        client.body(r.SetDataRequest("/a", b""))
        assert client.events() == [(DATA, "/a")]

    def test_a_watch_fires_once(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        for _ in range(2):
            client.body(r.SetDataRequest("/a", b""))
        assert client.events() == [(DATA, "/a")]

    def test_a_read_without_watch_arms_nothing(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a"))
        client.body(r.SetDataRequest("/a", b""))
        assert client.events() == []

    def test_a_watch_on_the_roots_other_spelling_never_fires(self, client: Client) -> None:
        """Measured."""
        for path in ("", "/"):
            client.body(r.GetChildrenRequest(path, True))
        client.create("/a")
        assert client.events() == [(CHILDREN, "/")]
        assert client.err(r.RemoveWatchesRequest("")) == 0


class TestFiring:
    """M-10."""

    def test_create_fires_watches_of_the_node_and_then_of_its_parent(self, client: Client) -> None:
        client.body(r.GetChildrenRequest("/", True))
        client.err(r.ExistsRequest("/a", True))
        client.create("/a")
        assert client.events() == [(CREATED, "/a"), (CHILDREN, "/")]

    def test_delete_fires_once_for_a_client_with_both_kinds_of_watch(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        client.body(r.GetChildrenRequest("/a", True))
        client.body(r.GetChildrenRequest("/", True))
        client.body(r.DeleteRequest("/a"))
        assert client.events() == [(DELETED, "/a"), (CHILDREN, "/")]

    def test_a_set_fires_no_child_watch(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetChildrenRequest("/", True))
        client.body(r.GetChildrenRequest("/a", True))
        client.body(r.SetDataRequest("/a", b""))
        assert client.events() == []

    def test_a_child_fires_no_data_watch_of_its_parent(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        client.create("/a/b")
        assert client.events() == []

    def test_set_acl_fires_nothing(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        client.body(r.SetAclRequest("/a", r.OPEN_ACL))
        assert client.events() == []

    def test_failed_write_fires_nothing(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        client.err(r.SetDataRequest("/a", b"", 7))
        client.err(r.DeleteRequest("/a", 7))
        assert client.events() == []

    def test_ephemerals_deleted_with_their_session_fire_watches(self, client: Client) -> None:
        other = client.bench.client()
        client.create("/a", flags=CreateFlag.EPHEMERAL)
        other.body(r.GetDataRequest("/a", True))
        other.body(r.GetChildrenRequest("/", True))
        client.send(r.CloseSessionRequest())
        assert other.events() == [(DELETED, "/a"), (CHILDREN, "/")]


class TestOrder:
    """M-8: an event precedes every reply that could show its cause, that of its own transaction
    included.
    """

    def test_writer_gets_the_event_before_its_reply(self, client: Client) -> None:
        client.err(r.ExistsRequest("/a", True))
        effects = client.send(r.CreateRequest("/a"))
        assert [type(effect) for effect in effects] == [Commit, Notify, Reply]

    def test_watchers_are_notified_in_the_order_of_registration(self, client: Client) -> None:
        client.create("/a")
        watchers = [client.bench.client() for _ in range(3)]
        for watcher in reversed(watchers):
            watcher.body(r.GetDataRequest("/a", True))
        effects = client.send(r.DeleteRequest("/a"))
        told = [effect.peer for effect in effects if isinstance(effect, Notify)]
        assert told == [watcher.peer for watcher in reversed(watchers)]

    def test_the_event_carries_its_transaction(self, client: Client) -> None:
        client.err(r.ExistsRequest("/a", True))
        notice = next(effect for effect in client.send(r.CreateRequest("/a")) if isinstance(effect, Notify))
        assert notice == Notify(client.peer, client.bench.engine.zxid, r.WatcherEvent(CREATED, 3, "/a"))


class TestConnections:
    """M-3: watches belong to the connection."""

    def test_watches_end_with_their_connection(self, client: Client) -> None:
        client.create("/a")
        client.body(r.GetDataRequest("/a", True))
        client.body(r.GetChildrenRequest("/a", True))
        client.disconnect()
        assert client.bench.engine.statistics(0).watches == 0
        again = client.again()
        again.body(r.SetDataRequest("/a", b""))
        assert client.events() == again.events() == []

    def test_watches_of_other_connections_stay(self, client: Client) -> None:
        other = client.bench.client()
        for one in (client, other):
            one.err(r.ExistsRequest("/a", True))
        client.disconnect()
        other.create("/a")
        assert other.events() == [(CREATED, "/a")]


class TestSetWatches:
    """M-11."""

    @pytest.fixture
    def seen(self, client: Client) -> int:
        """Return what the client saw before it lost its connection; it changed /old afterwards, and
        nothing of /same.
        """
        for path in ("/old", "/same", "/gone"):
            client.create(path)
        seen = client.bench.engine.zxid
        client.body(r.SetDataRequest("/old", b"x"))
        client.create("/old/child")
        client.body(r.DeleteRequest("/gone"))
        return seen

    @pytest.mark.parametrize(
        ("watches", "expected"),
        [
            ({"data": ("/gone", "/old", "/same")}, [(DELETED, "/gone"), (DATA, "/old")]),
            ({"exist": ("/gone", "/old")}, [(CREATED, "/old")]),
            ({"child": ("/gone", "/old", "/same")}, [(DELETED, "/gone"), (CHILDREN, "/old")]),
        ],
    )
    def test_set_watches_fires_for_missed_changes(
        self, client: Client, seen: int, watches: dict[str, tuple[str, ...]], expected: list[tuple[int, str]]
    ) -> None:
        effects = client.send(r.SetWatchesRequest(seen, **watches))
        assert [type(effect) for effect in effects] == [Notify] * len(expected) + [Reply]
        assert client.events() == expected

    def test_set_watches_arms_watches_without_missed_changes(self, client: Client, seen: int) -> None:
        client.send(r.SetWatchesRequest(seen, ("/same",), ("/gone",), ("/same",)))
        client.create("/gone")
        client.body(r.SetDataRequest("/same", b""))
        client.create("/same/child")
        assert client.events() == [(CREATED, "/gone"), (DATA, "/same"), (CHILDREN, "/same")]


class TestWhoMayNotRead:
    """A change notifies only watchers that may read the node, because its path may be a secret."""

    HIDDEN = (r.Acl(30, "world", "anyone"),)

    def test_creation_and_deletion_of_an_unreadable_node_fire_no_watch(self, client: Client) -> None:
        other = client.bench.client()
        other.err(r.ExistsRequest("/hidden", True))
        client.create("/hidden", acl=self.HIDDEN)
        other.err(r.ExistsRequest("/hidden", True))
        client.body(r.SetDataRequest("/hidden", b"x"))
        other.err(r.ExistsRequest("/hidden", True))
        client.body(r.DeleteRequest("/hidden"))
        assert other.events() == []
        client.create("/hidden")
        assert other.events() == []

    def test_children_of_an_unreadable_node_fire_no_watch(self, client: Client) -> None:
        client.create("/hidden")
        client.body(r.GetChildrenRequest("/hidden", True))
        client.body(r.SetAclRequest("/hidden", self.HIDDEN))
        client.create("/hidden/child")
        assert client.events() == []

    def test_unreadable_nodes_fire_no_watch_in_a_multi_or_at_session_close(self, client: Client) -> None:
        other = client.bench.client()
        for path in ("/hidden", "/open"):
            other.err(r.ExistsRequest(path, True))
        creates = [r.CreateRequest("/hidden", b"", self.HIDDEN, 1), r.CreateRequest("/open", b"", flags=1)]
        client.body(r.MultiRequest(tuple(creates)))
        assert other.events() == [(CREATED, "/open")]
        for path in ("/hidden", "/open"):
            other.err(r.ExistsRequest(path, True))
        client.err(r.CloseSessionRequest())
        assert other.events() == [(DELETED, "/open")]

    def test_client_named_by_the_acl_is_notified(self, client: Client) -> None:
        client.auth(b"ann:secret")
        client.err(r.ExistsRequest("/mine", True))
        client.create("/mine", acl=(r.Acl(31, "auth", ""),))
        assert client.events() == [(CREATED, "/mine")]


def test_watch_on_a_path_without_a_slash_cannot_be_looked_up(client: Client) -> None:
    assert client.err(r.CheckWatchesRequest("a", 2)) == ErrorCode.MARSHALLING_ERROR
    assert client.err(r.CheckWatchesRequest("/a", 2)) == ErrorCode.NO_WATCHER
