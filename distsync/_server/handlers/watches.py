"""Handlers of the requests that only concern watches.

Paths are not validated: a watch on an invalid path never fires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsync._server.data_tree import Tree
from distsync._server.effects import Notify
from distsync._server.handlers import RequestRefused
from distsync._server.peer import Peer
from distsync._server.watch_manager import WatcherMode, Watches, WatchIndex, notification
from distsync._wire import records as r
from distsync._wire.codes import ErrorCode, EventType, WatcherType, WatchMode

_MODES: dict[int, WatcherMode] = {
    WatchMode.PERSISTENT: WatcherMode.ALWAYS,
    WatchMode.PERSISTENT_RECURSIVE: WatcherMode.ALWAYS_BELOW,
}


class WatchHandlers:
    """Watch handlers. ``handlers`` maps types of requests to ``handler(peer, request)``."""

    def __init__(self, tree: Tree, watches: Watches) -> None:
        self._tree = tree
        self._watches = watches
        self._indexes: dict[int, tuple[WatchIndex, ...]] = {
            WatcherType.CHILDREN: (watches.children,),
            WatcherType.DATA: (watches.data,),
            WatcherType.ANY: (watches.children, watches.data),
        }
        self.handlers: dict[type, Callable[[Peer, Any], r.Body | None]] = {
            r.AddWatchRequest: self._add,
            r.CheckWatchesRequest: self._check,
            r.RemoveWatchesRequest: self._remove,
        }

    def rearm(self, peer: Peer, request: r.SetWatchesRequest | r.SetWatches2Request, zxid: int) -> list[Notify]:
        """Re-arm the watches of a client that has reconnected.

        A change after the last zxid that it saw fires the watch at once. Persistent watches are only
        armed.
        """
        peer_id, relative = peer.id, request.relative_zxid
        missed = [(path, self._missed_data(path, relative)) for path in request.data]
        missed += [(path, EventType.NODE_CREATED if self._tree.node(path) else None) for path in request.exist]
        events = self._notify_or_arm(peer_id, zxid, missed, self._watches.data)
        missed = [(path, self._missed_children(path, relative)) for path in request.child]
        events += self._notify_or_arm(peer_id, zxid, missed, self._watches.children)
        if isinstance(request, r.SetWatches2Request):
            self._arm_all(peer_id, request.persistent, WatcherMode.ALWAYS)
            self._arm_all(peer_id, request.recursive, WatcherMode.ALWAYS_BELOW)
        return events

    def _add(self, peer: Peer, request: r.AddWatchRequest) -> r.ErrorReply:
        """Arm a persistent watch. The reply has a body (four zero bytes) because Java's client requires it."""
        mode = _MODES.get(request.mode)
        if mode is None:
            raise RequestRefused(ErrorCode.MARSHALLING_ERROR)
        self._arm_all(peer.id, (request.path,), mode)
        return r.ErrorReply(0)

    def _check(self, peer: Peer, request: r.CheckWatchesRequest) -> None:
        """Check whether a path is watched.

        As in ZooKeeper 3.8, watches of other clients count as well, and a path without a leading
        "/" is a MARSHALLING_ERROR.
        """
        indexes = self._indexes_of(request.type)
        if request.path and not request.path.startswith("/"):
            raise RequestRefused(ErrorCode.MARSHALLING_ERROR)
        if not any(request.path in index.by_path for index in indexes):
            raise RequestRefused(ErrorCode.NO_WATCHER)

    def _remove(self, peer: Peer, request: r.RemoveWatchesRequest) -> None:
        removed = [index.disarm(request.path, peer.id) for index in self._indexes_of(request.type)]
        if not any(removed):
            raise RequestRefused(ErrorCode.NO_WATCHER)

    def _indexes_of(self, type: int) -> tuple[WatchIndex, ...]:
        if type not in self._indexes:
            raise RequestRefused(ErrorCode.MARSHALLING_ERROR)
        return self._indexes[type]

    def _arm_all(self, peer_id: int, paths: tuple[str, ...], mode: WatcherMode) -> None:
        for path in paths:
            self._watches.children.arm(path, peer_id, mode)
            self._watches.data.arm(path, peer_id, mode)

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

    def _notify_or_arm(
        self, peer_id: int, zxid: int, missed: list[tuple[str, EventType | None]], watches: WatchIndex
    ) -> list[Notify]:
        events = []
        for path, event in missed:
            if event is None:
                watches.arm(path, peer_id)
            else:
                events.append(notification(peer_id, zxid, event, path))
        return events
