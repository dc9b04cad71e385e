"""What a read is answered with, and which watch it arms.

Rules for this file: it changes nothing but the watches. A read that is refused arms none, but for exists, which
waits for a node to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsync.server.acl import ADMIN, READ, allows, masked, permit
from distsync.server.effects import Notify
from distsync.server.link import Link
from distsync.server.refusal import Refusal
from distsync.server.tree import Node, Tree
from distsync.server.watches import Watches, WatchTable, notice
from distsync.wire import records as r
from distsync.wire.codes import ErrorCode, EventType


class Reads:
    """``answer(link, request)`` by type of request."""

    def __init__(self, tree: Tree, watches: Watches, seed: int) -> None:
        self._tree = tree
        self._watches = watches
        self._turn = seed
        self.answers: dict[type, Callable[[Link, Any], r.Body]] = {
            r.ExistsRequest: self._exists,
            r.GetDataRequest: self._get_data,
            r.GetChildrenRequest: self._get_children,
            r.GetChildren2Request: self._get_children2,
            r.GetAclRequest: self._get_acl,
            r.SyncRequest: self._sync,
        }

    def rearm(self, link: Link, request: r.SetWatchesRequest, zxid: int) -> list[Notify]:
        """The watches of a client that has reconnected: what changed after the zxid it saw is told at once."""
        peer, relative = link.peer, request.relative_zxid
        missed = [(path, self._missed_data(path, relative)) for path in request.data]
        missed += [(path, EventType.NODE_CREATED if self._tree.node(path) else None) for path in request.exist]
        events = self._tell_or_arm(peer, zxid, missed, self._watches.data)
        missed = [(path, self._missed_children(path, relative)) for path in request.child]
        return events + self._tell_or_arm(peer, zxid, missed, self._watches.children)

    def _exists(self, link: Link, request: r.ExistsRequest) -> r.StatReply:
        path, watch = request
        if "\0" in path:
            raise Refusal(ErrorCode.BAD_ARGUMENTS)
        if watch:
            self._watches.data.arm(path or "/", link.peer)
        return r.StatReply(self._require(path).stat)

    def _get_data(self, link: Link, request: r.GetDataRequest) -> r.GetDataReply:
        path, watch = request
        node = self._readable(link, path)
        if watch:
            self._watches.data.arm(path or "/", link.peer)
        return r.GetDataReply(node.data, node.stat)

    def _get_children(self, link: Link, request: r.GetChildrenRequest) -> r.GetChildrenReply:
        return r.GetChildrenReply(self._list(link, request.path, request.watch)[0])

    def _get_children2(self, link: Link, request: r.GetChildren2Request) -> r.GetChildren2Reply:
        names, node = self._list(link, request.path, request.watch)
        return r.GetChildren2Reply(names, node.stat)

    def _get_acl(self, link: Link, request: r.GetAclRequest) -> r.GetAclReply:
        node = self._require(request.path)
        permit(node.acl, READ | ADMIN, link.identities)
        acl = node.acl if allows(node.acl, ADMIN, link.identities) else masked(node.acl)
        return r.GetAclReply(acl, node.stat)

    def _sync(self, link: Link, request: r.SyncRequest) -> r.SyncReply:
        """There is one server: it is always up to date."""
        return r.SyncReply(request.path)

    def _list(self, link: Link, path: str, watch: bool) -> tuple[tuple[str, ...], Node]:
        node = self._readable(link, path)
        if watch:
            self._watches.children.arm(path or "/", link.peer)
        return self._in_no_order(node.children), node

    def _in_no_order(self, children: dict[str, None]) -> tuple[str, ...]:
        """The order of children means nothing; each listing is turned another way, so that nobody relies on one."""
        names = tuple(children)
        if len(names) < 2:
            return names
        self._turn = (self._turn * 1103515245 + 12345) & 0x7FFFFFFF
        cut = (self._turn >> 8) % len(names)
        names = names[cut:] + names[:cut]
        return names[::-1] if self._turn & 0x10000 else names

    def _readable(self, link: Link, path: str) -> Node:
        node = self._require(path)
        permit(node.acl, READ, link.identities)
        return node

    def _require(self, path: str) -> Node:
        node = self._tree.node(path)
        if node is None:
            raise Refusal(ErrorCode.NO_NODE)
        return node

    def _missed_data(self, path: str, zxid: int) -> EventType | None:
        node = self._tree.node(path)
        if node is None:
            return EventType.NODE_DELETED
        return EventType.NODE_DATA_CHANGED if node.mzxid > zxid else None

    def _missed_children(self, path: str, zxid: int) -> EventType | None:
        node = self._tree.node(path)
        if node is None:
            return EventType.NODE_DELETED
        return EventType.NODE_CHILDREN_CHANGED if node.pzxid > zxid else None

    def _tell_or_arm(
        self, peer: int, zxid: int, missed: list[tuple[str, EventType | None]], watches: WatchTable
    ) -> list[Notify]:
        events = []
        for path, event in missed:
            if event is None:
                watches.arm(path, peer)
            else:
                events.append(notice(peer, zxid, event, path))
        return events
