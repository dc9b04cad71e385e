"""The rim: sockets around the engine. Bytes come in, the engine is stepped, its effects go to the disk and out.

Rules for this file: it, connection.py and tls_acceptor.py alone know asyncio. It decides nothing about znodes.

One turn of the loop reads what all connections have sent and steps the engine through it. Then, once, all commits of
the turn become durable in one transaction, and only then do the turn's answers leave, those of reads too: a read may
show what is not yet on disk. When the disk refuses, no answer leaves and the server stops: what the engine then knows
beyond the journal was told to nobody, and the next start reads the journal.

What goes wrong while one connection is worked for ends that connection, as long as nothing has changed: a frame is
decoded before the engine sees it, each change begins with a new zxid. An error after that stops the server, loudly.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from distsync._server.admin.statistics import ServerStatistics
from distsync._server.auth.digest_md5 import DigestMd5Exchange
from distsync._server.auth.x509_subject import subject_of
from distsync._server.effects import Accepted, Commit, Drop, Effect, Notify, Reply
from distsync._server.engine import Engine
from distsync._server.journal.journal import Journal
from distsync._server.net.connection import Connection, frame_of
from distsync._server.net.event_loop import backlog, max_connections, run
from distsync._server.net.limits import UnauthenticatedSessions, close_largest_buffers
from distsync._server.net.tls_acceptor import TlsAcceptor
from distsync._server.options import USUAL, Options
from distsync._server.session_clock import SteadyClock
from distsync._wire.codec import decode_connect, decode_request, framed_reply
from distsync._wire.records import ConnectRequest

log = logging.getLogger("distsync.server")

FEW_CONNECTIONS = 8
BUFFER_BYTES = 1 << 16
"""Read at once; made once, for to make it costs more than to read into it."""

HEARTBEAT_S = 0.2
"""Shorter than the engine's tick, so that an idle loop does not look like a pause."""

NONCE_BYTES = 30
"""Of chance, in each challenge (ZooKeeper: the same)."""

LOOKS_PER_LIMIT = 16
"""What is held is looked at whenever that share of what may be held has come or gone, besides each heartbeat."""


