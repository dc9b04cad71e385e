"""Multi: all or nothing, with results as ZooKeeper's."""

from __future__ import annotations

import pytest
from helpers.engine_harness import Bench, Client

from distsync._server.effects import Commit, Notify, Reply
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType


@pytest.fixture
def client() -> Client:
    return Bench().client()


def multi(*operations: r.Operation) -> r.MultiRequest:
    return r.MultiRequest(operations)


def errors(reply: Reply) -> list[int]:
    assert reply.err == 0
    assert isinstance(reply.body, r.MultiReply)
    assert all(type(result) is r.ErrorReply for result in reply.body.results)
    return [result.err for result in reply.body.results]  # type: ignore[union-attr]


class TestSuccess:
    def test_each_operation_has_its_result(self, client: Client) -> None:
        client.create("/old")
        results = client.body(
            multi(
                r.CreateRequest("/a"),
                r.CreateRequest("/b", flags=CreateFlag.CONTAINER),
                r.SetDataRequest("/a", b"x"),
                r.CheckVersionRequest("/a", 1),
                r.DeleteRequest("/old"),
            )
        ).results
        assert results == (
            ("/a",),
            ("/b", client.stat("/b")),
            (client.stat("/a"),),
            (),
            (),
        )
        kinds = [r.CreateReply, r.Create2Reply, r.StatReply, r.CheckReply, r.DeleteReply]
        assert [type(result) for result in results] == kinds

    @pytest.mark.parametrize("kind", [r.CreateRequest, r.Create2Request, r.CreateContainerRequest])
    def test_a_create_is_a_container_by_its_flag_alone(self, client: Client, kind: type[r.CreateRequest]) -> None:
        """Measured: whatever the operation; only a container is answered with its stat."""
        results = client.body(multi(kind("/a", flags=CreateFlag.CONTAINER), kind("/b", flags=0))).results
        assert [type(result) for result in results] == [r.Create2Reply, r.CreateReply]
        assert set(client.bench.engine.tree.containers) == {"/a"}

    @pytest.mark.parametrize(
        ("flags", "ttl", "kind"), [(5, 9, r.Create2Reply), (0, 9, r.CreateReply), (4, 9, r.Create2Reply)]
    )
    def test_create_ttl_counts_by_its_flags(self, client: Client, flags: int, ttl: int, kind: type) -> None:
        """Measured: with other flags, its time has no effect."""
        (result,) = client.body(multi(r.CreateTtlRequest("/a", flags=flags, ttl=ttl))).results
        assert type(result) is kind
        assert client.bench.engine.tree.nodes["/a"].ttl_ms == (9 if flags == CreateFlag.TTL else 0)

    def test_operations_see_those_before_them(self, client: Client) -> None:
        client.body(multi(r.CreateRequest("/a"), r.CreateRequest("/a/b"), r.DeleteRequest("/a/b")))
        assert client.stat("/a").cversion == 2

    def test_sequence_numbers_follow_each_other(self, client: Client) -> None:
        create = r.CreateRequest("/s", flags=CreateFlag.SEQUENCE)
        assert [result.path for result in client.body(multi(create, create)).results] == [
            "/s0000000000",
            "/s0000000001",
        ]

    def test_all_share_one_zxid_and_one_commit(self, client: Client) -> None:
        effects = client.send(multi(r.CreateRequest("/a"), r.CreateRequest("/a/b")))
        assert [effect.zxid for effect in effects if isinstance(effect, Commit)] == [client.bench.engine.zxid]
        a, b = client.stat("/a"), client.stat("/a/b")
        assert {a.czxid, a.pzxid, b.czxid} == {client.bench.engine.zxid}

    def test_empty_multi_succeeds(self, client: Client) -> None:
        assert client.body(multi()) == ((),)

    def test_events_come_after_the_commit_and_before_the_reply(self, client: Client) -> None:
        client.err(r.ExistsRequest("/a", True))
        client.body(r.GetChildrenRequest("/", True))
        effects = client.send(multi(r.CreateRequest("/a"), r.DeleteRequest("/a")))
        assert [type(effect) for effect in effects] == [Commit, Notify, Notify, Reply]

    def test_create_and_delete_fire_each_watch_once(self, client: Client) -> None:
        """M-10."""
        client.err(r.ExistsRequest("/a", True))
        client.body(r.GetChildrenRequest("/", True))
        client.body(multi(r.CreateRequest("/a"), r.DeleteRequest("/a")))
        assert client.events() == [(EventType.NODE_CREATED, "/a"), (EventType.NODE_CHILDREN_CHANGED, "/")]


