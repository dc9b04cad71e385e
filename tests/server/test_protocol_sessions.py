"""Sessions, identities, quotas and meaningless requests are handled alike by both servers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.frame_client import linked
from helpers.raw_client import BODIES, Speaker
from helpers.servers import ServerProcess

from distsync._server.acl import digest_of
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode, OpCode, Permission
from distsync._wire.message_codec import encode_request
from distsync._wire.record_codec import OPERATIONS

ALICE = b"alice:secret"
WITH_BODIES = [kind for kind in OPERATIONS if kind in BODIES and kind not in (r.SaslRequest, r.WhoAmIRequest)]


def world(permissions: int) -> tuple[r.Acl, ...]:
    return (r.Acl(permissions, "world", "anyone"),)


class TestAcl:
    def test_acl_is_set_and_read(self, me: Speaker, root: str) -> None:
        before = me.stat(root)
        acl = (*r.OPEN_ACL, r.Acl(Permission.READ, "ip", "10.0.0.0/8"))
        zxid, err, body = me.tell(r.SetAclRequest(root, acl + acl, 0))
        assert (err, body.stat) == (0, before._replace(aversion=1))
        assert me.body(r.GetAclRequest(root)) == (acl, body.stat)
        assert me.tell(r.SetAclRequest(root, acl, 0))[:2] == (zxid + 1, ErrorCode.BAD_VERSION)

    @pytest.mark.parametrize(
        "entry",
        [
            ("world", "me"),
            ("auth", ""),
            ("digest", "alice"),
            ("digest", "a:b:c"),
            ("ip", "10.0.0.0/33"),
            ("ip", "10.0.0.0/255.0.0.0"),
            ("ip", "10.0.0"),
            ("super", ""),
            ("sasl", "me"),
            ("", ""),
        ],
    )
    def test_set_acl_refused(self, me: Speaker, root: str, entry: tuple[str, str]) -> None:
        assert me.err(r.SetAclRequest(root, (r.Acl(31, *entry),))) == ErrorCode.INVALID_ACL

    def test_acl_errors_by_rank(self, me: Speaker, root: str) -> None:
        me.body(r.CreateRequest(f"{root}/a", acl=world(Permission.READ)))
        for path, acl, code in [
            ("none", (), ErrorCode.BAD_ARGUMENTS),
            ("/none", (), ErrorCode.INVALID_ACL),
            ("/none", r.OPEN_ACL, ErrorCode.NO_NODE),
            (f"{root}/a", r.OPEN_ACL, ErrorCode.NO_AUTH),
        ]:
            assert me.err(r.SetAclRequest(path, acl, 9)) == code

    def test_digests_are_hidden_from_clients_that_may_only_read(self, me: Speaker, root: str) -> None:
        mine = r.Acl(31, "digest", digest_of(ALICE))
        me.body(r.CreateRequest(f"{root}/a", acl=(mine, *world(Permission.READ))))
        assert me.body(r.GetAclRequest(f"{root}/a")).acl[0].id == "alice:x"
        assert me.auth(ALICE) == 0
        assert me.body(r.GetAclRequest(f"{root}/a")).acl == (mine, *world(Permission.READ))
        assert me.err(r.SetAclRequest(f"{root}/a", (r.Acl(31, "auth", "anything"),))) == 0
        assert me.body(r.GetAclRequest(f"{root}/a")).acl == (mine,)
        me.body(r.DeleteRequest(f"{root}/a"))

    def test_auth(self, me: Speaker) -> None:
        assert me.tell(r.AuthRequest(0, "ip", None)) == (0, 0, None)
        assert me.tell(r.AuthRequest(0, "digest", ALICE)) == (0, 0, None)
        assert me.tell(r.AuthRequest(0, "world", b"")) == (0, ErrorCode.AUTH_FAILED, None)
        assert me.link.at_end()


class TestSessions:
    def test_read_only_byte_is_sent_to_clients_that_sent_it(self, connect: Callable[..., Speaker]) -> None:
        assert len(connect().greeting) == 36
        for read_only in (False, True):
            greeting = connect(read_only=read_only).greeting
            assert (len(greeting), greeting[36]) == (37, 0)

    @pytest.mark.parametrize(("asked", "given"), [(1, 1000), (2500, 2500), (-5, 1000)])
    def test_time_out_is_negotiated(self, connect: Callable[..., Speaker], asked: int, given: int) -> None:
        assert struct.unpack_from(">ii", connect(timeout_ms=asked).greeting) == (0, given)

    def test_session_moves_to_the_later_connection(self, me: Speaker, connect: Callable[..., Speaker]) -> None:
        again = connect(**me.hello_again(timeout_ms=3000))
        assert again.greeting[8:36] == me.greeting[8:36]
        assert struct.unpack_from(">ii", again.greeting) == (0, 3000)
        assert me.link.at_end()
        assert again.err(r.PingRequest()) == 0

    def test_changed_timeout_uses_no_zxid(self, me: Speaker, connect: Callable[..., Speaker]) -> None:
        before = me.tell(r.SyncRequest("/"))[0]
        again = connect(**me.hello_again(timeout_ms=3000))
        assert again.tell(r.SyncRequest("/"))[0] == before

    @pytest.mark.parametrize("change", [{"password": bytes(16)}, {"password": b""}, {"session_id": 12345}])
    def test_wrong_password_or_unknown_session(self, connect: Callable[..., Speaker], change: dict[str, Any]) -> None:
        refused = connect(**connect().hello_again(**change))
        assert refused.greeting == bytes(16) + struct.pack(">i", 16) + bytes(16)
        assert refused.link.at_end()

    def test_later_zxid_is_refused_without_a_reply(self, me: Speaker, connect: Callable[..., Speaker]) -> None:
        seen = me.tell(r.SyncRequest("/"))[0]
        assert connect(last_zxid_seen=seen).greeting
        assert connect(last_zxid_seen=seen + 1000).greeting == b""

    def test_ping_has_an_xid_of_its_own(self, me: Speaker) -> None:
        before = me.tell(r.SyncRequest("/"))[0]
        assert me.tell(r.PingRequest()) == (before, 0, None)


class TestStrangeRequests:
    def test_reconfig(self, me: Speaker) -> None:
        before = me.tell(r.PingRequest())[0]
        assert me.tell(r.ReconfigRequest())[:2] == (before + 1, ErrorCode.RECONFIG_DISABLED)

    def test_sasl(self, me: Speaker) -> None:
        assert me.tell(r.SaslRequest(b"token")) == (0, 0, r.SaslReply(None))
        me.link.send(encode_request(1, r.SaslRequest(None)))
        assert me.link.at_end()

    @pytest.mark.parametrize("op", [777, 0, -1, 10, 23, 99, 108])
    def test_unknown_operation(self, me: Speaker, op: int) -> None:
        me.send_raw(op, b"whatever")
        assert me.reply() == (me.xid, -1, ErrorCode.UNIMPLEMENTED, None)
        assert me.link.at_end()

    @pytest.mark.parametrize("request_type", WITH_BODIES, ids=lambda kind: str(kind.__name__))
    def test_malformed_body(self, me: Speaker, request_type: type, newer: bool) -> None:
        """Writes use a zxid nevertheless; from 3.9 on only multi does."""
        op = OPERATIONS[request_type]
        before = me.tell(r.PingRequest())[0]
        me.send_raw(op, b"\0\0")
        writes = {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.SET_DATA}
        used = op == OpCode.MULTI or (op in writes | {OpCode.SET_ACL} and not newer)
        assert me.reply() == (me.xid, before + used, ErrorCode.MARSHALLING_ERROR, None)

    @pytest.mark.parametrize("op", [OpCode.AUTH, OpCode.SASL])
    def test_malformed_credentials(self, me: Speaker, op: int) -> None:
        me.send_raw(op, b"\0\0")
        assert me.link.at_end()


class TestQuota:
    @pytest.fixture
    def quota(self, me: Speaker, root: str) -> Iterator[str]:
        """Set the quota of the namespace: 3 znodes, 5 bytes."""
        path = f"/zookeeper/quota{root}"
        me.body(r.CreateRequest(path))
        me.body(r.CreateRequest(f"{path}/zookeeper_limits", b"count=3,bytes=5"))
        yield path
        for name in ("/zookeeper_limits", "/zookeeper_stats", ""):
            me.err(r.DeleteRequest(path + name))

    def test_quota_counts_the_subtree(self, me: Speaker, root: str, quota: str) -> None:
        """Neither zxid nor version of the stats node changes."""
        me.body(r.CreateRequest(f"{root}/a", b"1234"))
        stats = f"{quota}/zookeeper_stats"
        me.body(r.CreateRequest(stats, b"anything"))

        def held() -> bytes:
            return bytes(me.body(r.GetDataRequest(stats)).data)

        before = me.stat(stats)
        assert held() == b"count=2,bytes=4"
        me.body(r.CreateRequest(f"{root}/a/b", b"56"))
        assert held() == b"count=3,bytes=6"
        me.body(r.SetDataRequest(f"{root}/a", None))
        assert held() == b"count=3,bytes=2"
        me.body(r.MultiRequest((r.CreateRequest(f"{root}/c"), r.DeleteRequest(f"{root}/a/b"))))
        me.body(r.MultiRequest((r.CreateRequest(f"{root}/d"), r.DeleteRequest("/none"))))
        assert held() == b"count=3,bytes=0"
        assert me.stat(stats) == before
        me.body(r.SetDataRequest(stats, b"count=7,bytes=8=;z=2;a=1"))
        me.body(r.CreateRequest(f"{root}/d", b"1"))
        assert held() == b"count=8,bytes=9=;a=1;z=2"

    def test_quota_is_not_enforced_by_default(self, me: Speaker, root: str, quota: str) -> None:
        me.body(r.SetDataRequest(f"{quota}/zookeeper_limits", b"count=1,bytes=1=;byteHardLimit=1;countHardLimit=1"))
        me.body(r.CreateRequest(f"{quota}/zookeeper_stats"))
        assert me.err(r.CreateRequest(f"{root}/a", b"12345")) == 0

    def test_quota_ends_with_its_limits(self, me: Speaker, root: str, quota: str) -> None:
        me.body(r.CreateRequest(f"{quota}/zookeeper_stats"))
        me.body(r.DeleteRequest(f"{quota}/zookeeper_limits"))
        me.body(r.CreateRequest(f"{root}/a"))
        assert me.body(r.GetDataRequest(f"{quota}/zookeeper_stats")).data == b"count=1,bytes=0"


@pytest.mark.slow
def test_quotas_are_counted_again_when_the_server_starts(own_server: ServerProcess) -> None:
    """ZooKeeper counts the nodes of its last snapshot: it writes one when it starts, and counts them
    the next time.
    """
    quota, stats = "/zookeeper/quota/q", "/zookeeper/quota/q/zookeeper_stats"
    given = (
        ("/q", b"123"),
        ("/q/a", b"45"),
        (quota, b""),
        (f"{quota}/zookeeper_limits", b"count=9,bytes=9"),
        (stats, b""),
    )
    with linked(own_server.port) as link:
        for path, data in given:
            assert link.ask(1, r.CreateRequest(path, data), r.CreateReply)[2] == 0
        assert link.ask(2, r.SetDataRequest(stats, b"count=77,bytes=88", -1), r.StatReply)[2] == 0
    own_server.restart()
    own_server.restart()
    with linked(own_server.port) as link:
        held = link.ask(1, r.GetDataRequest(stats), r.GetDataReply)[3]
        assert (held.data, held.stat.version) == (b"count=2,bytes=5", 1)  # type: ignore[attr-defined]
