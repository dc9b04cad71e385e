"""The simulated server: the embedded server's engine behind simulated connections.

It moves messages between connections and the engine, and carries out effects. Faults are injected
where a request is read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from simulation.engine import step_codec
from simulation.engine.lagging_server import READS, LaggingServer
from simulation.engine.network import BROKEN, Connection

from distsync._protocols import steps
from distsync._server import effects
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._wire import records
from distsync._wire.codes import SET_WATCHES_XID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simulation.engine.process import SimProcess
    from simulation.engine.simulation import Simulation

CONFIG = EngineConfig(forgive_pauses=False, enforce_quota=True)

# Schedules cause refusals on purpose, so they are logged only if logging is configured.
logging.getLogger("distsync.server").addHandler(logging.NullHandler())

#: The peer number of a client outside of the world.
EXTERNAL_PEER = 0


class SimServer:
    """See the module."""

    def __init__(self, world: Simulation, config: EngineConfig = CONFIG) -> None:
        self.world = world
        self.engine = Engine(config)
        self.connections: dict[int, Connection] = {}
        self.owners: dict[int, SimProcess] = {}
        self.next_laggards: dict[SimProcess, LaggingServer] = {}
        """The lagging server to which the next connection of a process is made."""
        self.laggards: dict[int, LaggingServer] = {}
        """Connections to a lagging server."""
        self.due_ms: int | None = None
        self.back_ms: int | None = None
        """No server is reachable until then."""
        self._last_peer = EXTERNAL_PEER
        self._delay_ms: int | None = None
        self._external_replies: list[Any] = []

    def open(self, process: SimProcess, client_reads: Callable[[Connection, Any], object]) -> Connection:
        """Return a new connection of this process."""
        self._last_peer += 1
        connection = Connection(self.world.scheduler, self._last_peer, self._read, client_reads)
        self.connections[connection.peer] = connection
        self.owners[connection.peer] = process
        return connection

    def advance(self) -> None:
        """Expire the sessions that are due."""
        now_ms = self.world.now_ms
        self.carry_out(self.engine.advance(now_ms))
        self.due_ms = self.engine.next_tick()

    # --- reading

    def _read(self, connection: Connection, message: Any) -> None:
        peer = connection.peer
        if peer not in self.connections:
            return
        if message is BROKEN:
            self._disconnect(peer)
        elif type(message) is records.ConnectRequest:
            self._connect(peer, message)
            self.due_ms = self.engine.next_tick()
        else:
            xid, request, step = message
            struck = step and self.world.faults.at_request(self.owners[peer], step)
            if struck:
                self._delay_ms = struck[1]
                REQUEST_FAULTS[struck[0]](self, connection, xid, request)
            else:
                self._execute(peer, xid, request)

    def _connect(self, peer: int, request: records.ConnectRequest) -> None:
        laggard = self.next_laggards.pop(self.owners[peer], None)
        self.carry_out(self.engine.connect(peer, request, self.world.now_ms))
        if laggard is not None and laggard.accepts(peer, request, self.world.now_ms):
            self.laggards[peer] = laggard
            late_ms = self.world.rng.randint(1, self.owners[peer].session.timeout_ms)
            self.world.clockwork.after(late_ms, lambda: self._catch_up(peer))

    def _execute(self, peer: int, xid: int, request: Any) -> None:
        now_ms = self.world.scheduler.now_ms
        if peer in self.laggards:
            if isinstance(request, READS):
                self.carry_out(self.laggards[peer].read(peer, xid, request, now_ms))
                return
            if not isinstance(request, records.PingRequest):
                self._catch_up(peer)
        self.carry_out(self.engine.step(peer, xid, request, now_ms))

    def _catch_up(self, peer: int) -> None:
        """Bring the server of this connection up to date."""
        laggard = self.laggards.pop(peer, None)
        if laggard is not None:
            armed = self.engine.step(peer, SET_WATCHES_XID, laggard.watches(), self.world.now_ms)
            self.carry_out(each for each in armed if not isinstance(each, effects.Reply))

    def _disconnect(self, peer: int) -> None:
        self.laggards.pop(peer, None)
        self.connections.pop(peer).up.shut()
        self.carry_out(self.engine.on_disconnect(peer, self.world.now_ms))

    def carry_out(self, todo: Iterable[effects.Effect]) -> None:
        """Send every effect to its peer, in order."""
        for effect in todo:
            if isinstance(effect, effects.Commit):
                self._notify_checks()
                continue
            connection = self.connections.get(effect.peer_id)
            if connection is None:
                if effect.peer_id == EXTERNAL_PEER:
                    self._external_replies.append(effect)
            elif isinstance(effect, effects.Drop):
                self.connections.pop(effect.peer_id).server_leaves()
            else:
                connection.down.put(effect)

    def _notify_checks(self) -> None:
        for check in self.world.checks:
            check.changed(self.world)

    # --- faults at a request

    def lose_request(self, connection: Connection, xid: int, request: Any) -> None:
        """Do not execute the request; break the connection."""
        self._break(connection)

    def lose_reply(self, connection: Connection, xid: int, request: Any) -> None:
        """Execute the request; break the connection before the reply is sent."""
        sent = len(connection.down.messages)
        self._execute(connection.peer, xid, request)
        while len(connection.down.messages) > sent:
            connection.down.messages.pop()
        self._break(connection)

    def _break(self, connection: Connection) -> None:
        if connection.peer in self.connections:
            self._disconnect(connection.peer)
        connection.down.put(BROKEN)

    def cut(self, connection: Connection, xid: int, request: Any) -> None:
        """Break the connection between both ends; sometimes the client stays away for a while."""
        rng, session = self.world.rng, self.owners[connection.peer].session
        self._execute(connection.peer, xid, request)
        away_ms = rng.choice((0, 0, rng.random() * 1.2)) * session.timeout_ms
        self.owners[connection.peer].cut((away_ms if self._delay_ms is None else self._delay_ms) / 1000)

    def expire_away(self, connection: Connection, xid: int, request: Any) -> None:
        """Cut the client off until its session has timed out."""
        process = self.owners[connection.peer]
        process.cut((process.session.timeout_ms + 3 * self.engine.config.tick_time_ms) / 1000)

    def expire_live(self, connection: Connection, xid: int, request: Any) -> None:
        """Let an administrator end the session of a live connection."""
        session_id = self.owners[connection.peer].session.session_id
        self.world.tampered.add(session_id)
        self.carry_out(self.engine.expire(session_id, self.world.now_ms))
        if connection.peer in self.connections:
            self._execute(connection.peer, xid, request)

    def slow(self, connection: Connection, xid: int, request: Any) -> None:
        """Delay the reply, and everything after it."""
        self._execute(connection.peer, xid, request)
        timeout_ms = self.owners[connection.peer].session.timeout_ms
        connection.down.stall()
        delay_ms = self._delay_ms or self.world.rng.randint(1, timeout_ms)
        self.world.clockwork.after(delay_ms, connection.down.unstall)

    def lag(self, connection: Connection, xid: int, request: Any) -> None:
        """Break the connection, mostly with the reply in transit. The next one is to a server that
        does not know what happens from now on.
        """
        self.next_laggards[self.owners[connection.peer]] = LaggingServer(self.engine)
        lose = self.lose_reply if self.world.rng.random() < 0.7 else self.lose_request
        lose(connection, xid, request)

    def outage(self, connection: Connection, xid: int, request: Any) -> None:
        """Make all servers unreachable. They return with the same state, and each session has its
        whole timeout again.
        """
        lose = self.lose_reply if self.world.rng.random() < 0.5 else self.lose_request
        lose(connection, xid, request)
        for each in self.connections.values():
            each.up.shut()
            each.down.cut()
        self.connections.clear()
        self.laggards.clear()
        self.next_laggards.clear()
        away_ms = self._delay_ms or 0
        self.back_ms, self.due_ms = self.world.now_ms + away_ms, None
        self.world.clockwork.after(away_ms, self._come_back)

    def _come_back(self) -> None:
        pieces = self.engine.snapshot()
        self.engine = Engine(self.engine.config)
        self.engine.restore(pieces)
        self.back_ms = None
        self.world.note("servers", "are back", "")
        self.advance()

    def stale_session(self, connection: Connection, xid: int, request: Any) -> None:
        """Break the connection, and let the client begin a new session at the next one; no other
        client knows of that.
        """
        self.owners[connection.peer].session.disowned = True
        lose = self.lose_reply if self.world.rng.random() < 0.5 else self.lose_request
        lose(connection, xid, request)

    # --- a client outside of the world

    def external_client(self, step: steps.Request[Any]) -> Any:
        """Return the answer to a request of a client that is not a process of this world, or raise its
        error.
        """
        now_ms = self.world.now_ms
        requests = ((1, step_codec.request_of(step)), (2, records.CloseSessionRequest()))
        todo = list(self.engine.connect(EXTERNAL_PEER, records.ConnectRequest(), now_ms))
        for xid, request in requests:
            todo += self.engine.step(EXTERNAL_PEER, xid, request, now_ms)
        self._external_replies.clear()
        self.carry_out(todo)
        reply = next(each for each in self._external_replies if isinstance(each, effects.Reply) and each.xid == 1)
        answer = step_codec.answer_of(step, reply.err, reply.body, self.world.rng)
        if isinstance(answer, Exception):
            raise answer
        return answer


REQUEST_FAULTS: dict[str, Callable[[SimServer, Connection, int, Any], None]] = {
    "lost_request": SimServer.lose_request,
    "lost_reply": SimServer.lose_reply,
    "cut": SimServer.cut,
    "expire_away": SimServer.expire_away,
    "expire_live": SimServer.expire_live,
    "slow": SimServer.slow,
    "lag": SimServer.lag,
    "outage": SimServer.outage,
    "ghost": SimServer.stale_session,
}
