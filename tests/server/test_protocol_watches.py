"""Watches fire for the same changes, in the same order, on both servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.raw_client import Speaker

from distsync._wire import records as r
from distsync._wire.codes import ErrorCode, EventType, WatcherType, WatchMode

CREATED, DELETED, DATA, CHILDREN = EventType


class TestWatches:
    def test_watches_fire_once_before_the_reply(self, me: Speaker, root: str) -> None:
        me.err(r.ExistsRequest(f"{root}/a", True))
        me.body(r.GetChildrenRequest(root, True))
        assert me.told(r.CreateRequest(f"{root}/a")) == [(CREATED, "/a"), (CHILDREN, "")]
        me.body(r.GetDataRequest(f"{root}/a", True))
        assert me.told(r.SetDataRequest(f"{root}/a", b"")) == [(DATA, "/a")]
        assert me.told(r.SetDataRequest(f"{root}/a", b"")) == []
        me.body(r.GetDataRequest(f"{root}/a", True))
        me.body(r.GetChildren2Request(f"{root}/a", True))
        assert me.told(r.DeleteRequest(f"{root}/a")) == [(DELETED, "/a")]

    def test_other_spelling_of_the_root_never_fires(self, me: Speaker) -> None:
        me.body(r.GetDataRequest("", True))
        assert me.told(r.SetDataRequest("/", b"")) == []
        assert me.err(r.RemoveWatchesRequest("", WatcherType.DATA)) == 0

    def test_persistent_watch(self, me: Speaker, root: str) -> None:
        assert me.body(r.AddWatchRequest(f"{root}/a", WatchMode.PERSISTENT)) == r.ErrorReply(0)
        for _ in range(2):
            assert me.told(r.CreateRequest(f"{root}/a")) == [(CREATED, "/a")]
            assert me.told(r.SetDataRequest(f"{root}/a", b"")) == [(DATA, "/a")]
            assert me.told(r.CreateRequest(f"{root}/a/b")) == [(CHILDREN, "/a")]
            assert me.told(r.SetDataRequest(f"{root}/a/b", b"")) == []
            assert me.told(r.DeleteRequest(f"{root}/a/b")) == [(CHILDREN, "/a")]
            assert me.told(r.DeleteRequest(f"{root}/a")) == [(DELETED, "/a")]

    def test_recursive_watch(self, me: Speaker, root: str) -> None:
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT_RECURSIVE))
        for _ in range(2):
            assert me.told(r.CreateRequest(f"{root}/a")) == [(CREATED, "/a")]
            assert me.told(r.CreateRequest(f"{root}/a/b")) == [(CREATED, "/a/b")]
            assert me.told(r.SetDataRequest(f"{root}/a/b", b"")) == [(DATA, "/a/b")]
            assert me.told(r.DeleteRequest(f"{root}/a/b")) == [(DELETED, "/a/b")]
            assert me.told(r.DeleteRequest(f"{root}/a")) == [(DELETED, "/a")]

    def test_recursive_watch_and_one_of_children_below(self, me: Speaker, root: str) -> None:
        me.body(r.CreateRequest(f"{root}/a"))
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT_RECURSIVE))
        me.body(r.GetChildrenRequest(f"{root}/a", True))
        assert me.told(r.CreateRequest(f"{root}/a/b")) == [(CREATED, "/a/b"), (CHILDREN, "/a")]
        assert me.told(r.DeleteRequest(f"{root}/a/b")) == [(DELETED, "/a/b")]

    def test_only_the_last_watch_of_a_client_on_a_path_stays(self, me: Speaker, root: str, newer: bool) -> None:
        """A read with a watch turns a persistent watch into one that fires once. From 3.9 on there may
        be one of each kind.
        """
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT))
        me.body(r.GetDataRequest(root, True))
        assert me.told(r.SetDataRequest(root, b"")) == [(DATA, "")]
        assert me.told(r.SetDataRequest(root, b"")) == ([(DATA, "")] if newer else [])
        assert me.told(r.CreateRequest(f"{root}/a")) == [(CHILDREN, "")]
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT_RECURSIVE))
        assert me.told(r.DeleteRequest(f"{root}/a")) == [(DELETED, "/a"), *([(CHILDREN, "")] if newer else [])]

    @pytest.mark.parametrize("mode", [-1, 2])
    def test_add_watch_refused(self, me: Speaker, root: str, mode: int) -> None:
        assert me.err(r.AddWatchRequest(root, mode)) == ErrorCode.MARSHALLING_ERROR

    def test_remove_watches(self, me: Speaker, root: str, connect: Callable[..., Speaker], newer: bool) -> None:
        """A lasting watch is one of data and of children; from 3.9 on it has a kind of its own, 4 or
        5.
        """

        def remove(type: int) -> int:
            return me.err(r.RemoveWatchesRequest(root, type))

        me.body(r.GetDataRequest(root, True))
        assert [remove(type) for type in (WatcherType.CHILDREN, 0, 6)] == [ErrorCode.NO_WATCHER, -5, -5]
        assert [remove(type) for type in (4, 5)] == 2 * [ErrorCode.NO_WATCHER if newer else -5]
        assert connect().err(r.RemoveWatchesRequest(root)) == ErrorCode.NO_WATCHER
        assert [remove(WatcherType.DATA), remove(WatcherType.DATA)] == [0, ErrorCode.NO_WATCHER]
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT_RECURSIVE))
        assert remove(WatcherType.DATA) == (ErrorCode.NO_WATCHER if newer else 0)
        me.body(r.CreateRequest(f"{root}/a"))
        assert me.told(r.DeleteRequest(f"{root}/a")) == [(DELETED, "/a")]
        assert [remove(WatcherType.ANY), remove(WatcherType.ANY)] == [0, ErrorCode.NO_WATCHER]
        assert me.told(r.CreateRequest(f"{root}/a")) == []

    def test_check_watches(self, me: Speaker, root: str, connect: Callable[..., Speaker], newer: bool) -> None:
        """A watch of any client counts; from 3.9 on only the client's own, and lasting ones have kinds
        of their own.
        """
        other = connect()
        none = ErrorCode.NO_WATCHER

        def check(type: int) -> int:
            return (me if newer else other).err(r.CheckWatchesRequest(root, type))

        assert [check(type) for type in (1, 2, 3, 6)] == [none, none, none, ErrorCode.MARSHALLING_ERROR]
        assert [check(type) for type in (4, 5)] == 2 * [none if newer else ErrorCode.MARSHALLING_ERROR]
        me.body(r.GetChildrenRequest(root, True))
        assert [check(type) for type in (1, 2, 3)] == [0, none, 0]
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT_RECURSIVE))
        assert [check(type) for type in (1, 2, 3)] == [0, none if newer else 0, 0]
        assert other.err(r.CheckWatchesRequest(root)) == (none if newer else 0)
        assert other.err(r.CheckWatchesRequest(f"{root}/a")) == none

    @pytest.mark.parametrize("kind", [r.SetWatchesRequest, r.SetWatches2Request])
    def test_set_watches(self, me: Speaker, root: str, kind: type[r.SetWatchesRequest]) -> None:
        old, gone = f"{root}/old", f"{root}/gone"
        me.body(r.CreateRequest(old))
        seen = me.tell(r.PingRequest())[0]
        me.body(r.SetDataRequest(old, b"x"))
        me.body(r.CreateRequest(f"{old}/a"))
        missed = [(DELETED, "/gone"), (DATA, "/old"), (CREATED, "/old"), (DELETED, "/gone"), (CHILDREN, "/old")]
        assert me.told(kind(seen, (gone, old, root), (gone, old), (gone, old, root))) == missed
        assert me.told(r.CreateRequest(gone)) == [(CREATED, "/gone"), (CHILDREN, "")]
        assert me.told(r.SetDataRequest(root, b"")) == [(DATA, "")]

    def test_set_watches2_arms_those_that_stay(self, me: Speaker, root: str) -> None:
        me.body(r.CreateRequest(f"{root}/a"))
        assert me.told(r.SetWatches2Request(0, (), (), (), (f"{root}/a",), (root,))) == []
        for _ in range(2):
            assert me.told(r.CreateRequest(f"{root}/a/b")) == [(CREATED, "/a/b"), (CHILDREN, "/a")]
            assert me.told(r.DeleteRequest(f"{root}/a/b")) == [(DELETED, "/a/b"), (CHILDREN, "/a")]

    def test_watches_end_with_the_connection(self, me: Speaker, root: str, connect: Callable[..., Speaker]) -> None:
        me.body(r.AddWatchRequest(root, WatchMode.PERSISTENT))
        again = connect(**me.hello_again())
        assert again.told(r.SetDataRequest(root, b"")) == []
        assert again.err(r.RemoveWatchesRequest(root)) == ErrorCode.NO_WATCHER
