"""Watches by path and connection.

A watch belongs to a connection, not to a session. Data watches come from getData and exists, child
watches from getChildren; they fire once. addWatch arms a persistent watch of each kind. As in
ZooKeeper 3.8, a connection has at most one watch of each kind per path, with the mode that was
requested last.
"""

from __future__ import annotations

from enum import IntEnum

from distsync._server.effects import Notify
from distsync._server.journal.change_records import Change
from distsync._server.path_rules import parent_of
from distsync._wire.codes import SYNC_CONNECTED, EventType
from distsync._wire.records import WatcherEvent

_NOBODY: dict[int, None] = {}


class WatcherMode(IntEnum):
    """When a watch fires."""

    ONCE = 0
    ALWAYS = 1
    ALWAYS_BELOW = 2
    """For the path and its descendants, except for NODE_CHILDREN_CHANGED."""


class WatchIndex:
    """The watches of one kind."""

    __slots__ = ("by_path", "by_peer", "persistent_count")

    def __init__(self) -> None:
        self.by_path: dict[str, dict[int, WatcherMode]] = {}
        self.by_peer: dict[int, set[str]] = {}
        self.persistent_count = 0
        """Number of watches that are not ONCE; 0 on most servers."""

    def arm(self, path: str, peer_id: int, mode: WatcherMode = WatcherMode.ONCE) -> None:
        watchers = self.by_path.setdefault(path, {})
        self.persistent_count += bool(mode) - bool(watchers.get(peer_id))
        watchers[peer_id] = mode
        self.by_peer.setdefault(peer_id, set()).add(path)

    def fire(self, path: str, of_children: bool = False) -> dict[int, None]:
        """Return the ids of the peers to notify, and remove those of their watches that fire once."""
        if not self.persistent_count:
            return self._pop(path)
        modes = self.by_path.get(path, {})
        watchers = {
            peer_id: None for peer_id, mode in modes.items() if not (of_children and mode is WatcherMode.ALWAYS_BELOW)
        }
        for peer_id in [peer_id for peer_id in watchers if modes[peer_id] is WatcherMode.ONCE]:
            self.disarm(path, peer_id)
        if not of_children:
            watchers |= self._recursive_watchers(path)
        return watchers

    def disarm(self, path: str, peer_id: int) -> bool:
        """Remove a watch. Return whether it existed."""
        paths = self.by_peer.get(peer_id)
        if paths is None or path not in paths:
            return False
        paths.discard(path)
        if not paths:
            del self.by_peer[peer_id]
        self._remove(path, peer_id)
        return True

    def forget(self, peer_id: int) -> None:
        for path in self.by_peer.pop(peer_id, ()):
            self._remove(path, peer_id)

    def count(self) -> int:
        return sum(map(len, self.by_peer.values()))

    def _pop(self, path: str) -> dict[int, None]:
        watchers = self.by_path.pop(path, None)
        if watchers is None:
            return _NOBODY
        for peer_id in watchers:
            paths = self.by_peer[peer_id]
            paths.discard(path)
            if not paths:
                del self.by_peer[peer_id]
        return dict.fromkeys(watchers)

    def _recursive_watchers(self, path: str) -> dict[int, None]:
        """Return the ids of the peers with a recursive watch on an ancestor of the path."""
        watchers: dict[int, None] = {}
        while path != "/":
            path = parent_of(path)
            for peer_id, mode in self.by_path.get(path, {}).items():
                if mode is WatcherMode.ALWAYS_BELOW:
                    watchers[peer_id] = None
        return watchers

    def _remove(self, path: str, peer_id: int) -> None:
        watchers = self.by_path[path]
        self.persistent_count -= bool(watchers.pop(peer_id))
        if not watchers:
            del self.by_path[path]


class Watches:
    """The watches of both kinds, and the notifications of each change, in ZooKeeper's order."""

    __slots__ = ("data", "children")

    def __init__(self) -> None:
        self.data = WatchIndex()
        self.children = WatchIndex()

    @property
    def any(self) -> bool:
        return bool(self.data.by_path or self.children.by_path)

    def may_fire(self, change: Change) -> bool:
        """Whether any watch may fire. Shortcut for the usual case that none does."""
        data, children, path = self.data.by_path, self.children.by_path, change[0]
        if not (data or children):
            return False
        if not isinstance(path, str) or self.data.persistent_count or self.children.persistent_count:
            return True
        return path in data or path in children or parent_of(path) in children

    def created(self, path: str, zxid: int) -> list[Notify]:
        return _notifications(self.data.fire(path), zxid, EventType.NODE_CREATED, path) + self._of_parent(path, zxid)

    def deleted(self, path: str, zxid: int) -> list[Notify]:
        """Notify the watchers of a deleted node, each once, also if it watches both data and children."""
        watchers = self.data.fire(path) | self.children.fire(path)
        return _notifications(watchers, zxid, EventType.NODE_DELETED, path) + self._of_parent(path, zxid)

    def changed(self, path: str, zxid: int) -> list[Notify]:
        return _notifications(self.data.fire(path), zxid, EventType.NODE_DATA_CHANGED, path)

    def forget(self, peer_id: int) -> None:
        self.data.forget(peer_id)
        self.children.forget(peer_id)

    def _of_parent(self, path: str, zxid: int) -> list[Notify]:
        parent = parent_of(path)
        return _notifications(self.children.fire(parent, True), zxid, EventType.NODE_CHILDREN_CHANGED, parent)


def notification(peer_id: int, zxid: int, type: EventType, path: str) -> Notify:
    return Notify(peer_id, zxid, WatcherEvent(int(type), SYNC_CONNECTED, path))


def _notifications(watchers: dict[int, None], zxid: int, type: EventType, path: str) -> list[Notify]:
    return [notification(peer_id, zxid, type, path) for peer_id in watchers] if watchers else []
