"""The server as a state machine: a request and the time go in, effects come out.

Times are ints in ms since the epoch. A peer id is a number that the network server assigns to a
connection and never reuses. Calls are executed and answered in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from distsync._server.acl import Identity
from distsync._server.data_tree import Tree, TreeNode
from distsync._server.effects import Drop, Effect
from distsync._server.engine_config import EngineConfig
from distsync._server.engine_state import EngineState
from distsync._server.handlers.dispatch import Requests
from distsync._server.journal.change_records import DeleteNode
from distsync._server.peer import Authenticator
from distsync._server.session_handshake import Handshake
from distsync._server.session_table import Sessions
from distsync._server.watch_manager import Watches
from distsync._wire.records import ConnectRequest, Request

DEFAULTS = EngineConfig()


class EngineStatistics(NamedTuple):
    """Statistics for ``srvr`` and ``mntr``.

    ``data_bytes`` is the size of all paths and data. ``requests`` counts since the engine was created.
    """

    zxid: int
    znodes: int
    ephemerals: int
    containers: int
    data_bytes: int
    sessions: int
    connections: int
    watches: int
    requests: int


class Engine:
    """One ZooKeeper server. See effects.py for how its effects are to be carried out."""

    def __init__(self, config: EngineConfig = DEFAULTS) -> None:
        self.config = config
        self._core = EngineState(config)
        self._requests = Requests(self._core)
        self._count = 0

    @property
    def zxid(self) -> int:
        """The last zxid assigned."""
        return self._core.state.zxid

    @property
    def tree(self) -> Tree:
        return self._core.tree

    @property
    def sessions(self) -> Sessions:
        return self._core.sessions

    @property
    def watches(self) -> Watches:
        return self._core.watches

    def paths(self) -> Iterator[str]:
        """Iterate over the paths of all znodes, including ``/zookeeper`` and its descendants."""
        return iter(self.tree.nodes)

    def connect(
        self,
        peer_id: int,
        request: ConnectRequest,
        now_ms: int,
        address: str = "127.0.0.1",
        *,
        subject: str = "",
        sasl: Authenticator | None = None,
    ) -> list[Effect]:
        """Handle the connect request of a new peer.

        The peer is accepted, refused (Accepted with session 0, then Drop), or dropped without a
        reply. ``address`` is its IP address, ``subject`` the subject of its certificate, and
        ``sasl`` the authenticator for its SASL tokens.
        """
        self._core.advance_time(now_ms)
        named = (Identity("x509", subject),) if subject else ()
        return Handshake(self._core, peer_id, request, now_ms, (Identity("ip", address), *named), sasl).effects()

    def step(self, peer_id: int, xid: int, request: Request, now_ms: int) -> list[Effect]:
        """Handle a request of a peer. A peer without a session is dropped."""
        core = self._core
        peer = core.peers.get(peer_id)
        if peer is None:
            core.advance_time(now_ms)
            return [Drop(peer_id)]
        self._count += 1
        if peer.last_request_ms != now_ms or core.clock.now_ms != now_ms:
            core.touch_session(peer, now_ms)
        return self._requests.handle(peer, xid, request, now_ms)

    def admission(self, peer_id: int) -> tuple[int, bool]:
        """Return the session id of the peer (0 if it has none), and whether it is sufficiently authenticated."""
        peer = self._core.peers.get(peer_id)
        return (0, False) if peer is None else (peer.session.id, peer.admitted)

    def on_disconnect(self, peer_id: int, now_ms: int) -> list[Effect]:
        """Handle a closed connection. Its session stays open until its timeout."""
        self._core.remove_peer(peer_id)
        return []

    def expire(self, session_id: int, now_ms: int) -> list[Effect]:
        """Expire a session now, and drop its connection. No-op if there is no such session."""
        self._core.advance_time(now_ms)
        session = self.sessions.get(session_id)
        if session is None:
            return []
        owner = session.owner
        effects = self._core.end_session(session, now_ms)
        return effects if owner is None else effects + self._core.drop(owner)

    def advance(self, now_ms: int) -> list[Effect]:
        """Expire due sessions, and delete due containers and TTL nodes."""
        core = self._core
        active_ms = core.advance_time(now_ms)
        effects: list[Effect] = []
        if active_ms >= core.clock.hold_until:
            for id in self.sessions.due(active_ms):
                effects += self.expire(id, now_ms)
        if active_ms >= core.containers_due:
            core.containers_due = active_ms + self.config.container_interval_ms
            effects += self._reap(now_ms)
        return effects

    def next_tick(self) -> int | None:
        """Return the latest time for the next call of `advance`, or None if nothing can become due.

        That is the next expiry, but at most half a tick from now: a longer gap between calls is
        taken for a suspended process, and does not count towards session timeouts
        (session_clock.py).
        """
        clock, due = self._core.clock, self._next_due()
        if due is None or clock.now_ms is None:
            return None if due is None else 0
        at_ms = clock.wall(due)
        return min(at_ms, clock.now_ms + clock.tick_ms // 2) if clock.tolerant else at_ms

    def _next_due(self) -> int | None:
        """Return when something becomes due next, in active time (see session_clock.py)."""
        core = self._core
        dues = [core.containers_due] if self.tree.containers or self.tree.ttls else []
        session = self.sessions.next_due()
        if session is not None:
            dues.append(max(session, core.clock.hold_until))
        return min(dues, default=None)

    def _reap(self, now_ms: int) -> list[Effect]:
        tree = self.tree
        expired = [path for path in (*tree.containers, *tree.ttls) if self._is_expired(tree.nodes[path], now_ms)]
        return [effect for path in expired for effect in self._core.transact(DeleteNode(path), now_ms)]

    def _is_expired(self, node: TreeNode, now_ms: int) -> bool:
        """Whether a container or TTL node is to be deleted.

        A container is deleted once its last child is deleted, or if it was unused for long without
        ever having had one. A TTL node is deleted if it has no children and has not been changed
        for its TTL.
        """
        idle_ms = now_ms - node.mtime
        if node.children:
            return False
        if node.container:
            return node.creates != 0 or idle_ms >= self.config.container_unused_ms
        return idle_ms > node.ttl_ms

    def replay(self, payload: bytes) -> None:
        """Apply the payload of a Commit, unless the state contains it already.

        Must be called before any method that takes the current time. Raises UnreadableStateError.
        """
        self._core.state.replay(payload)

    def snapshot(self) -> Iterator[bytes]:
        """Iterate over the whole state in chunks. The state must not be changed in the meantime."""
        return self._core.state.snapshot()

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Restore a `snapshot`. Must be called on a new engine, before `replay`. Raises UnreadableStateError."""
        self._core.state.restore(chunks)

    def expiries(self) -> dict[int, list[int]]:
        """Return the session ids by expected expiry time."""
        clock, found = self._core.clock, dict[int, list[int]]()
        for session in self.sessions.values():
            found.setdefault(clock.wall(session.due), []).append(session.id)
        return found

    def data_watches(self) -> list[tuple[str, int]]:
        """Return the path and session id of each data watch."""
        peers = self._core.peers
        by_path = self.watches.data.by_path
        return [(path, peers[peer_id].session.id) for path, watchers in by_path.items() for peer_id in watchers]

    def statistics(self, now_ms: int) -> EngineStatistics:
        """Return the current statistics, without iterating over the znodes."""
        tree, watches = self.tree, self.watches
        return EngineStatistics(
            zxid=self.zxid,
            znodes=len(tree.nodes),
            ephemerals=sum(map(len, tree.ephemerals.values())),
            containers=len(tree.containers),
            data_bytes=tree.data_bytes,
            sessions=len(self.sessions),
            connections=len(self._core.peers),
            watches=watches.data.count() + watches.children.count(),
            requests=self._count,
        )
