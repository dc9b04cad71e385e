"""Commits and snapshots restore the exact state."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.engine_harness import NOW_MS, Bench, Client
from hypothesis import given
from hypothesis import strategies as st

from distsync._server.durable_state import CHUNK_BYTES
from distsync._server.effects import Commit
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._server.journal import change_records as changes
from distsync._server.journal.change_records import UnreadableStateError, pack
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag

names = st.sampled_from(["a", "b", "c"])
plain_paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
quota_paths = st.sampled_from([f"/zookeeper/quota/a{rest}" for rest in ("", "/zookeeper_limits", "/zookeeper_stats")])
paths = st.one_of(plain_paths, plain_paths, plain_paths, quota_paths)
versions = st.sampled_from([-1, -1, -1, 0, 1])
data = st.sampled_from([None, b"", b"x", b"yy"])
acls = st.sampled_from([r.OPEN_ACL, (r.Acl(31, "ip", "127.0.0.1"),), (*r.OPEN_ACL, r.Acl(1, "digest", "a:b"))])
operations = st.one_of(
    st.builds(r.CreateRequest, paths, data, acls, st.integers(0, 4)),
    st.builds(r.CreateContainerRequest, paths, data, acls),
    st.builds(r.CreateTtlRequest, paths, data, acls, st.sampled_from([5, 6]), st.integers(1, 100_000)),
    st.builds(r.DeleteRequest, paths, versions),
    st.builds(r.SetDataRequest, paths, data, versions),
    st.builds(r.CheckVersionRequest, paths, versions),
)
requests = st.one_of(
    operations.filter(lambda request: type(request) is not r.CheckVersionRequest),
    st.builds(r.MultiRequest, st.lists(operations, max_size=4).map(tuple)),
    st.builds(r.SetAclRequest, paths, acls, versions),
    st.just(r.CloseSessionRequest()),
)
moves = st.lists(st.tuples(st.integers(0, 2), requests, st.integers(0, 3000)), max_size=40)


def play(moves: list[tuple[int, r.Request, int]]) -> Bench:
    """Let three clients act, with some time after each action; a client that has lost its session gets
    a new one.
    """
    bench = Bench()
    clients = [bench.client() for _ in range(3)]
    for who, request, ms in moves:
        if clients[who].session_id not in bench.engine.sessions:
            clients[who] = bench.client()
        clients[who].send(request)
        bench.pass_time(ms)
    return bench


def everything(engine: Engine) -> Any:
    """Return all that must survive, independent of order."""
    tree = engine.tree
    return (
        engine.zxid,
        {id: session.timeout_ms for id, session in engine.sessions.items()},
        {stored.path: stored for stored in tree.stored()},
        {path: node.stat for path, node in tree.nodes.items()},
        {owner: set(owned) for owner, owned in tree.ephemerals.items()},
        set(tree.containers),
        set(tree.ttls),
        tree.limited,
        tree.data_bytes,
    )


@given(moves)
def test_the_commits_alone_rebuild_everything(moves: list[tuple[int, r.Request, int]]) -> None:
    bench, again = play(moves), Engine()
    for payload in bench.payloads():
        again.replay(payload)
    assert everything(again) == everything(bench.engine)


@given(moves)
def test_a_snapshot_rebuilds_everything(moves: list[tuple[int, r.Request, int]]) -> None:
    bench, again = play(moves), Engine()
    again.restore(bench.engine.snapshot())
    assert everything(again) == everything(bench.engine)
    assert list(again.snapshot()) == list(bench.engine.snapshot())


@given(moves)
def test_commits_that_a_snapshot_contains_change_nothing(moves: list[tuple[int, r.Request, int]]) -> None:
    bench, again = play(moves), Engine()
    again.restore(bench.engine.snapshot())
    for payload in bench.payloads():
        again.replay(payload)
    assert everything(again) == everything(bench.engine)


@given(moves)
def test_zxids_of_commits_grow_by_one(moves: list[tuple[int, r.Request, int]]) -> None:
    """M-4: refused writes included, so that no client has seen a zxid that a restart forgets."""
    bench = play(moves)
    zxids = [effect.zxid for effect in bench.log if isinstance(effect, Commit)]
    assert zxids == list(range(1, bench.engine.zxid + 1))


@given(moves)
def test_tree_is_consistent(moves: list[tuple[int, r.Request, int]]) -> None:
    engine = play(moves).engine
    nodes = engine.tree.nodes
    for path, node in nodes.items():
        assert all(f"{path.rstrip('/')}/{name}" in nodes for name in node.children)
        assert node.owner <= 0 or (node.owner in engine.sessions and not node.children)
    assert sum(len(node.children) for node in nodes.values()) == len(nodes) - 1


@given(moves)
def test_the_same_calls_have_the_same_effects(moves: list[tuple[int, r.Request, int]]) -> None:
    """Otherwise a simulation could not be reproduced from its seed."""
    assert play(moves).log == play(moves).log


def test_client_continues_after_a_restart() -> None:
    bench = Bench()
    client = bench.client()
    client.create("/t")
    for _ in range(3):
        client.create("/t/", flags=CreateFlag.EPHEMERAL_SEQUENCE)
    restarted = Bench()
    restarted.engine.restore(bench.engine.snapshot())
    assert client.response is not None
    again = restarted.client(
        session_id=client.session_id, password=client.response.password, last_zxid_seen=bench.engine.zxid
    )
    assert again.response == client.response
    assert again.create("/t/", flags=CreateFlag.SEQUENCE) == "/t/0000000003"
    again.send(r.CloseSessionRequest())
    assert restarted.client().children("/t") == {"0000000003"}


def test_snapshot_is_split_into_chunks() -> None:
    client = Bench().client()
    for _ in range(10):
        client.create("/n", bytes(100_000), CreateFlag.SEQUENCE)
    sizes = [len(chunk) for chunk in client.bench.engine.snapshot()]
    assert len(sizes) == 4
    assert all(CHUNK_BYTES <= size < CHUNK_BYTES + 101_000 for size in sizes[:-1])


class TestUnreadable:
    """Malformed state is reported, never skipped."""

    @pytest.fixture
    def client(self) -> Client:
        client = Bench().client()
        client.create("/a", b"data")
        return client

    @pytest.mark.parametrize("cut", [0, 10, 17, 25])
    def test_truncated_transaction_is_unreadable(self, client: Client, cut: int) -> None:
        with pytest.raises(UnreadableStateError):
            Engine().replay(client.bench.payloads()[-1][:cut])

    def test_unknown_kind_of_change_is_unreadable(self, client: Client) -> None:
        with pytest.raises(UnreadableStateError):
            Engine().replay(client.bench.payloads()[-1][:16] + b"\xff")

    @pytest.mark.parametrize("change", [changes.DeleteNode("/none"), changes.CloseSession(5)])
    def test_change_of_a_missing_node_is_unreadable(self, change: changes.Change) -> None:
        with pytest.raises(UnreadableStateError, match="0x7 changes .* does not exist"):
            Engine().replay(changes.pack_transaction(7, NOW_MS, [change]))

    @pytest.mark.parametrize("drop", [0, 1, -1])
    def test_incomplete_snapshot_is_unreadable(self, client: Client, drop: int) -> None:
        (chunk,) = client.bench.engine.snapshot()
        records = [pack(record) for record in changes.unpack(chunk)]
        del records[drop]
        with pytest.raises(UnreadableStateError):
            Engine().restore(records)

    def test_empty_snapshot_is_unreadable(self) -> None:
        with pytest.raises(UnreadableStateError):
            Engine().restore([])

    def test_change_in_a_snapshot_is_unreadable(self, client: Client) -> None:
        with pytest.raises(UnreadableStateError):
            Engine().restore([*client.bench.engine.snapshot(), pack(changes.DeleteNode("/a"))])


def test_journal_of_version_0_1_is_readable() -> None:
    """Journals of earlier versions must stay readable: this payload was written by version 0.1."""
    client = Bench().client()
    client.create("/a", b"x", acl=(r.Acl(31, "ip", "127.0.0.1"),))
    assert client.bench.payloads()[-1].hex() == FORM
    engine = Engine(EngineConfig())
    engine.replay(bytes.fromhex(FORM))
    assert engine.tree.nodes["/a"].data == b"x"


def test_fast_formats_are_read_like_the_general_one() -> None:
    written = [
        change
        for data in (b"", b"x" * 300, None)
        for acl in (r.OPEN_ACL, (r.Acl(1, "ip", "127.0.0.1"),))
        for change in (
            changes.CreateNode("/\u00e9", data, acl, -(1 << 55), True),
            changes.SetNodeData("/\u00e9", data),
            changes.DeleteNode("/\u00e9"),
        )
    ]
    read = changes.unpack(b"".join(map(pack, written)))
    assert [(type(change), change) for change in read] == [(type(change), change) for change in written]


FORM = (
    "0000000000000002" "0000018bcfe56800" "01" "000000022f61" "0000000178" "00000001" "0000001f" "000000026970"
    "00000009" "3132372e302e302e31" "0000000000000000" "00"
)  # fmt: skip
