"""Operations on znodes have the same replies, errors and stats on both servers."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from helpers.raw_client import Speaker

from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, OpCode, Permission
from distsync._wire.message_codec import encode_request


def world(permissions: int) -> tuple[r.Acl, ...]:
    return (r.Acl(permissions, "world", "anyone"),)


class TestCreate:
    @pytest.mark.parametrize("kind", [r.CreateRequest, r.Create2Request, r.CreateContainerRequest])
    def test_create_makes_a_node(self, me: Speaker, root: str, kind: type[r.CreateRequest]) -> None:
        zxid, err, body = me.tell(kind(f"{root}/a", b"xyz"))
        stat = me.stat(f"{root}/a")
        assert (err, body.path) == (0, f"{root}/a")
        assert stat == (zxid, zxid, stat.ctime, stat.ctime, 0, 0, 0, 0, 3, 0, zxid)
        assert kind is r.CreateRequest or body.stat == stat
        parent = me.stat(root)
        assert (parent.cversion, parent.num_children, parent.pzxid) == (1, 1, zxid)

    @pytest.mark.parametrize(
        ("path", "data", "acl", "flags", "code"),
        [
            ("", b"", r.OPEN_ACL, 0, ErrorCode.BAD_ARGUMENTS),
            ("none", b"", r.OPEN_ACL, 0, ErrorCode.BAD_ARGUMENTS),
            ("/none/a", b"", r.OPEN_ACL, 0, ErrorCode.NO_NODE),
            ("/none/a", b"", (), 0, ErrorCode.INVALID_ACL),
            ("/.", b"", r.OPEN_ACL, 0, ErrorCode.BAD_ARGUMENTS),
            ("/a", b"", r.OPEN_ACL, 7, ErrorCode.BAD_ARGUMENTS),
            ("/a", b"", r.OPEN_ACL, -1, ErrorCode.BAD_ARGUMENTS),
            ("/a", b"", r.OPEN_ACL, CreateFlag.TTL, ErrorCode.BAD_ARGUMENTS),
            ("/zookeeper", b"", r.OPEN_ACL, 0, ErrorCode.NODE_EXISTS),
            ("/zookeeper/config/a", b"", r.OPEN_ACL, 0, ErrorCode.NO_AUTH),
        ],
    )
    def test_create_refused(
        self, me: Speaker, path: str, data: bytes, acl: tuple[r.Acl, ...], flags: int, code: int
    ) -> None:
        for kind in (r.CreateRequest, r.Create2Request, r.CreateContainerRequest):
            assert me.err(kind(path, data, acl, flags)) == code

    def test_create_ephemeral(self, me: Speaker, root: str, connect: Callable[..., Speaker]) -> None:
        other = connect()
        assert me.err(r.CreateRequest(f"{root}/e", flags=CreateFlag.EPHEMERAL)) == 0
        assert me.stat(f"{root}/e").ephemeral_owner == struct.unpack_from(">iiq", me.greeting)[2]
        assert other.err(r.CreateRequest(f"{root}/e/a")) == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
        zxid, err, _ = me.tell(r.CloseSessionRequest())
        assert (err, me.link.at_end()) == (0, True)
        assert other.err(r.ExistsRequest(f"{root}/e")) == ErrorCode.NO_NODE
        assert other.stat(root).pzxid == zxid

    def test_create_sequence(self, me: Speaker, root: str) -> None:
        """Creates count, deletes do not; a name that exists does not increment the number."""
        me.body(r.CreateRequest(f"{root}/a"))
        me.body(r.DeleteRequest(f"{root}/a"))
        flags = CreateFlag.SEQUENCE
        assert me.body(r.CreateRequest(f"{root}/s", flags=flags)).path == f"{root}/s0000000001"
        assert me.body(r.Create2Request(f"{root}/", flags=flags)).path == f"{root}/0000000002"
        me.body(r.CreateRequest(f"{root}/s0000000004"))
        assert me.err(r.CreateRequest(f"{root}/s", flags=flags)) == ErrorCode.NODE_EXISTS
        assert me.stat(root).cversion == 2 * 4 - 3

    def test_create_container_shows_no_owner(self, me: Speaker, root: str) -> None:
        assert me.body(r.CreateContainerRequest(f"{root}/c")).stat.ephemeral_owner == 0
        assert me.err(r.CreateRequest(f"{root}/c/a")) == 0


class TestTimeToLive:
    def test_create_ttl_makes_a_node(self, me: Speaker, root: str) -> None:
        zxid, err, body = me.tell(r.CreateTtlRequest(f"{root}/t", b"x", ttl=600_000))
        stat = me.stat(f"{root}/t")
        assert (err, body) == (0, r.Create2Reply(f"{root}/t", stat))
        assert stat == (zxid, zxid, stat.ctime, stat.ctime, 0, 0, 0, 0, 1, 0, zxid)
        assert me.err(r.CreateRequest(f"{root}/t/child")) == 0

    def test_create_ttl_sequence(self, me: Speaker, root: str) -> None:
        request = r.CreateTtlRequest(f"{root}/t", flags=CreateFlag.SEQUENCE_TTL, ttl=600_000)
        assert [me.body(request).path[-2:] for _ in range(2)] == ["00", "01"]

    @pytest.mark.parametrize(
        ("flags", "ttl"), [(5, 0), (5, -1), (5, 1 << 40), (6, 1 << 40), (0, 5), (1, 5), (4, 5), (7, 5)]
    )
    def test_create_ttl_refused(self, me: Speaker, root: str, flags: int, ttl: int) -> None:
        assert me.err(r.CreateTtlRequest(f"{root}/t", flags=flags, ttl=ttl)) == ErrorCode.BAD_ARGUMENTS

    def test_longest_time_to_live(self, me: Speaker, root: str) -> None:
        assert me.err(r.CreateTtlRequest(f"{root}/t", ttl=(1 << 40) - 1)) == 0


class TestDelete:
    def test_delete(self, me: Speaker, root: str) -> None:
        me.body(r.CreateRequest(f"{root}/a"))
        zxid, err, body = me.tell(r.DeleteRequest(f"{root}/a", 0))
        assert (err, body) == (0, None)
        stat = me.stat(root)
        assert (stat.cversion, stat.num_children, stat.pzxid) == (2, 0, zxid)

    @pytest.mark.parametrize(
        ("path", "version", "code"),
        [
            ("/", -1, ErrorCode.BAD_ARGUMENTS),
            ("/zookeeper/quota", -1, ErrorCode.BAD_ARGUMENTS),
            ("none", -1, ErrorCode.BAD_ARGUMENTS),
            ("/none/a", -1, ErrorCode.NO_NODE),
            ("{root}", 3, ErrorCode.BAD_VERSION),
            ("{root}", 0, ErrorCode.NOT_EMPTY),
        ],
    )
    def test_delete_refused(self, me: Speaker, root: str, path: str, version: int, code: int) -> None:
        me.body(r.CreateRequest(f"{root}/a"))
        assert me.err(r.DeleteRequest(path.format(root=root), version)) == code

    def test_delete_container_is_refused_for_clients(self, me: Speaker, root: str, newer: bool) -> None:
        """ZooKeeper 3.8 reads the path from the wrong bytes; a zxid is used. From 3.9 on a client may
        delete it, whatever the ACLs.
        """
        refused = ErrorCode.MARSHALLING_ERROR if newer else ErrorCode.BAD_ARGUMENTS
        before = me.tell(r.PingRequest())[0]
        assert me.tell(r.DeleteContainerRequest())[:2] == (before + (not newer), refused)
        me.body(r.CreateContainerRequest(f"{root}/c"))
        me.body(r.SetAclRequest(root, world(Permission.ALL & ~Permission.DELETE)))
        assert me.err(r.DeleteRequest(f"{root}/c")) == ErrorCode.NO_AUTH
        path = f"{root}/c".encode()
        for body, code in ((path, refused), (struct.pack(">i", len(path)) + path, 0 if newer else refused)):
            assert me.err(r.ExistsRequest(f"{root}/c")) == 0
            me.send_raw(OpCode.DELETE_CONTAINER, body)
            assert me.reply()[2] == code
        assert me.err(r.ExistsRequest(f"{root}/c")) == (ErrorCode.NO_NODE if newer else 0)
        me.body(r.SetAclRequest(root, r.OPEN_ACL))


class TestData:
    def test_set_data(self, me: Speaker, root: str) -> None:
        before = me.stat(root)
        zxid, err, body = me.tell(r.SetDataRequest(root, b"four", 0))
        assert err == 0
        assert body.stat == before._replace(mzxid=zxid, mtime=body.stat.mtime, version=1, data_length=4)
        assert me.body(r.GetDataRequest(root)) == (b"four", body.stat)

    def test_null_data_is_not_empty_data(self, me: Speaker, root: str) -> None:
        for data in (None, b""):
            me.body(r.SetDataRequest(root, data))
            assert me.body(r.GetDataRequest(root)).data == data

    @pytest.mark.parametrize(
        ("path", "version", "code"),
        [
            ("", -1, ErrorCode.BAD_ARGUMENTS),
            ("/none/", -1, ErrorCode.BAD_ARGUMENTS),
            ("/none", -1, ErrorCode.NO_NODE),
            ("{root}", 1, ErrorCode.BAD_VERSION),
            ("/zookeeper/config", 1, ErrorCode.NO_AUTH),
        ],
    )
    def test_set_data_refused(self, me: Speaker, root: str, path: str, version: int, code: int) -> None:
        assert me.err(r.SetDataRequest(path.format(root=root), b"", version)) == code

    @pytest.mark.parametrize(
        "kind",
        [
            r.ExistsRequest,
            r.GetDataRequest,
            r.GetChildrenRequest,
            r.GetChildren2Request,
            r.GetAclRequest,
            r.GetAllChildrenNumberRequest,
        ],
    )
    def test_reads_refused(self, me: Speaker, root: str, kind: type[r.ExistsRequest], newer: bool) -> None:
        me.body(r.CreateRequest(f"{root}/closed", acl=world(Permission.WRITE)))
        assert me.err(kind("/none")) == me.err(kind("none")) == ErrorCode.NO_NODE
        free = kind is r.ExistsRequest and not newer
        assert me.err(kind(f"{root}/closed")) == (0 if free else ErrorCode.NO_AUTH)
        me.body(r.DeleteRequest(f"{root}/closed"))

    def test_get_children(self, me: Speaker, root: str) -> None:
        for name in "abc":
            me.body(r.CreateRequest(f"{root}/{name}"))
        names, stat = me.body(r.GetChildren2Request(root))
        assert set(names) == set(me.body(r.GetChildrenRequest(root)).children) == set("abc")
        assert (stat, stat.num_children, stat.cversion) == (me.stat(root), 3, 3)

    def test_sync_uses_no_zxid(self, me: Speaker) -> None:
        before = me.tell(r.PingRequest())[0]
        assert me.tell(r.SyncRequest("/none")) == (before, 0, r.SyncReply("/none"))


class TestCounting:
    def test_get_all_children_number(self, me: Speaker, root: str) -> None:
        for path in ("/a", "/a/b", "/a/b/c", "/d"):
            me.body(r.CreateRequest(root + path))
        counts = [me.body(r.GetAllChildrenNumberRequest(root + path)).total for path in ("", "/a", "/d")]
        assert counts == [4, 2, 0]
        whole = me.body(r.GetAllChildrenNumberRequest("/")).total
        assert me.body(r.GetAllChildrenNumberRequest("")).total == whole + 1

    def test_get_ephemerals(self, me: Speaker, root: str, connect: Callable[..., Speaker]) -> None:
        other = connect()
        for who, name in ((me, "a"), (me, "ab"), (other, "c")):
            who.body(r.CreateRequest(f"{root}/{name}", flags=CreateFlag.EPHEMERAL))
        me.body(r.CreateTtlRequest(f"{root}/t", ttl=600_000))
        both = {f"{root}/a", f"{root}/ab"}
        for prefix, expected in {"": both, "/": both, " ": both, root: both, f"{root}/ab": {f"{root}/ab"}}.items():
            assert set(me.body(r.GetEphemeralsRequest(prefix)).ephemerals) == expected
        assert me.body(r.GetEphemeralsRequest("/none")).ephemerals == ()

    def test_who_am_i(self, me: Speaker) -> None:
        assert me.body(r.WhoAmIRequest()).client_info == (("ip", "127.0.0.1"),)
        for credentials in (b"alice:secret", b"alice:secret", b"bob"):
            me.auth(credentials)
        everybody = me.body(r.WhoAmIRequest()).client_info
        assert sorted(everybody) == [("digest", "alice"), ("digest", "bob"), ("ip", "127.0.0.1")]


class TestMulti:
    def test_multi_success(self, me: Speaker, root: str, newer: bool) -> None:
        """A create2 in a multi is answered like a create; from 3.9 on like a create2."""
        zxid, err, body = me.tell(
            r.MultiRequest(
                (
                    r.CreateRequest(f"{root}/a"),
                    r.Create2Request(f"{root}/a/s", flags=CreateFlag.SEQUENCE),
                    r.CreateContainerRequest(f"{root}/c"),
                    r.CreateTtlRequest(f"{root}/t", ttl=600_000),
                    r.CreateTtlRequest(f"{root}/p", flags=0, ttl=5),
                    r.SetDataRequest(f"{root}/a", b"x"),
                    r.CheckVersionRequest(f"{root}/a", 1),
                    r.DeleteRequest(f"{root}/a/s0000000000"),
                )
            )
        )
        assert err == 0
        second = "Create2" if newer else "Create"
        kinds = ["Create", second, "Create2", "Create2", "Create", "Stat", "Check", "Delete"]
        assert [type(result).__name__.removesuffix("Reply") for result in body.results] == kinds
        assert body.results[3].stat == me.stat(f"{root}/t")
        assert me.stat(f"{root}/a") == body.results[5].stat._replace(cversion=2, num_children=0)
        assert {me.stat(root + path).czxid for path in ("/a", "/c", "/t", "/p")} == {zxid}

    def test_multi_failure(self, me: Speaker, root: str) -> None:
        before = me.stat(root)
        create = r.CreateRequest(f"{root}/a")
        zxid, err, body = me.tell(r.MultiRequest((create, create, r.DeleteRequest("/none"))))
        assert err == 0
        assert [result.err for result in body.results] == [0, ErrorCode.NODE_EXISTS, -2]
        assert me.stat(root) == before
        assert me.tell(r.MultiRequest(())) == (zxid + 1, 0, r.MultiReply(()))

    @pytest.mark.parametrize(
        "stranger", [r.CreateRequest("/a", flags=CreateFlag.TTL), r.CreateContainerRequest("/a", flags=6)]
    )
    def test_multi_with_a_time_to_live_by_flags_alone(self, me: Speaker, root: str, stranger: r.Operation) -> None:
        first = r.CreateRequest(f"{root}/a")
        assert me.err(r.MultiRequest((first, stranger))) == ErrorCode.MARSHALLING_ERROR
        assert me.err(r.ExistsRequest(f"{root}/a")) == ErrorCode.NO_NODE

    def test_multi_of_reads_is_malformed(self, me: Speaker) -> None:
        before = me.tell(r.PingRequest())[0]
        body = encode_request(0, r.MultiReadRequest((r.GetDataRequest("/"),)))[8:]
        me.send_raw(OpCode.MULTI, body)
        assert me.reply()[1:3] == (before + 1, ErrorCode.MARSHALLING_ERROR)

    def test_multi_read(self, me: Speaker, root: str) -> None:
        me.body(r.CreateRequest(f"{root}/a", b"x"))
        me.body(r.CreateRequest(f"{root}/closed", acl=world(Permission.WRITE)))
        before = me.tell(r.PingRequest())[0]
        reads = [r.GetDataRequest(f"{root}/a", True), r.GetDataRequest("/none", True)]
        reads += [r.GetDataRequest(f"{root}/closed"), r.GetChildrenRequest(f"{root}/a", True)]  # type: ignore[list-item]
        assert me.tell(r.MultiReadRequest(tuple(reads))) == (
            before,
            0,
            r.MultiReply(
                (
                    r.GetDataReply(b"x", me.stat(f"{root}/a")),
                    r.ErrorReply(ErrorCode.NO_NODE),
                    r.ErrorReply(ErrorCode.NO_AUTH),
                    r.GetChildrenReply(()),
                )
            ),
        )
        assert me.told(r.SetDataRequest(f"{root}/a", b"y")) == []
        assert me.body(r.MultiReadRequest(())) == ((),)
        me.body(r.DeleteRequest(f"{root}/closed"))

    def test_check_alone(self, me: Speaker, root: str, newer: bool) -> None:
        """ZooKeeper 3.8 never answers a single check that succeeds, so only refusals are compared. For
        3.9 a single check is not a request.
        """
        if newer:
            assert me.tell(r.CheckVersionRequest(root))[:2] == (-1, ErrorCode.UNIMPLEMENTED)
            assert me.link.at_end()
            return
        before = me.tell(r.PingRequest())[0]
        assert me.tell(r.CheckVersionRequest(root, 1))[:2] == (before + 1, ErrorCode.BAD_VERSION)
        assert me.tell(r.CheckVersionRequest("/none"))[:2] == (before + 2, ErrorCode.NO_NODE)
        assert me.tell(r.CheckVersionRequest("none"))[:2] == (before + 3, ErrorCode.BAD_ARGUMENTS)
