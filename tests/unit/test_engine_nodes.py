"""Znodes: paths, flags, versions, counters, zxids, and which error is reported first."""

from __future__ import annotations

import pytest
from helpers.engine_harness import NOW_MS, Bench, Client

from distsync._server.effects import Commit, Drop, Reply
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, OpCode, Permission


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.client()


class TestCreate:
    def test_create_answers_the_path(self, client: Client) -> None:
        assert client.create("/a") == "/a"

    def test_create2_answers_the_stat_as_well(self, client: Client) -> None:
        reply = client.body(r.Create2Request("/a", b"xyz"))
        assert reply == ("/a", client.stat("/a"))
        assert reply.stat.data_length == 3

    def test_null_data_is_kept_apart_from_empty_data(self, client: Client) -> None:
        for path, data in (("/null", None), ("/empty", b"")):
            client.create(path, data)
            assert client.body(r.GetDataRequest(path)).data == data

    def test_create_of_an_existing_node_fails(self, client: Client) -> None:
        client.create("/a")
        assert client.err(r.CreateRequest("/a")) == ErrorCode.NODE_EXISTS

    def test_an_ephemeral_node_has_its_session_as_owner(self, client: Client) -> None:
        client.create("/a", flags=CreateFlag.EPHEMERAL)
        assert client.stat("/a").ephemeral_owner == client.session_id

    def test_an_ephemeral_node_has_no_children(self, client: Client) -> None:
        client.create("/a", flags=CreateFlag.EPHEMERAL)
        assert client.err(r.CreateRequest("/a/b")) == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS

    @pytest.mark.parametrize("flags", [0, 1, 4])
    def test_a_container_is_made_by_its_operation_and_shows_no_owner(self, client: Client, flags: int) -> None:
        """M-13, M-21; measured: the flags of the operation change nothing."""
        client.body(r.CreateContainerRequest("/a", flags=flags))
        assert client.stat("/a").ephemeral_owner == 0
        assert set(client.bench.engine.tree.containers) == {"/a"}

    @pytest.mark.parametrize("kind", [r.CreateRequest, r.Create2Request])
    def test_flag_4_alone_makes_an_ordinary_node(self, client: Client, kind: type[r.CreateRequest]) -> None:
        """Measured."""
        client.body(kind("/a", flags=CreateFlag.CONTAINER))
        assert not client.bench.engine.tree.containers

    @pytest.mark.parametrize("flags", [-1, 7, 100])
    def test_unknown_flags_are_refused(self, client: Client, flags: int) -> None:
        assert client.err(r.CreateRequest("/a", flags=flags)) == ErrorCode.BAD_ARGUMENTS

    @pytest.mark.parametrize("flags", [CreateFlag.TTL, CreateFlag.SEQUENCE_TTL])
    @pytest.mark.parametrize("kind", [r.CreateRequest, r.Create2Request, r.CreateContainerRequest])
    def test_a_time_to_live_needs_its_own_operation(
        self, client: Client, kind: type[r.CreateRequest], flags: int
    ) -> None:
        assert client.err(kind("/a", flags=flags)) == ErrorCode.BAD_ARGUMENTS


class TestPrecedence:
    """M-16: path shape, ACL, parent, permission, full path, exists, ephemeral parent."""

    @pytest.mark.parametrize("path", ["", "a", "/a\0b"])
    def test_malformed_path_is_reported_first(self, client: Client, path: str) -> None:
        assert client.err(r.CreateRequest(path, acl=())) == ErrorCode.BAD_ARGUMENTS

    def test_then_the_acl(self, client: Client) -> None:
        assert client.err(r.CreateRequest("/none/x", acl=())) == ErrorCode.INVALID_ACL

    @pytest.mark.parametrize("path", ["/none/x", "/t//x", "/t/../x", "/none/"])
    def test_then_the_parent(self, client: Client, path: str) -> None:
        client.create("/t")
        assert client.err(r.CreateRequest(path)) == ErrorCode.NO_NODE

    def test_then_the_permission(self, client: Client) -> None:
        client.create("/t", acl=(r.Acl(Permission.READ, "world", "anyone"),))
        assert client.err(r.CreateRequest("/t/.")) == ErrorCode.NO_AUTH

    @pytest.mark.parametrize("path", ["/t/.", "/t/..", "/t/", "/\x01", "/\x7f", "/\uf8ff", "/\uffff", "/\U0001f600"])
    def test_then_the_full_path(self, client: Client, path: str) -> None:
        client.create("/t")
        assert client.err(r.CreateRequest(path)) == ErrorCode.BAD_ARGUMENTS

    def test_then_whether_it_exists(self, client: Client) -> None:
        assert client.err(r.CreateRequest("/")) == ErrorCode.NODE_EXISTS

    @pytest.mark.parametrize("name", ["...", ".a", "a.", "a b", "\u00e4", "%2F", "-"])
    def test_ordinary_names(self, client: Client, name: str) -> None:
        assert client.create(f"/{name}") == f"/{name}"