def test_an_error_halfway_leaves_the_tree_as_it_was(client: Client) -> None:
    """Not only a refusal: here the path has a type that no decoded request has. It uses no zxid,
    because no commit would record it.
    """
    before, zxid = client.stat("/"), client.bench.engine.zxid
    with pytest.raises(TypeError):
        client.send(multi(r.CreateRequest("/a"), r.SetDataRequest(None, b"x")))  # type: ignore[arg-type]
    assert client.stat("/") == before
    assert "/a" not in client.bench.engine.tree.nodes
    assert client.bench.engine.zxid == zxid


class TestFailure:
    """M-15."""

    def test_results_before_at_and_after_the_failed_operation(self, client: Client) -> None:
        reply = client.ask(
            multi(
                r.CreateRequest("/a"), r.CheckVersionRequest("/a", 9), r.DeleteRequest("/none"), r.CreateRequest("/b")
            )
        )
        assert errors(reply) == [0, ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY, -2]

    @pytest.mark.parametrize(
        "operations",
        [
            [r.CreateRequest("/t/new")],
            [r.CreateRequest("/t/new"), r.CreateRequest("/t/new/deep"), r.DeleteRequest("/t/new/deep")],
            [r.DeleteRequest("/t/a")],
            [r.DeleteRequest("/t/a"), r.CreateRequest("/t/a", b"other")],
            [r.DeleteRequest("/t/a"), r.DeleteRequest("/t")],
            [r.DeleteRequest("/t/a"), r.DeleteRequest("/t"), r.CreateRequest("/t", b"other")],
            [r.SetDataRequest("/t/a", b"other"), r.SetDataRequest("/t/a", None)],
            [r.SetDataRequest("/t/a", b"other"), r.DeleteRequest("/t/a")],
            [r.CreateRequest("/t/e", flags=CreateFlag.EPHEMERAL), r.CreateContainerRequest("/t/c")],
            [r.DeleteRequest("/mine"), r.DeleteRequest("/box")],
            [r.CreateRequest("/t/s", flags=CreateFlag.SEQUENCE)] * 3,
        ],
    )
    def test_failed_multi_leaves_no_change(self, client: Client, operations: list[r.Operation]) -> None:
        """The snapshot shows all counters of all nodes; in ZOOKEEPER-1624, the sequence number stayed
        incremented.
        """
        client.create("/t", b"t")
        client.create("/t/a", b"a")
        client.create("/mine", flags=CreateFlag.EPHEMERAL)
        client.body(r.CreateContainerRequest("/box"))
        engine = client.bench.engine
        before, bytes_before = list(engine.tree.stored()), engine.statistics(0).data_bytes
        ephemerals = {owner: set(paths) for owner, paths in engine.tree.ephemerals.items()}
        reply = client.ask(multi(*operations, r.CheckVersionRequest("/none")))
        assert errors(reply)[-1] == ErrorCode.NO_NODE
        assert sorted(engine.tree.stored()) == sorted(before)
        assert engine.statistics(0).data_bytes == bytes_before
        assert {owner: set(paths) for owner, paths in engine.tree.ephemerals.items()} == ephemerals
        assert set(engine.tree.containers) == {"/box"}

    def test_failed_multi_fires_no_watch_and_uses_one_zxid(self, client: Client) -> None:
        client.err(r.ExistsRequest("/a", True))
        before = client.bench.engine.zxid
        effects = client.send(multi(r.CreateRequest("/a"), r.DeleteRequest("/none")))
        assert [type(effect) for effect in effects] == [Commit, Reply]
        assert client.bench.engine.zxid == before + 1
        client.create("/a")
        assert client.events() == [(EventType.NODE_CREATED, "/a")]

    def test_a_time_to_live_by_flags_alone_refuses_the_whole_multi(self, client: Client) -> None:
        """Measured: ZooKeeper fails, and answers with a header only."""
        create = r.CreateRequest("/b", flags=CreateFlag.TTL)
        assert client.err(multi(r.CreateRequest("/a"), create)) == ErrorCode.MARSHALLING_ERROR
        assert client.err(r.ExistsRequest("/a")) == ErrorCode.NO_NODE
        assert errors(client.ask(multi(r.DeleteRequest("/none"), create)))[0] == ErrorCode.NO_NODE

    def test_check_of_a_missing_node_fails(self, client: Client) -> None:
        assert errors(client.ask(multi(r.CheckVersionRequest("/none", -1)))) == [ErrorCode.NO_NODE]
