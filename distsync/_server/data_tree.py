"""The tree of znodes, with their data, versions and counters.

Changes are applied without checks, which handlers/ does before. Numbers of 32 bits on the wire wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

from distsync._server.acl import READ_ONLY_ACL
from distsync._server.journal.change_records import (
    TTL_OWNER,
    CreateNode,
    DeleteNode,
    NodeChange,
    SetNodeAcl,
    SetNodeData,
    StoredNode,
)
from distsync._server.path_rules import SPECIAL, parent_of
from distsync._server.quotas import (
    QUOTA,
    apply_delta,
    is_limits,
    limits_path,
    prefix_of,
    stats_data,
    stats_path,
    target_of,
)
from distsync._wire.records import OPEN_ACL, Acl, Stat

_stat: Callable[[type[Stat], tuple[int, ...]], Stat] = tuple.__new__
"""Faster than the constructor of Stat."""

_NO_CHILDREN: dict[str, None] = {}
"""Shared by all leaves. Never modified."""


LAST_INT = 0x7FFFFFFF


def wrapped(number: int) -> int:
    """Wrap to a signed 32-bit number."""
    return number if -LAST_INT <= number <= LAST_INT else (number + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def next_version(version: int) -> int:
    """Return the next version, skipping -1, which means "any" in a request."""
    return wrapped(version + 1) if version != -2 else 0


class TreeNode:
    """One znode.

    Attributes:
        creates: Number of children ever created, which is the next sequence number.
        owner: Session id of an ephemeral node; negative for a TTL (see TTL_OWNER); otherwise 0.
    """

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
        """The znode's Stat. Its cversion counts creates and deletes of children, 2 * creates - children."""
        children, owner, data = len(self.children), self.owner, self.data
        return _stat(
            Stat,
            (
                self.czxid,
                self.mzxid,
                self.ctime,
                self.mtime,
                self.version,
                wrapped(2 * self.creates - children),
                self.aversion,
                owner if owner > 0 else 0,
                len(data) if data else 0,
                children,
                self.pzxid,
            ),
        )

    @property
    def ttl_ms(self) -> int:
        """TTL in ms; 0 for none."""
        return self.owner - TTL_OWNER if self.owner < 0 else 0


_counters: Callable[[TreeNode], tuple[int, ...]] = attrgetter(*TreeNode.COUNTERS)


