"""Lasting watches fire, combine, and are removed and dropped as in ZooKeeper 3.8."""

from __future__ import annotations

import pytest
from helpers.engine_harness import Bench, Client
from hypothesis import given
from hypothesis import strategies as st

from distsync._server.watch_manager import WatcherMode, WatchIndex
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType, WatcherType, WatchMode

CREATED, DELETED, DATA, CHILDREN = EventType


@pytest.fixture
def client() -> Client:
    return Bench().client()


def test_recursive_watch_on_the_root_fires_for_every_change(client: Client) -> None:
    client.body(r.AddWatchRequest("/", WatchMode.PERSISTENT_RECURSIVE))
    client.create("/a")
    client.create("/a/b")
    client.body(r.SetDataRequest("/", b""))
    assert client.events() == [(CREATED, "/a"), (CREATED, "/a/b"), (DATA, "/")]


def test_several_watches_for_one_change_are_one_event(client: Client) -> None:
    client.create("/a")
    client.body(r.AddWatchRequest("/", WatchMode.PERSISTENT_RECURSIVE))
    client.body(r.AddWatchRequest("/a", WatchMode.PERSISTENT))
    client.body(r.SetDataRequest("/a", b""))
    client.body(r.DeleteRequest("/a"))
    assert client.events() == [(DATA, "/a"), (DELETED, "/a")]


def test_watches_of_one_client_leave_those_of_others(client: Client) -> None:
    other = client.bench.client()
    client.body(r.AddWatchRequest("/", WatchMode.PERSISTENT))
    other.body(r.GetChildrenRequest("/", True))
    client.create("/a")
    client.create("/b")
    assert client.events() == [(CHILDREN, "/"), (CHILDREN, "/")]
    assert other.events() == [(CHILDREN, "/")]


def test_lasting_watches_fire_for_ephemerals_deleted_with_their_session(client: Client) -> None:
    other = client.bench.client()
    other.create("/e", flags=CreateFlag.EPHEMERAL)
    client.body(r.AddWatchRequest("/", WatchMode.PERSISTENT_RECURSIVE))
    other.send(r.CloseSessionRequest())
    assert client.events() == [(DELETED, "/e")]


def test_a_removed_watch_is_not_counted(client: Client) -> None:
    client.body(r.AddWatchRequest("/a", WatchMode.PERSISTENT_RECURSIVE))
    assert client.bench.engine.statistics(0).watches == 2
    client.body(r.RemoveWatchesRequest("/a", WatcherType.CHILDREN))
    assert client.bench.engine.statistics(0).watches == 1
    client.body(r.RemoveWatchesRequest("/a", WatcherType.ANY))
    assert client.bench.engine.statistics(0).watches == 0
    assert client.err(r.RemoveWatchesRequest("/a")) == ErrorCode.NO_WATCHER


def test_set_watches2_arms_again_after_a_reconnect(client: Client) -> None:
    client.body(r.AddWatchRequest("/a", WatchMode.PERSISTENT))
    again = client.again()
    again.send(r.SetWatches2Request(client.bench.engine.zxid, persistent=("/a",), recursive=("/b",)))
    for path in ("/a", "/a/x", "/b", "/b/x"):
        again.create(path)
    assert again.events() == [(CREATED, "/a"), (CHILDREN, "/a"), (CREATED, "/b"), (CREATED, "/b/x")]


PATHS = ["/", "/a", "/a/b", "/a/b/c", "/d"]
paths, peers = st.sampled_from(PATHS), st.integers(1, 3)
moves = st.one_of(
    st.tuples(st.just("arm"), paths, peers, st.sampled_from(WatcherMode)),
    st.tuples(st.just("fire"), paths, st.booleans()),
    st.tuples(st.just("disarm"), paths, peers),
    st.tuples(st.just("forget"), peers),
)


class Plain:
    """A simple model of the watch table: (path, peer) -> mode."""

    def __init__(self) -> None:
        self.modes: dict[tuple[str, int], WatcherMode] = {}

    def arm(self, path: str, peer: int, mode: WatcherMode) -> None:
        self.modes[path, peer] = mode

    def fire(self, path: str, of_children: bool) -> set[int]:
        below = WatcherMode.ALWAYS_BELOW
        here = {peer for (at, peer), mode in self.modes.items() if at == path and mode is not below}
        above = {
            peer
            for (at, peer), mode in self.modes.items()
            if mode is below and not of_children and (at in ("/", path) or path.startswith(at + "/"))
        }
        for peer in here:
            if self.modes[path, peer] is WatcherMode.ONCE:
                del self.modes[path, peer]
        return here | above

    def disarm(self, path: str, peer: int) -> bool:
        return self.modes.pop((path, peer), None) is not None

    def forget(self, peer: int) -> None:
        self.modes = {key: mode for key, mode in self.modes.items() if key[1] != peer}


@given(st.lists(moves, max_size=40))
def test_watch_table_equals_a_simple_model(moves: list[tuple[str, object]]) -> None:
    table, plain = WatchIndex(), Plain()
    for name, *arguments in moves:
        found, expected = (getattr(one, name)(*arguments) for one in (table, plain))
        assert (set(found) if name == "fire" else found) == expected
        assert table.count() == len(plain.modes)
        assert {(path, peer): mode for path, peers in table.by_path.items() for peer, mode in peers.items()} == (
            plain.modes
        )
        assert {(path, peer) for peer, watched in table.by_peer.items() for path in watched} == set(plain.modes)
        assert table.persistent_count == sum(map(bool, plain.modes.values()))
