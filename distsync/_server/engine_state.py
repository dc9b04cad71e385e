"""State shared by the parts of an engine: durable state, connected peers, watches and clock.

A transaction takes the next zxid, applies its change, is committed, and then fires watches. Which
changes to make is decided in handlers/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from distsync._server.acl import READ, Identity, Policy, allows
from distsync._server.durable_state import DurableState
from distsync._server.effects import Drop, Effect, Notify
from distsync._server.engine_config import EngineConfig
from distsync._server.journal.change_records import (
    Change,
    CloseSession,
    CreateNode,
    DeleteNode,
    ResizeSession,
    SetNodeData,
)
from distsync._server.path_rules import parent_of
from distsync._server.peer import Peer
from distsync._server.session_clock import PauseTolerantClock
from distsync._server.session_table import Session
from distsync._server.watch_manager import Watches
from distsync._wire.records import OPEN_ACL, Acl


class ReadPermissions(NamedTuple):
    """The ACLs of a znode and of its parent at the time of a change. They decide which watchers are notified."""

    of_node: tuple[Acl, ...]
    of_parent: tuple[Acl, ...]


EVERYBODY = ReadPermissions(OPEN_ACL, OPEN_ACL)
NOBODY = ReadPermissions((), ())


class EngineState:
    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        shared = None if config.required_digest is None else Identity("digest", config.required_digest)
        self.policy = Policy(config.schemes, shared)
        self.state = DurableState(config.expiry_ms, config.initial_zxid)
        self.tree = self.state.tree
        self.sessions = self.state.sessions
        self.watches = Watches()
        self.clock = PauseTolerantClock(config.tick_time_ms, config.forgive_pauses)
        self.peers: dict[int, Peer] = {}
        self.containers_due = 0
        self._fires: dict[type[Change], Callable[[str, int], list[Notify]]] = {
            CreateNode: self.watches.created,
            DeleteNode: self.watches.deleted,
            SetNodeData: self.watches.changed,
        }

    def is_authorized(self, identities: Sequence[Identity]) -> bool:
        """Whether a client with these identities may send requests other than authentication."""
        shared = self.policy.shared
        return (shared is None or shared in identities) and not self.missing_scheme(identities)

    def missing_scheme(self, identities: Sequence[Identity]) -> bool:
        required = self.config.required_schemes
        return bool(required) and not any(identity.scheme in required for identity in identities)

    def advance_time(self, now_ms: int) -> int:
        """Set the time and return the active time.

        The first call gives sessions that were restored from a journal their full timeout.
        """
        clock = self.clock
        if clock.now_ms == now_ms:
            return clock.active_ms
        first = clock.now_ms is None
        active_ms = clock.advance_time(now_ms)
        if first:
            self.sessions.touch_all(active_ms)
            self.containers_due = active_ms + self.config.container_interval_ms
        return active_ms

    def touch_session(self, peer: Peer, now_ms: int) -> None:
        """Restart the timeout of the peer's session."""
        peer.last_request_ms = now_ms
        self.sessions.touch(peer.session, self.advance_time(now_ms))

    def next_zxid(self) -> int:
        self.state.zxid += 1
        return self.state.zxid

    def transact(self, change: Change | None, now_ms: int) -> list[Effect]:
        """Apply and commit ``change`` under the next zxid, and fire its watches. None only consumes a zxid."""
        state = self.state
        zxid = state.zxid = state.zxid + 1
        if change is None:
            return [state.commit(zxid, now_ms, ())]
        if not self.watches.may_fire(change):
            return [state.apply_and_commit(change, zxid, now_ms)]
        permissions = self.permissions(change)
        return [state.apply_and_commit(change, zxid, now_ms), *self.fire_watches(change, permissions, zxid)]

    def record_extra(self, change: ResizeSession, now_ms: int) -> list[Effect]:
        """Apply and commit ``change`` under the last zxid, because ZooKeeper assigns it none."""
        zxid = self.state.zxid
        self.state.apply(change, zxid, now_ms)
        return [self.state.commit(zxid, now_ms, (change,))]

    def permissions(self, change: Change) -> ReadPermissions:
        """Return the ACLs for the notifications of a change. Must be called before the change is applied."""
        if not isinstance(change, (CreateNode, DeleteNode, SetNodeData)):
            return NOBODY
        nodes, path = self.tree.nodes, change.path
        return ReadPermissions(
            change.acl if isinstance(change, CreateNode) else nodes[path].acl, nodes[parent_of(path)].acl
        )

    def fire_watches(self, change: Change, permissions: ReadPermissions, zxid: int) -> list[Notify]:
        """Fire the watches of a change to one znode. For a CloseSession, see `end_session`."""
        fire = self._fires.get(type(change))
        return self._drop_unreadable(fire(change.path, zxid), change.path, permissions) if fire else []  # type: ignore[union-attr]

    def _drop_unreadable(self, notifications: list[Notify], path: str, permissions: ReadPermissions) -> list[Notify]:
        """Remove notifications of znodes that the watcher may not read. Their watches are used up as well."""
        if permissions == EVERYBODY:
            return notifications
        acls = {path: permissions.of_node}
        return [one for one in notifications if self._may_read(one, acls.get(one.event.path, permissions.of_parent))]

    def _may_read(self, notify: Notify, acl: tuple[Acl, ...]) -> bool:
        return acl is OPEN_ACL or allows(acl, READ, self.peers[notify.peer_id].identities)

    def end_session(self, session: Session, now_ms: int) -> list[Effect]:
        """Close a session and delete its ephemeral nodes under one zxid. Its connection stays open."""
        owned = [(path, self.permissions(DeleteNode(path))) for path in self.tree.owned(session.id)]
        effects = self.transact(CloseSession(session.id), now_ms)
        for path, permissions in owned:
            effects += self.fire_watches(DeleteNode(path), permissions, self.state.zxid)
        return effects

    def remove_peer(self, peer_id: int) -> None:
        """Forget a connection, its watches and its identities."""
        peer = self.peers.pop(peer_id, None)
        if peer is not None:
            self.watches.forget(peer_id)
            peer.session.owner = None

    def drop(self, peer_id: int) -> list[Effect]:
        self.remove_peer(peer_id)
        return [Drop(peer_id)]