class NetworkServer:
    """One running server."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        *,
        secret: str | None = None,
        idle_exit: float | None = None,
        options: Options = USUAL,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.engine = engine
        self._journal = journal
        self._idle_exit = idle_exit
        self._tls = tls
        self._passwords = options.passwords
        self.encrypted = tls is not None
        self._limits = options.limits
        self._most_connections = options.limits.connections or max_connections()
        self._strangers = UnauthenticatedSessions(options.limits.strange_sessions, options.limits.handshake_seconds)
        self._connections: set[Connection] = set()
        self._peers: dict[int, Connection] = {}  # those that the engine knows
        self._last_peer = 0
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._commits: list[tuple[int, bytes]] = []
        self._committed = engine.zxid  # on disk
        self._dirty: dict[Connection, None] = {}  # those with something to send, in order
        self._flushing = self._at_once = False
        self._few = 0 if options.sync_full else FEW_CONNECTIONS
        self.moved = 0
        """Bytes received and sent since the last look at how much of them is held."""
        self.failure: Exception | None = None
        self._last_busy = self._turn_began = time.monotonic()
        self._clock = SteadyClock(engine.config.tick_time_ms, time.time_ns(), time.monotonic_ns())
        self.report = ServerStatistics(engine, journal.path.parent, options.words, secret)
        self.report.connections = self._connections

    def run(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        """Serves on ``listening`` until a signal or idleness stops it; calls ``ready`` when it does serve.

        Raises what the journal raised when that is the reason to stop."""
        self.report.port = listening.getsockname()[1]
        run(self._serve(listening, ready))
        if self.failure is not None:
            raise self.failure

    async def _serve(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        self._stopped = asyncio.Event()
        if threading.current_thread() is threading.main_thread():  # others cannot have signals
            for signum in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(signum, self._stopped.set)
        server = await self._accepting(listening)
        self._on_tick()
        ready()
        await self._stopped.wait()
        server.close()
        self._flush()
        for shut_down in (Connection.close, Connection.abort):
            for connection in tuple(self._connections):
                shut_down(connection)
            await asyncio.sleep(0)

    async def _accepting(self, listening: socket.socket) -> asyncio.AbstractServer | TlsAcceptor:
        if self._tls is None:
            return await self._loop.create_server(lambda: Connection(self), sock=listening, backlog=backlog())
        return TlsAcceptor(listening, lambda: Connection(self), self._tls, self._limits.handshake_seconds, self._room)

    def _room(self) -> int:
        return self._most_connections - len(self._connections)

    def stop(self) -> None:
        """It ends in good order. From any thread, once it serves."""
        self.interrupt(self._stopped.set)

    def interrupt(self, function: Callable[[], object]) -> None:
        """``function()`` is called between two turns of the loop, which waits for it. From any thread."""
        self._loop.call_soon_threadsafe(function)

    def _on_tick(self) -> None:
        """Time passes: sessions expire, strangers are shown out, an idle server stops."""
        now_ms = self._now_ms()
        self._execute(self.engine.advance, now_ms)
        self._check_unauthenticated()
        self._check_buffers()
        self._check_idle()
        due = self.engine.next_tick()
        delay = HEARTBEAT_S if due is None else (due - now_ms) / 1000
        self._loop.call_later(min(max(delay, 0.001), HEARTBEAT_S), self._on_tick)

    def _check_unauthenticated(self) -> None:
        now = time.monotonic()
        for session_id in self._strangers.due(now):
            self._execute(self.engine.expire, session_id, self._now_ms())
        for connection in tuple(self._connections):
            if connection.deadline is not None and connection.deadline < now:
                connection.close_with_error("it takes too long")

    def _check_buffers(self) -> None:
        self.moved = 0
        close_largest_buffers(self._connections, self._limits.held_bytes)

    def _check_idle(self) -> None:
        now = time.monotonic()
        if self._connections or self.engine.sessions:
            self._last_busy = now
        elif self._idle_exit is not None and now - self._last_busy >= self._idle_exit:
            log.info("stopping: no session for %.0f s", self._idle_exit)
            self._stopped.set()

    def add(self, connection: Connection) -> None:
        """A number of its own for each connection; or it is closed, when there are too many."""
        self._last_peer += 1
        connection.peer = self._last_peer
        self._connections.add(connection)
        self._last_busy = time.monotonic()
        connection.deadline = self._last_busy + self._limits.handshake_seconds
        if not connection.address[0]:
            connection.close_with_error("it is gone already, and with it who that was")
        elif len(self._connections) > self._most_connections:
            connection.close_with_error(f"{self._most_connections} connections are all that this process may have")

    def close_deadline(self) -> float:
        return time.monotonic() + self._limits.linger_seconds

    def remove(self, connection: Connection) -> None:
        """The connection is gone; the engine hears of it unless it had dropped it itself."""
        self._connections.discard(connection)
        self.report.on_close(connection)
        if self._peers.pop(connection.peer, None) is not None:
            self._execute(self.engine.hang_up, connection.peer, self._now_ms())

    def work(self, connection: Connection, frames: deque[bytes]) -> None:
        """The frames of a client are worked for, one after the other, while there is room for the answers."""
        if not connection.greeted:
            self._greet(connection, frames.popleft())
        now_ms, peer, step, collect = self._now_ms(), connection.peer, self.engine.step, self._collect
        done, frame = 0, b""
        while frames and connection.has_room:
            frame, done = frames.popleft(), done + 1
            try:
                xid, request = decode_request(frame)
            except Exception as error:  # whatever it is, nothing has happened yet
                connection.close_with_error(error)
                break
            try:
                effects = step(peer, xid, request, now_ms)
            except Exception as error:
                self._handle_engine_error(error, connection)
                break
            collect(effects)
            if not connection.admitted:
                self._look_whether_admitted(connection)
        connection.requests_done(done, frame)

    def _greet(self, connection: Connection, frame: bytes) -> None:
        connection.received += 1
        try:
            request = decode_connect(frame)
        except Exception as error:
            connection.close_with_error(error)
            return
        connection.greeted = True
        self._peers[connection.peer] = connection
        self._execute(self._connect, connection, request, connection=connection)
        connection.session_id, admitted = self.engine.admission(connection.peer)
        if not admitted and request.session_id == 0:
            self._strangers.opened(connection.session_id, time.monotonic())
        self._look_whether_admitted(connection)

    def _connect(self, connection: Connection, request: ConnectRequest) -> list[Effect]:
        certificate, passwords = connection.certificate, self._passwords
        return self.engine.connect(
            connection.peer,
            request,
            self._now_ms(),
            connection.address[0],
            subject=subject_of(certificate) if certificate else "",
            sasl=None if passwords is None else DigestMd5Exchange(secrets.token_urlsafe(NONCE_BYTES), passwords),
        )

    def _look_whether_admitted(self, connection: Connection) -> None:
        _, connection.admitted = self.engine.admission(connection.peer)
        if connection.admitted:
            connection.deadline = None
            self._strangers.admitted(connection.session_id)

    def _execute(
        self, call: Callable[..., list[Effect]], *arguments: Any, connection: Connection | None = None
    ) -> None:
        if self.failure is not None:
            return
        try:
            effects = call(*arguments)
        except Exception as error:
            self._handle_engine_error(error, connection)
            return
        if effects:
            self._collect(effects)

    def _handle_engine_error(self, error: Exception, connection: Connection | None) -> None:
        """An engine that failed halfway is not trusted any more: the journal is."""
        committed = self._commits[-1][0] if self._commits else self._committed
        if connection is None or self.engine.zxid != committed:
            self._fail(error)
        else:
            connection.close_with_error(error)

    def _collect(self, effects: list[Effect]) -> None:
        """They wait for the end of the turn."""
        if not self._flushing:
            self._begin_turn()
        for effect in effects:
            if type(effect) is Commit:
                self._commits.append(effect)
            else:
                self._deliver(effect)  # type: ignore[arg-type]

    def _begin_turn(self) -> None:
        self._flushing = True
        self._turn_began = time.monotonic()
        if not self._at_once:
            self._loop.call_soon(self._flush)

    def _deliver(self, effect: Accepted | Reply | Notify | Drop) -> None:
        connection = self._peers.get(effect[0])
        if connection is None:
            return
        self._dirty[connection] = None
        if isinstance(effect, Drop):
            del self._peers[effect.peer]
            connection.close()
            return
        try:
            connection.send(framed_reply(*effect[1:]) if isinstance(effect, Reply) else frame_of(effect))
        except Exception as error:  # what cannot be said to this client is known all the same
            connection.close_with_error(error)

    def begin(self) -> None:
        """A piece of input is worked for, which end() follows. Where few clients are, no turn of the loop is waited
        for: there is little to collect, and an idle turn costs as much as a request."""
        self._at_once = len(self._connections) <= self._few

    def end(self) -> None:
        if self._at_once:
            self._at_once = False
            if self._flushing:
                self._flush()
        if self.moved > self._limits.held_bytes // LOOKS_PER_LIMIT:
            self._check_buffers()

    def _flush(self) -> None:
        """The commits are on disk, then the answers leave."""
        self._flushing = False
        if self.failure is not None:
            return
        commits, self._commits = self._commits, []
        dirty, self._dirty = self._dirty, {}
        try:
            if commits:
                self._journal.append(commits)
                self._committed = commits[-1][0]
            for connection in dirty:
                connection.flush()
            if self.failure is None and self._journal.wants_compaction:  # what is flushed is worked for again
                self._journal.compact(self.engine.snapshot())
            self.report.record_latency(time.monotonic() - self._turn_began)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Nothing that waits is sent any more; the server stops."""
        if self.failure is not None:
            return
        self.failure = error
        log.error("stopping: %s", error)
        self._stopped.set()
        for connection in tuple(self._connections):
            connection.abort()

    def _now_ms(self) -> int:
        return self._clock.advance_time(time.time_ns(), time.monotonic_ns())

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What went wrong with one connection, or with accepting one, is over; nothing else is passed over."""
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            self._fail(error)
        else:
            log.info("%s: %s", context.get("message"), error)