class TestSequence:
    """M-14: the number is the count of children ever created."""

    def test_it_starts_at_zero_and_counts_up(self, client: Client) -> None:
        assert [client.create("/s-", flags=CreateFlag.SEQUENCE)[-10:] for _ in range(3)] == [
            "0000000000",
            "0000000001",
            "0000000002",
        ]

    def test_other_children_count_and_deletes_do_not(self, client: Client) -> None:
        client.create("/t")
        client.create("/t/a")
        client.body(r.DeleteRequest("/t/a"))
        assert client.create("/t/s", flags=CreateFlag.EPHEMERAL_SEQUENCE) == "/t/s0000000001"

    def test_a_prefix_may_be_empty(self, client: Client) -> None:
        client.create("/t")
        assert client.create("/t/", flags=CreateFlag.SEQUENCE) == "/t/0000000000"

    def test_it_wraps_into_the_negative(self, client: Client) -> None:
        client.create("/t")
        client.bench.engine.tree.nodes["/t"].creates = 2**31 - 1
        names = [client.create("/t/", flags=CreateFlag.SEQUENCE) for _ in range(3)]
        assert names == ["/t/2147483647", "/t/-2147483648", "/t/-2147483647"]

    def test_a_name_that_is_taken_is_refused_and_the_number_stays(self, client: Client) -> None:
        client.create("/t")
        client.create("/t/s0000000001")
        for _ in range(2):
            assert client.err(r.CreateRequest("/t/s", flags=CreateFlag.SEQUENCE)) == ErrorCode.NODE_EXISTS
        assert client.bench.engine.tree.nodes["/t"].creates == 1

    def test_sequence_of_a_recreated_parent_starts_at_zero(self, client: Client) -> None:
        client.create("/t")
        client.create("/t/a")
        client.body(r.DeleteRequest("/t/a"))
        client.body(r.DeleteRequest("/t"))
        client.create("/t")
        assert client.create("/t/", flags=CreateFlag.SEQUENCE) == "/t/0000000000"


class TestDelete:
    def test_delete_removes_the_node(self, client: Client) -> None:
        client.create("/a")
        assert client.body(r.DeleteRequest("/a")) is None
        assert client.err(r.ExistsRequest("/a")) == ErrorCode.NO_NODE

    def test_the_version_is_checked_before_the_children(self, client: Client) -> None:
        """M-17."""
        client.create("/a")
        client.create("/a/b")
        assert client.err(r.DeleteRequest("/a", 5)) == ErrorCode.BAD_VERSION
        assert client.err(r.DeleteRequest("/a", 0)) == ErrorCode.NOT_EMPTY

    @pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "x", ""])
    def test_special_nodes_cannot_be_deleted(self, client: Client, path: str) -> None:
        """M-16, M-23."""
        assert client.err(r.DeleteRequest(path)) == ErrorCode.BAD_ARGUMENTS

    def test_delete_of_a_missing_node_fails(self, client: Client) -> None:
        assert client.err(r.DeleteRequest("/none")) == ErrorCode.NO_NODE

    def test_the_permission_is_checked_before_the_node(self, client: Client) -> None:
        client.create("/t", acl=(r.Acl(Permission.READ, "world", "anyone"),))
        assert client.err(r.DeleteRequest("/t/none")) == ErrorCode.NO_AUTH


class TestSetData:
    def test_the_version_grows_with_each_set(self, client: Client) -> None:
        client.create("/a")
        assert client.body(r.SetDataRequest("/a", b"1")).stat.version == 1
        assert client.body(r.SetDataRequest("/a", b"22", 1)).stat[4:9] == (2, 0, 0, 0, 2)

    def test_another_version_is_refused(self, client: Client) -> None:
        client.create("/a")
        assert client.err(r.SetDataRequest("/a", b"", 7)) == ErrorCode.BAD_VERSION

    def test_the_root_has_data_too(self, client: Client) -> None:
        client.body(r.SetDataRequest("/", b"x"))
        assert client.body(r.GetDataRequest("")).data == b"x"

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a"])
    def test_set_data_with_a_malformed_path_fails(self, client: Client, path: str) -> None:
        assert client.err(r.SetDataRequest(path, b"")) == ErrorCode.BAD_ARGUMENTS

    def test_the_version_wraps_past_minus_one(self, client: Client) -> None:
        """M-17: -1 would mean "any"."""
        client.create("/a")
        node = client.bench.engine.tree.nodes["/a"]
        node.version = 2**31 - 1
        assert client.body(r.SetDataRequest("/a", b"")).stat.version == -(2**31)
        node.version = -2
        assert client.body(r.SetDataRequest("/a", b"")).stat.version == 0


