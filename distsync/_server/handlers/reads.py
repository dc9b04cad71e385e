"""Handlers of reads, which may arm a watch.

A refused read arms no watch, except exists on a missing node, which watches for its creation. As in
ZooKeeper, "" reads the root, but a watch on it never fires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsync._server.acl import ADMIN, READ, allows, permit, public_form, redact
from distsync._server.data_tree import Tree, TreeNode
from distsync._server.handlers import RequestRefused
from distsync._server.peer import Peer
from distsync._server.watch_manager import Watches
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode

_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__

MULTI_READ_BYTES = 16 << 20
"""Size of data and names after which further reads of a multiRead are refused. Without a limit, each few bytes
of the request could ask for a megabyte."""

_TOO_LARGE = r.ErrorReply(ErrorCode.MARSHALLING_ERROR)

_BLANKS = "".join(map(chr, range(33)))
"""Characters that Java's String.trim removes."""


class Reads:
    """Read handlers. ``handlers`` maps types of requests to ``handler(peer, request)``."""

    def __init__(self, tree: Tree, watches: Watches, seed: int) -> None:
        self._tree = tree
        self._watches = watches
        self._shuffle_state = seed
        self.handlers: dict[type, Callable[[Peer, Any], r.Body]] = {
            r.ExistsRequest: self._exists,
            r.GetDataRequest: self._get_data,
            r.GetChildrenRequest: self._get_children,
            r.GetChildren2Request: self._get_children2,
            r.GetAclRequest: self._get_acl,
            r.SyncRequest: self._sync,
            r.MultiReadRequest: self._multi_read,
            r.GetEphemeralsRequest: self._get_ephemerals,
            r.GetAllChildrenNumberRequest: self._get_all_children_number,
            r.WhoAmIRequest: self._who_am_i,
        }

    def _exists(self, peer: Peer, request: r.ExistsRequest) -> r.StatReply:
        path, watch = request
        if "\0" in path:
            raise RequestRefused(ErrorCode.BAD_ARGUMENTS)
        if watch:
            self._watches.data.arm(path, peer.id)
        reply: r.StatReply = _new(r.StatReply, (self._require(path).stat,))
        return reply

    def _get_data(self, peer: Peer, request: r.GetDataRequest) -> r.GetDataReply:
        path, watch = request
        node = self._readable(peer, path)
        if watch:
            self._watches.data.arm(path, peer.id)
        reply: r.GetDataReply = _new(r.GetDataReply, (node.data, node.stat))
        return reply

    def _get_children(self, peer: Peer, request: r.GetChildrenRequest) -> r.GetChildrenReply:
        return r.GetChildrenReply(self._list(peer, request.path, request.watch)[0])

    def _get_children2(self, peer: Peer, request: r.GetChildren2Request) -> r.GetChildren2Reply:
        names, node = self._list(peer, request.path, request.watch)
        return r.GetChildren2Reply(names, node.stat)

    def _get_acl(self, peer: Peer, request: r.GetAclRequest) -> r.GetAclReply:
        node = self._require(request.path)
        permit(node.acl, READ | ADMIN, peer.identities)
        acl = node.acl if allows(node.acl, ADMIN, peer.identities) else redact(node.acl)
        return r.GetAclReply(acl, node.stat)

    def _sync(self, peer: Peer, request: r.SyncRequest) -> r.SyncReply:
        """Reply at once: a single server is always up to date."""
        return r.SyncReply(request.path)

    def _multi_read(self, peer: Peer, request: r.MultiReadRequest) -> r.MultiReply:
        """Execute each read on its own, up to MULTI_READ_BYTES. No watch is armed."""
        results: list[r.Result] = []
        room = MULTI_READ_BYTES
        for operation in request.operations:
            result = self._read_one(peer, operation) if room > 0 else _TOO_LARGE
            room -= _size(result)
            results.append(result)
        return r.MultiReply(tuple(results))

    def _read_one(self, peer: Peer, request: r.GetChildrenRequest | r.GetDataRequest) -> r.Result:
        try:
            result: r.Result = self.handlers[type(request)](peer, request._replace(watch=False))  # type: ignore[assignment]
        except RequestRefused as refusal:
            return r.ErrorReply(refusal.code)
        return result

    def _get_ephemerals(self, peer: Peer, request: r.GetEphemeralsRequest) -> r.GetEphemeralsReply:
        prefix = request.prefix_path
        mine = self._tree.owned(peer.session.id)
        if prefix.strip(_BLANKS) in ("", "/"):
            return r.GetEphemeralsReply(mine)
        return r.GetEphemeralsReply(tuple(path for path in mine if path.startswith(prefix)))

    def _get_all_children_number(
        self, peer: Peer, request: r.GetAllChildrenNumberRequest
    ) -> r.GetAllChildrenNumberReply:
        """Count the descendants. As in ZooKeeper, "" counts the root too."""
        path = request.path
        self._readable(peer, path)
        total = len(self._tree.nodes) - 1 if path in ("", "/") else sum(1 for _ in self._tree.descendants(path))
        return r.GetAllChildrenNumberReply(total + (path == ""))

    def _who_am_i(self, peer: Peer, request: r.WhoAmIRequest) -> r.WhoAmIReply:
        return r.WhoAmIReply(tuple(r.ClientInfo(*public_form(identity)) for identity in peer.identities))

    def _list(self, peer: Peer, path: str, watch: bool) -> tuple[tuple[str, ...], TreeNode]:
        node = self._readable(peer, path)
        if watch:
            self._watches.children.arm(path, peer.id)
        return self._shuffled(node.children), node

    def _shuffled(self, children: dict[str, None]) -> tuple[str, ...]:
        """Return the names in another order each time, because ZooKeeper guarantees none."""
        names = tuple(children)
        if len(names) < 2:
            return names
        self._shuffle_state = (self._shuffle_state * 1103515245 + 12345) & 0x7FFFFFFF
        cut = (self._shuffle_state >> 8) % len(names)
        names = names[cut:] + names[:cut]
        return names[::-1] if self._shuffle_state & 0x10000 else names

    def _readable(self, peer: Peer, path: str) -> TreeNode:
        node = self._require(path)
        permit(node.acl, READ, peer.identities)
        return node

    def _require(self, path: str) -> TreeNode:
        node = self._tree.node(path)
        if node is None:
            raise RequestRefused(ErrorCode.NO_NODE)
        return node


def _size(result: r.Result) -> int:
    """Return the size of the data in bytes, or of the names in characters."""
    if isinstance(result, r.GetDataReply):
        return len(result.data or b"")
    return sum(map(len, result.children)) if isinstance(result, r.GetChildrenReply) else 0
