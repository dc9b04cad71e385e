"""Who waits for which change: one-shot watches, per path and connection.

Rules for this file: it knows paths and peers, no znodes. A watch belongs to a connection, not to a session; arming
it twice is arming it once; it is gone when it has fired. Data watches are those of getData and exists, child watches
those of getChildren.
"""

from __future__ import annotations

from distsync.server.effects import Notify
from distsync.server.paths import parent_of
from distsync.wire.codes import SYNC_CONNECTED, EventType
from distsync.wire.records import WatcherEvent

_NOBODY: dict[int, None] = {}


class WatchTable:
    """The watches of one kind."""

    __slots__ = ("by_path", "by_peer")

    def __init__(self) -> None:
        self.by_path: dict[str, dict[int, None]] = {}
        self.by_peer: dict[int, set[str]] = {}

    def arm(self, path: str, peer: int) -> None:
        self.by_path.setdefault(path, {})[peer] = None
        self.by_peer.setdefault(peer, set()).add(path)

    def take(self, path: str) -> dict[int, None]:
        """The watchers of the path, in the order in which they came; they watch no more."""
        peers = self.by_path.pop(path, _NOBODY)
        for peer in peers:
            paths = self.by_peer[peer]
            paths.discard(path)
            if not paths:
                del self.by_peer[peer]
        return peers

    def forget(self, peer: int) -> None:
        for path in self.by_peer.pop(peer, ()):
            peers = self.by_path[path]
            del peers[peer]
            if not peers:
                del self.by_path[path]

    def count(self) -> int:
        return sum(map(len, self.by_peer.values()))


class Watches:
    """Both kinds, and which change fires what, in the order of the wire."""

    __slots__ = ("data", "children")

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def created(self, path: str, zxid: int) -> list[Notify]:
        watchers = self.data.take(path)
        return _notices(watchers, zxid, EventType.NODE_CREATED, path) + self._of_parent(path, zxid)

    def deleted(self, path: str, zxid: int) -> list[Notify]:
        """Who watches both the data and the children hears of it once."""
        watchers = self.data.take(path) | self.children.take(path)
        return _notices(watchers, zxid, EventType.NODE_DELETED, path) + self._of_parent(path, zxid)

    def changed(self, path: str, zxid: int) -> list[Notify]:
        return _notices(self.data.take(path), zxid, EventType.NODE_DATA_CHANGED, path)

    def forget(self, peer: int) -> None:
        """The connection is gone, and its watches with it."""
        self.data.forget(peer)
        self.children.forget(peer)

    def _of_parent(self, path: str, zxid: int) -> list[Notify]:
        parent = parent_of(path)
        return _notices(self.children.take(parent), zxid, EventType.NODE_CHILDREN_CHANGED, parent)


def notice(peer: int, zxid: int, type: EventType, path: str) -> Notify:
    return Notify(peer, zxid, WatcherEvent(int(type), SYNC_CONNECTED, path))


def _notices(watchers: dict[int, None], zxid: int, type: EventType, path: str) -> list[Notify]:
    return [notice(peer, zxid, type, path) for peer in watchers] if watchers else []