class TestStat:
    """M-13."""

    def test_a_new_node(self, client: Client) -> None:
        client.create("/a", b"xyz")
        zxid = client.bench.engine.zxid
        assert client.stat("/a") == r.Stat(zxid, zxid, NOW_MS, NOW_MS, 0, 0, 0, 0, 3, 0, zxid)

    def test_children_that_come_and_go_move_cversion_and_pzxid(self, client: Client) -> None:
        client.create("/a")
        client.create("/a/b")
        assert client.stat("/a")[5:] == (1, 0, 0, 0, 1, client.bench.engine.zxid)
        client.body(r.DeleteRequest("/a/b"))
        assert client.stat("/a")[5:] == (2, 0, 0, 0, 0, client.bench.engine.zxid)

    def test_a_childs_data_moves_nothing_of_its_parent(self, client: Client) -> None:
        client.create("/a")
        client.create("/a/b")
        before = client.stat("/a")
        client.body(r.SetDataRequest("/a/b", b"x"))
        assert client.stat("/a") == before

    def test_a_set_moves_mzxid_and_mtime_only(self, client: Client) -> None:
        client.create("/a")
        before = client.stat("/a")
        client.bench.now_ms += 5
        client.body(r.SetDataRequest("/a", b"xy"))
        assert client.stat("/a") == before._replace(mzxid=before.mzxid + 1, mtime=NOW_MS + 5, version=1, data_length=2)

    def test_built_in_nodes_have_their_stat(self, client: Client) -> None:
        """M-23; they were never created, so their cversion is negative."""
        assert set(client.bench.engine.paths()) == {"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}
        assert client.stat("/") == (0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
        assert client.stat("/zookeeper").cversion == -2


class TestZxid:
    """M-4."""

    def test_refused_writes_use_one_up_and_are_committed(self, client: Client) -> None:
        before = client.bench.engine.zxid
        commit, reply = client.send(r.DeleteRequest("/none"))
        assert isinstance(commit, Commit)
        assert commit.zxid == before + 1
        assert reply == Reply(client.peer, client.xid, before + 1, ErrorCode.NO_NODE, None)

    def test_reads_report_the_last_one(self, client: Client) -> None:
        client.create("/a")
        zxid = client.bench.engine.zxid
        assert client.ask(r.GetDataRequest("/a")).zxid == client.ask(r.PingRequest()).zxid == zxid

    def test_zxid_can_start_anywhere(self) -> None:
        client = Bench(initial_zxid=5 << 32).client()
        client.create("/a")
        assert client.stat("/a").czxid == (5 << 32) + 2


class TestReads:
    def test_children_come_in_no_order(self, client: Client) -> None:
        client.create("/t")
        names = {client.create("/t/", flags=CreateFlag.SEQUENCE)[3:] for _ in range(10)}
        listings = {client.body(r.GetChildren2Request("/t")).children for _ in range(20)}
        assert len(listings) > 1
        assert all(set(listing) == names for listing in listings)

    def test_children_carry_the_stat_where_asked(self, client: Client) -> None:
        client.create("/t")
        client.create("/t/a")
        assert client.body(r.GetChildrenRequest("/t")) == (("a",),)
        assert client.body(r.GetChildren2Request("/t")) == (("a",), client.stat("/t"))

    @pytest.mark.parametrize(
        "kind", [r.ExistsRequest, r.GetDataRequest, r.GetChildrenRequest, r.GetChildren2Request, r.GetAclRequest]
    )
    @pytest.mark.parametrize("path", ["/none", "none", "//"])
    def test_a_node_that_is_not_there(self, client: Client, kind: type[r.ExistsRequest], path: str) -> None:
        assert client.err(kind(path)) == ErrorCode.NO_NODE

    def test_only_exists_refuses_a_null_character(self, client: Client) -> None:
        assert client.err(r.ExistsRequest("/a\0")) == ErrorCode.BAD_ARGUMENTS
        assert client.err(r.GetDataRequest("/a\0")) == ErrorCode.NO_NODE

    def test_sync_answers_any_path(self, client: Client) -> None:
        """M-20."""
        assert client.body(r.SyncRequest("/none")).path == "/none"


class TestStrangeRequests:
    def test_an_unknown_operation_ends_the_connection(self, client: Client) -> None:
        """M-16; the reply has no zxid."""
        client.create("/a")
        assert client.send(r.UnknownRequest(777)) == [
            Reply(client.peer, client.xid, -1, ErrorCode.UNIMPLEMENTED, None),
            Drop(client.peer),
        ]

    def test_a_check_alone_is_a_write_without_change(self, client: Client) -> None:
        client.create("/a")
        stat = client.stat("/a")
        before = client.bench.engine.zxid
        assert client.body(r.CheckVersionRequest("/a", 0)) == r.StatReply(stat)
        assert client.err(r.CheckVersionRequest("/a", 3)) == ErrorCode.BAD_VERSION
        assert client.err(r.CheckVersionRequest("/none")) == ErrorCode.NO_NODE
        assert client.bench.engine.zxid == before + 3

    def test_a_malformed_body_is_answered(self, client: Client) -> None:
        assert client.err(r.MalformedRequest(OpCode.EXISTS)) == ErrorCode.MARSHALLING_ERROR
        assert not client.dropped

    @pytest.mark.parametrize(("op", "zxids"), [(OpCode.CREATE, 1), (OpCode.MULTI, 1), (OpCode.MULTI_READ, 0)])
    def test_a_malformed_write_uses_up_a_zxid(self, client: Client, op: int, zxids: int) -> None:
        before = client.bench.engine.zxid
        assert client.err(r.MalformedRequest(op)) == ErrorCode.MARSHALLING_ERROR
        assert client.bench.engine.zxid == before + zxids

    @pytest.mark.parametrize("request_", [r.MalformedRequest(100), r.MalformedRequest(102), r.SaslRequest(None)])
    def test_malformed_credentials_end_the_connection(self, client: Client, request_: r.Request) -> None:
        assert client.send(request_) == [Drop(client.peer)]

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (r.ReconfigRequest(), ErrorCode.RECONFIG_DISABLED),
            (r.DeleteContainerRequest(), ErrorCode.BAD_ARGUMENTS),
        ],
    )
    def test_requests_without_meaning_on_a_single_server_are_refused(
        self, client: Client, request_: r.Request, code: int
    ) -> None:
        before = client.bench.engine.zxid
        assert client.err(request_) == code
        assert client.bench.engine.zxid == before + 1

    def test_multi_read_is_answered_up_to_the_maximum_size(self, client: Client) -> None:
        client.create("/a", bytes(1 << 20))
        for number in range(16):
            client.create(f"/a/{number:02}" + "x" * 9998)
        reads = (r.GetChildrenRequest("/a"),) * 3 + (r.GetDataRequest("/a"),) * 20
        results = client.body(r.MultiReadRequest(reads)).results
        kinds = [r.GetChildrenReply] * 3 + [r.GetDataReply] * 16
        assert [type(result) for result in results[:19]] == kinds
        assert results[19:] == (r.ErrorReply(ErrorCode.MARSHALLING_ERROR),) * 4
        names = client.body(r.MultiReadRequest((r.GetChildrenRequest("/a"),) * 200)).results
        assert [type(result) for result in names] == [r.GetChildrenReply] * 105 + [r.ErrorReply] * 95

    def test_sasl_without_users_is_answered_with_no_token(self, client: Client) -> None:
        assert client.send(r.SaslRequest(b"x")) == [Reply(client.peer, client.xid, 0, 0, r.SaslReply(None))]

    def test_a_peer_without_a_session_is_dropped(self, bench: Bench) -> None:
        assert bench.engine.step(99, 1, r.PingRequest(), NOW_MS) == [Drop(99)]


def test_statistics_count_what_is_there(client: Client) -> None:
    client.create("/a", b"xyz", flags=CreateFlag.EPHEMERAL)
    client.body(r.CreateContainerRequest("/b"))
    client.body(r.SetDataRequest("/b", b"12345"))
    client.body(r.GetDataRequest("/b", True))
    client.body(r.GetChildrenRequest("/", True))
    client.err(r.ExistsRequest("/c", True))
    figures = client.bench.engine.statistics(NOW_MS)
    fresh = Bench().engine.statistics(NOW_MS)
    assert figures[1:] == (6, 1, 1, fresh.data_bytes + 12, 1, 1, 3, 6)
