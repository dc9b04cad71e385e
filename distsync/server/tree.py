"""The znodes: who is whose child, with which data, versions and counters.

Rules for this file: it applies what was decided and checks nothing; it knows no connection, watch or session but the
owner's number. Numbers that are 32 bits on the wire wrap here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

from distsync.server.acl import READ_ONLY_ACL
from distsync.server.changes import CreateNode, DeleteNode, NodeChange, SetNodeAcl, SetNodeData, StoredNode
from distsync.server.paths import SPECIAL, parent_of
from distsync.wire.records import OPEN_ACL, Acl, Stat

_NO_CHILDREN: dict[str, None] = {}
"""Shared by all leaves, never written to."""


def wrapped(number: int) -> int:
    """As a 32-bit number with a sign."""
    return (number + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def next_version(version: int) -> int:
    """The version after this one; never -1, which means "any" in a request."""
    return wrapped(version + 1) if version != -2 else 0


class Node:
    """One znode. ``creates`` counts the children ever created: it is the next sequence number."""

    __slots__ = (
        "data",
        "acl",
        "owner",
        "container",
        "czxid",
        "mzxid",
        "pzxid",
        "ctime",
        "mtime",
        "version",
        "creates",
        "aversion",
        "children",
    )

    COUNTERS = ("czxid", "mzxid", "pzxid", "ctime", "mtime", "version", "creates", "aversion")

    def __init__(
        self, data: bytes | None, acl: tuple[Acl, ...], owner: int, container: bool, zxid: int, time_ms: int
    ) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.container = container
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.creates = self.aversion = 0
        self.children = _NO_CHILDREN

    @property
    def stat(self) -> Stat:
        """On the wire cversion counts creates and deletes of children: 2 * creates - children."""
        children = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            wrapped(2 * self.creates - children),
            self.aversion,
            self.owner,
            len(self.data) if self.data else 0,
            children,
            self.pzxid,
        )


_counters: Callable[[Node], tuple[int, ...]] = attrgetter(*Node.COUNTERS)


class Tree:
    """All znodes by path; parents come before their children."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.data_bytes = 0
        """Of all paths and data."""
        for path in SPECIAL:
            self._add(path, Node(b"", OPEN_ACL, 0, False, 0, 0))
        config = self.nodes["/zookeeper/config"]
        config.acl, config.aversion = READ_ONLY_ACL, -1

    def node(self, path: str) -> Node | None:
        """The znode; "" is the root too."""
        return self.nodes.get(path or "/")

    def create(self, change: CreateNode, zxid: int, time_ms: int) -> None:
        path, data, acl, owner, container = change
        parent = self._add(path, Node(data, acl, owner, container, zxid, time_ms))
        parent.creates = wrapped(parent.creates + 1)
        parent.pzxid = zxid

    def delete(self, change: DeleteNode, zxid: int, time_ms: int) -> None:
        self._remove(change.path).pzxid = zxid

    def set_data(self, change: SetNodeData, zxid: int, time_ms: int) -> None:
        node = self.nodes[change.path]
        self._put(node, change.data)
        node.version = next_version(node.version)
        node.mzxid = zxid
        node.mtime = time_ms

    def set_acl(self, change: SetNodeAcl, zxid: int, time_ms: int) -> None:
        node = self.nodes[change.path]
        node.acl = change.acl
        node.aversion = next_version(node.aversion)

    def owned(self, session_id: int) -> tuple[str, ...]:
        """The session's ephemeral nodes, in the order of their creation."""
        return tuple(self.ephemerals.get(session_id, ()))

    def delete_owned(self, session_id: int, zxid: int) -> None:
        for path in self.owned(session_id):
            self._remove(path).pzxid = zxid

    def reversal(self, change: NodeChange) -> Callable[[], None]:
        """Called before ``change`` is applied: what takes it back, when everything after it was taken back."""
        if isinstance(change, CreateNode):
            return partial(self._uncreate, change.path, self.nodes[parent_of(change.path)].pzxid)
        node = self.nodes[change.path]
        if isinstance(change, DeleteNode):
            return partial(self._undelete, change.path, node, self.nodes[parent_of(change.path)].pzxid)
        return partial(self._reset, node, node.data, node.acl, node.version, node.aversion, node.mzxid, node.mtime)

    def stored(self) -> Iterator[StoredNode]:
        """Every node as a record, parents before their children."""
        for path, node in self.nodes.items():
            yield StoredNode(path, node.data, node.acl, node.owner, node.container, _counters(node))

    def load(self, stored: StoredNode) -> None:
        node = Node(stored.data, stored.acl, stored.owner, stored.container, 0, 0)
        for counter, value in zip(Node.COUNTERS, stored.counters, strict=True):
            setattr(node, counter, value)
        self._add(stored.path, node)

    def clear(self) -> None:
        """Not even the root is there: only load() may follow."""
        for table in (self.nodes, self.ephemerals, self.containers):
            table.clear()
        self.data_bytes = 0

    def _add(self, path: str, node: Node) -> Node:
        """Answers the parent (the root's is itself)."""
        self.nodes[path] = node
        self.data_bytes += len(path) + len(node.data or b"")
        cut = path.rfind("/")
        parent = self.nodes[path[:cut] or "/"]
        if path != "/":
            if parent.children is _NO_CHILDREN:
                parent.children = {}
            parent.children[path[cut + 1 :]] = None
        if node.owner:
            self.ephemerals.setdefault(node.owner, {})[path] = None
        elif node.container:
            self.containers[path] = None
        return parent

    def _remove(self, path: str) -> Node:
        """Answers the parent."""
        node = self.nodes.pop(path)
        self.data_bytes -= len(path) + len(node.data or b"")
        cut = path.rfind("/")
        parent = self.nodes[path[:cut] or "/"]
        del parent.children[path[cut + 1 :]]
        if node.owner:
            self._disown(node.owner, path)
        elif node.container:
            del self.containers[path]
        return parent

    def _disown(self, owner: int, path: str) -> None:
        owned = self.ephemerals[owner]
        del owned[path]
        if not owned:
            del self.ephemerals[owner]

    def _uncreate(self, path: str, pzxid: int) -> None:
        parent = self._remove(path)
        parent.creates = wrapped(parent.creates - 1)
        parent.pzxid = pzxid

    def _undelete(self, path: str, node: Node, pzxid: int) -> None:
        self._add(path, node).pzxid = pzxid

    def _reset(
        self, node: Node, data: bytes | None, acl: tuple[Acl, ...], version: int, aversion: int, mzxid: int, mtime: int
    ) -> None:
        self._put(node, data)
        node.acl, node.version, node.aversion, node.mzxid, node.mtime = acl, version, aversion, mzxid, mtime

    def _put(self, node: Node, data: bytes | None) -> None:
        self.data_bytes += len(data or b"") - len(node.data or b"")
        node.data = data