class Tree:
    """All znodes by path. Parents come before their children."""

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.ttls: dict[str, None] = {}
        self.limited: set[str] = set()
        """Paths that have a quota."""
        self.data_bytes = 0
        """Size of all paths and data."""
        for path in SPECIAL:
            self._add(path, TreeNode(b"", OPEN_ACL, 0, False, 0, 0))
        config = self.nodes["/zookeeper/config"]
        config.acl, config.aversion = READ_ONLY_ACL, -1

    def node(self, path: str) -> TreeNode | None:
        """Return the znode, or None. "" is the root, like "/"."""
        return self.nodes.get(path or "/")

    def create(self, change: CreateNode, zxid: int, time_ms: int) -> None:
        path, data, acl, owner, container = change
        parent = self._add(path, TreeNode(data, acl, owner, container, zxid, time_ms))
        parent.creates = wrapped(parent.creates + 1)
        parent.pzxid = zxid
        if path.startswith(QUOTA):
            self._recount_quota(path)
        if self.limited:
            self._update_quota(path, 1, len(data or b""))

    def delete(self, change: DeleteNode, zxid: int, time_ms: int) -> None:
        self._delete(change.path, zxid)

    def set_data(self, change: SetNodeData, zxid: int, time_ms: int) -> None:
        node = self.nodes[change.path]
        more = self._put(node, change.data)
        if self.limited:
            self._update_quota(change.path, 0, more)
        node.version = next_version(node.version)
        node.mzxid = zxid
        node.mtime = time_ms

    def set_acl(self, change: SetNodeAcl, zxid: int, time_ms: int) -> None:
        node = self.nodes[change.path]
        node.acl = change.acl
        node.aversion = next_version(node.aversion)

    def owned(self, session_id: int) -> tuple[str, ...]:
        """Return the session's ephemeral nodes in order of creation."""
        return tuple(self.ephemerals.get(session_id, ()))

    def delete_owned(self, session_id: int, zxid: int) -> None:
        for path in self.owned(session_id):
            self._delete(path, zxid)

    def quota_of(self, path: str) -> tuple[TreeNode | None, TreeNode | None]:
        """Return the limits node and the stats node that apply to the path; None where there is none."""
        prefix = prefix_of(path, self.limited) if self.limited else ""
        return (self.nodes.get(limits_path(prefix)), self.nodes.get(stats_path(prefix))) if prefix else (None, None)

    def recount_quotas(self) -> None:
        """Recompute the stats of all quotas from the tree."""
        for target in self.limited:
            if stats_path(target) in self.nodes:
                self._recount_quota(stats_path(target))

    def descendants(self, path: str) -> Iterator[str]:
        """Iterate over all paths below ``path``."""
        pending = [path.rstrip("/")]
        while pending:
            above = pending.pop()
            below = [f"{above}/{name}" for name in self.nodes[above or "/"].children]
            yield from below
            pending += below

    def inverse(self, change: NodeChange) -> Callable[[], None]:
        """Return a function that undoes ``change``. Must be called before the change is applied.

        Changes must be undone in reverse order.
        """
        undo = self._undo_of(change)
        if not self.limited:
            return undo
        stats = self.quota_of(change.path)[1]
        return undo if stats is None else partial(self._undo_with_quota, undo, stats, stats.data)

    def _undo_of(self, change: NodeChange) -> Callable[[], None]:
        path, kind = change[0], type(change)
        if kind is CreateNode:
            return partial(self._undo_create, path, self.nodes[parent_of(path)].pzxid)
        node = self.nodes[path]
        if kind is DeleteNode:
            return partial(self._undo_delete, path, node, self.nodes[parent_of(path)].pzxid)
        return partial(self._reset, node, node.data, node.acl, node.version, node.aversion, node.mzxid, node.mtime)

    def stored(self) -> Iterator[StoredNode]:
        """Iterate over all nodes as records, parents before their children."""
        for path, node in self.nodes.items():
            yield StoredNode(path, node.data, node.acl, node.owner, node.container, _counters(node))

    def load(self, stored: StoredNode) -> None:
        path, data, acl, owner, container, counters = stored
        czxid, mzxid, pzxid, ctime, mtime, node_version, creates, aversion = counters
        node = TreeNode(data, acl, owner, container, czxid, ctime)
        if mzxid != czxid:  # if equal, share the int object, which saves memory
            node.mzxid = mzxid
        if mtime != ctime:
            node.mtime = mtime
        if pzxid != czxid:
            node.pzxid = pzxid
        node.version, node.creates, node.aversion = node_version, creates, aversion
        self._add(path, node)

    def clear(self) -> None:
        """Remove all nodes, including the root. Only `load` may follow."""
        for table in (self.nodes, self.ephemerals, self.containers, self.ttls, self.limited):
            table.clear()
        self.data_bytes = 0

    def _add(self, path: str, node: TreeNode) -> TreeNode:
        """Add a node and return its parent (for the root, the root)."""
        nodes = self.nodes
        nodes[path] = node
        self.data_bytes += len(path) + len(node.data) if node.data else len(path)
        cut = path.rfind("/")
        parent = nodes[path[:cut] or "/"]
        if path != "/":
            if parent.children is _NO_CHILDREN:
                parent.children = {}
            parent.children[path[cut + 1 :]] = None
        if node.owner or node.container or path.startswith(QUOTA):
            self._enlist(path, node)
        return parent

    def _enlist(self, path: str, node: TreeNode) -> None:
        """Add the node to the indexes of ephemeral, TTL, container and quota nodes."""
        if node.owner > 0:
            self.ephemerals.setdefault(node.owner, {})[path] = None
        elif node.owner:
            self.ttls[path] = None
        elif node.container:
            self.containers[path] = None
        if is_limits(path):
            self.limited.add(target_of(path))

    def _remove(self, path: str) -> TreeNode:
        """Remove a node and return its parent."""
        node = self.nodes.pop(path)
        self.data_bytes -= len(path) + len(node.data or b"")
        cut = path.rfind("/")
        parent = self.nodes[path[:cut] or "/"]
        del parent.children[path[cut + 1 :]]
        if node.owner > 0:
            self._remove_ephemeral(node.owner, path)
        elif node.owner:
            del self.ttls[path]
        elif node.container:
            del self.containers[path]
        if path.startswith(QUOTA) and is_limits(path):
            self.limited.discard(target_of(path))
        return parent

    def _delete(self, path: str, zxid: int) -> None:
        node = self.nodes[path]
        self._remove(path).pzxid = zxid
        if self.limited:
            self._update_quota(path, -1, -len(node.data or b""))

    def _recount_quota(self, path: str) -> None:
        """If ``path`` is a stats node, count the nodes and bytes of its subtree."""
        target = target_of(path)
        if not target or path != stats_path(target):
            return
        found = [target, *self.descendants(target)] if target in self.nodes else []
        size = sum(len(self.nodes[one].data or b"") for one in found)
        self._put(self.nodes[path], stats_data(len(found), size))

    def _update_quota(self, path: str, count: int, size: int) -> None:
        """Add to the stats of the quota that applies to the path, if any."""
        stats = self.quota_of(path)[1]
        if stats is not None:
            self._put(stats, apply_delta(stats.data, count, size))

    def _undo_with_quota(self, undo: Callable[[], None], node: TreeNode, data: bytes | None) -> None:
        undo()
        self._put(node, data)

    def _remove_ephemeral(self, owner: int, path: str) -> None:
        owned = self.ephemerals[owner]
        del owned[path]
        if not owned:
            del self.ephemerals[owner]

    def _undo_create(self, path: str, pzxid: int) -> None:
        parent = self._remove(path)
        parent.creates = wrapped(parent.creates - 1)
        parent.pzxid = pzxid

    def _undo_delete(self, path: str, node: TreeNode, pzxid: int) -> None:
        self._add(path, node).pzxid = pzxid

    def _reset(
        self,
        node: TreeNode,
        data: bytes | None,
        acl: tuple[Acl, ...],
        version: int,
        aversion: int,
        mzxid: int,
        mtime: int,
    ) -> None:
        self._put(node, data)
        node.acl, node.version, node.aversion, node.mzxid, node.mtime = acl, version, aversion, mzxid, mtime

    def _put(self, node: TreeNode, data: bytes | None) -> int:
        """Set the data and return by how many bytes it grew."""
        more = (len(data) if data else 0) - (len(node.data) if node.data else 0)
        self.data_bytes += more
        node.data = data
        return more
