"""Settings: the super user, enforced quotas, the reaping interval; alike on both servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from helpers.raw_client import Speaker
from helpers.servers import EmbeddedProcess, ServerProcess, ZooKeeperProcess, need_zookeeper
from helpers.timing import UNIT, eventually

from distsync._server.acl import digest_of
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType, Permission

SUPER = b"super:admin"
SHORT_MS = int(20_000 * UNIT)
"""Long enough to make more, and to watch it."""


class TunedEmbedded(EmbeddedProcess):
    def command(self) -> list[str]:
        digest = self.folder / "super"
        digest.touch(0o600)
        digest.write_text(digest_of(SUPER) + "\n")
        tuning = ["--super-file", str(digest), "--enforce-quota", "--reaping-interval", "0.2"]
        return [*super().command(), *tuning]


class TunedZooKeeper(ZooKeeperProcess):
    def command(self) -> list[str]:
        java, *others = super().command()
        others = [other for other in others if "checkIntervalMs" not in other]
        tuning = {
            "zookeeper.DigestAuthenticationProvider.superDigest": digest_of(SUPER),
            "zookeeper.enforceQuota": "true",
            "znode.container.checkIntervalMs": "200",
        }
        return [java, *(f"-D{key}={value}" for key, value in tuning.items()), *others]


@pytest.fixture(scope="module")
def tuned(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if server_kind == "zookeeper":
        need_zookeeper()
    server = {"embedded": TunedEmbedded, "zookeeper": TunedZooKeeper}[server_kind](tmp_path_factory.mktemp("tuned"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def root() -> str:
    return f"/test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def me(tuned: ServerProcess, root: str) -> Iterator[Speaker]:
    speaker = Speaker(tuned.port, root)
    speaker.body(r.CreateRequest(root))
    yield speaker
    speaker.close()


def test_super_user_is_restricted_by_no_acl(me: Speaker, root: str) -> None:
    me.body(r.CreateRequest(f"{root}/a", acl=(r.Acl(Permission.READ, "digest", digest_of(b"me:mine")),)))
    assert me.err(r.GetDataRequest(f"{root}/a")) == me.err(r.CreateRequest(f"{root}/a/b")) == ErrorCode.NO_AUTH
    assert me.err(r.AuthRequest(0, "digest", b"super:wrong")) == 0
    assert me.err(r.SetDataRequest("/zookeeper/config", b"")) == ErrorCode.NO_AUTH
    assert me.err(r.AuthRequest(0, "digest", SUPER)) == 0
    assert me.err(r.GetDataRequest(f"{root}/a")) == me.err(r.CreateRequest(f"{root}/a/b")) == 0
    assert me.body(r.GetAclRequest(f"{root}/a")).acl[0].id == digest_of(b"me:mine")
    assert ("super", "") in me.body(r.WhoAmIRequest()).client_info


def test_hard_limits_refuse(me: Speaker, root: str) -> None:
    quota = f"/zookeeper/quota{root}"
    me.body(r.CreateRequest(quota))
    me.body(r.CreateRequest(f"{quota}/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=5;countHardLimit=2"))
    me.body(r.CreateRequest(f"{quota}/zookeeper_stats"))
    assert me.err(r.CreateRequest(f"{root}/a", b"123456")) == ErrorCode.QUOTA_EXCEEDED
    assert me.err(r.CreateRequest(f"{root}/a", b"12345")) == 0
    assert me.err(r.CreateRequest(f"{root}/b")) == ErrorCode.QUOTA_EXCEEDED
    assert me.err(r.CreateTtlRequest(f"{root}/b", ttl=9)) == ErrorCode.QUOTA_EXCEEDED
    assert me.err(r.CreateRequest(f"{root}/a")) == ErrorCode.NODE_EXISTS
    assert me.err(r.SetDataRequest(f"{root}/a", b"123456", 7)) == ErrorCode.QUOTA_EXCEEDED
    assert me.err(r.SetDataRequest(f"{root}/a", b"54321", 7)) == ErrorCode.BAD_VERSION
    refused = me.body(r.MultiRequest((r.DeleteRequest(f"{root}/none"), r.CreateRequest(f"{root}/b")))).results
    assert [result.err for result in refused] == [ErrorCode.NO_NODE, ErrorCode.RUNTIME_INCONSISTENCY]
    other = f"{quota}/xzookeeper_limits"
    me.body(r.MultiRequest((r.CreateRequest(other), r.DeleteRequest(f"{root}/none"))))
    me.body(r.CreateRequest(other))
    me.body(r.DeleteRequest(other))
    assert me.err(r.CreateRequest(f"{root}/b")) == ErrorCode.QUOTA_EXCEEDED


def test_exceeded_soft_limits_are_logged(me: Speaker, root: str, tuned: ServerProcess) -> None:
    quota = f"/zookeeper/quota{root}"
    me.body(r.CreateRequest(quota))
    me.body(r.CreateRequest(f"{quota}/zookeeper_limits", b"count=1,bytes=3"))
    me.body(r.CreateRequest(f"{quota}/zookeeper_stats"))
    assert me.err(r.CreateRequest(f"{root}/a", b"12")) == me.err(r.SetDataRequest(f"{root}/a", b"1234")) == 0
    for told in ("count=2, softCountLimit=1]", "bytes=4, softByteLimit=3]"):
        eventually(lambda told=told: f"Quota exceeded: {root} [current {told}" in tuned.output())


def test_expired_ttl_nodes_are_deleted(me: Speaker, root: str) -> None:
    """Their deletion fires watches like any other; children keep them."""
    for name, ttl in (("short", SHORT_MS), ("used", SHORT_MS), ("long", 600_000)):
        me.body(r.CreateTtlRequest(f"{root}/{name}", ttl=ttl))
    me.body(r.CreateRequest(f"{root}/used/child"))
    me.body(r.GetDataRequest(f"{root}/short", True))
    eventually(lambda: me.err(r.ExistsRequest(f"{root}/short")) == ErrorCode.NO_NODE)
    assert me.events == [(EventType.NODE_DELETED, f"{root}/short")]
    assert set(me.body(r.GetChildrenRequest(root)).children) == {"used", "long"}
    me.body(r.DeleteRequest(f"{root}/used/child"))
    eventually(lambda: me.err(r.ExistsRequest(f"{root}/used")) == ErrorCode.NO_NODE)
    assert me.stat(root).cversion == 5


def test_emptied_containers_are_deleted(me: Speaker, root: str) -> None:
    for name in ("used", "unused"):
        me.body(r.CreateContainerRequest(f"{root}/{name}"))
    me.body(r.CreateRequest(f"{root}/used/child", flags=CreateFlag.EPHEMERAL))
    me.body(r.DeleteRequest(f"{root}/used/child"))
    eventually(lambda: me.err(r.ExistsRequest(f"{root}/used")) == ErrorCode.NO_NODE)
    assert me.body(r.GetChildrenRequest(root)).children == ("unused",)
