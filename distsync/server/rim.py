"""The rim: sockets around the engine. Bytes come in, the engine is stepped, its effects go to the disk and out.

Rules for this file: it and connection.py alone know asyncio. It decides nothing about znodes or sessions.

One turn of the loop reads what all connections have sent and steps the engine through it. Then, once, all commits of
the turn become durable in one transaction, and only then do the turn's answers leave, those of reads too: a read may
show what is not yet on disk. When the disk refuses, no answer leaves and the server stops: what the engine then knows
beyond the journal was told to nobody, and the next start reads the journal.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from distsync.server.address import NONCE_BYTES, PROVE, prove
from distsync.server.connection import Connection
from distsync.server.effects import Accepted, Commit, Drop, Effect, Notify, Reply
from distsync.server.engine import Engine
from distsync.server.journal import Journal
from distsync.server.words import Figures, Link, answer_to
from distsync.wire.codec import decode_connect, decode_request, encode_connect_response, encode_event, encode_reply
from distsync.wire.frames import WireError
from distsync.wire.records import ConnectRequest

log = logging.getLogger("distsync.server")

HANDSHAKE_SECONDS = 10.0
"""A connection that has said nothing sensible by then is closed."""

HEARTBEAT_SECONDS = 0.2
"""Shorter than the engine's tick, so that an idle loop does not look like a pause."""


class Rim:
    """One running server."""

    def __init__(
        self, engine: Engine, journal: Journal, *, secret: str | None = None, idle_exit: float | None = None
    ) -> None:
        self.engine = engine
        self._journal = journal
        self._secret = secret
        self._idle_exit = idle_exit
        self._connections: set[Connection] = set()
        self._peers: dict[int, Connection] = {}  # those that the engine knows
        self._last_peer = 0
        self._commits: list[tuple[int, bytes]] = []
        self._dirty: dict[Connection, None] = {}  # those with something to send, in order
        self._flushing = False
        self._failure: Exception | None = None
        self._port = 0
        self._started = self._last_busy = time.monotonic()
        self._received = self._sent = 0  # packets of connections that are gone

    def run(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        """Serves on ``listening`` until a signal or idleness stops it; calls ``ready`` when it does serve.

        Raises what the journal raised when that is the reason to stop."""
        self._port = listening.getsockname()[1]
        _run(self._serve(listening, ready))
        if self._failure is not None:
            raise self._failure

    async def _serve(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        if threading.current_thread() is threading.main_thread():  # others cannot have signals
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._stopped.set)
        server = await self._loop.create_server(lambda: Connection(self), sock=listening)
        self._beat()
        ready()
        await self._stopped.wait()
        server.close()
        self._flush()
        for farewell in (Connection.close, Connection.abort):
            for connection in tuple(self._connections):
                farewell(connection)
            await asyncio.sleep(0)

    def stop(self) -> None:
        """It ends in good order. From any thread, once it serves."""
        self.interrupt(self._stopped.set)

    def interrupt(self, function: Callable[[], object]) -> None:
        """``function()`` is called between two turns of the loop, which waits for it. From any thread."""
        self._loop.call_soon_threadsafe(function)

    def _beat(self) -> None:
        """Time passes: sessions expire, strangers are shown out, an idle server stops."""
        now_ms = _now_ms()
        self._carry_out(self.engine.advance, now_ms)
        self._look_for_strangers()
        self._look_for_idleness()
        due = self.engine.next_tick()
        delay = HEARTBEAT_SECONDS if due is None else (due - now_ms) / 1000
        self._loop.call_later(min(max(delay, 0.001), HEARTBEAT_SECONDS), self._beat)

    def _look_for_strangers(self) -> None:
        latest = time.monotonic() - HANDSHAKE_SECONDS
        for connection in tuple(self._connections):
            if not connection.greeted and connection.since < latest:
                connection.break_off("no handshake")

    def _look_for_idleness(self) -> None:
        now = time.monotonic()
        if self._connections or self.engine.sessions:
            self._last_busy = now
        elif self._idle_exit is not None and now - self._last_busy >= self._idle_exit:
            log.info("no sessions for %.0f s: stopping", self._idle_exit)
            self._stopped.set()

    def add(self, connection: Connection) -> None:
        """A number of its own for each connection."""
        self._last_peer += 1
        connection.peer = self._last_peer
        self._connections.add(connection)
        self._last_busy = time.monotonic()

    def remove(self, connection: Connection) -> None:
        """The connection is gone; the engine hears of it unless it had dropped it itself."""
        self._connections.discard(connection)
        self._received += connection.received
        self._sent += connection.sent
        if self._peers.pop(connection.peer, None) is not None:
            self._carry_out(self.engine.hang_up, connection.peer, _now_ms())

    def handle(self, connection: Connection, frame: bytes) -> None:
        """One frame of a client is worked for."""
        try:
            if connection.greeted:
                xid, request = decode_request(frame)
                self._carry_out(self.engine.step, connection.peer, xid, request, _now_ms())
            else:
                self._greet(connection, decode_connect(frame))
        except WireError as error:
            connection.break_off(error)

    def _greet(self, connection: Connection, request: ConnectRequest) -> None:
        connection.greeted = True
        self._peers[connection.peer] = connection
        host = connection.address[0]
        self._carry_out(self.engine.connect, connection.peer, request, _now_ms(), host)

    def _carry_out(self, move: Callable[..., list[Effect]], *arguments: Any) -> None:
        """An engine that failed halfway is not trusted any more: the journal is."""
        if self._failure is not None:
            return
        try:
            for effect in move(*arguments):
                self._perform(effect)
        except Exception as error:
            self._fail(error)

    def _perform(self, effect: Effect) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if isinstance(effect, Commit):
            self._commits.append((effect.zxid, effect.payload))
            return
        connection = self._peers.get(effect.peer)
        if connection is None:
            return
        self._dirty[connection] = None
        if isinstance(effect, Drop):
            del self._peers[effect.peer]
            connection.close()
        else:
            connection.send(_encode(effect))

    def _flush(self) -> None:
        """The commits are on disk, then the answers leave."""
        self._flushing = False
        if self._failure is not None:
            return
        commits, self._commits = self._commits, []
        dirty, self._dirty = self._dirty, {}
        try:
            if commits:
                self._journal.append(commits)
            for connection in dirty:
                connection.flush()
            if self._journal.wants_compaction:
                self._journal.compact(self.engine.snapshot())
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Nothing that waits is sent any more; the server stops."""
        self._failure = self._failure or error
        self._stopped.set()
        for connection in tuple(self._connections):
            connection.break_off("the server failed")

    def answer(self, head: bytes) -> bytes | None:
        """To a four-letter word at the start of a connection. None: it is none; empty: it is not complete."""
        if head.startswith(PROVE) and self._secret is not None:
            nonce = head[len(PROVE) :]
            return prove(self._secret, nonce, self._port) if len(nonce) >= NONCE_BYTES else b""
        text = answer_to(head[:4], self.figures)
        return None if text is None else text.encode()

    def figures(self) -> Figures:
        """What there is to tell at this moment."""
        config, told = self.engine.config, self.engine.statistics(_now_ms())
        links = tuple(Link(*one.address, one.received, one.sent, one.queued) for one in self._connections)
        return Figures(
            port=self._port,
            data_dir=str(self._journal.path.parent),
            zxid=told.zxid,
            nodes=told.znodes,
            watches=told.watches,
            ephemerals=told.ephemerals,
            data_bytes=told.data_bytes,
            sessions=told.sessions,
            received=self._received + sum(link.received for link in links),
            sent=self._sent + sum(link.sent for link in links),
            uptime_ms=int((time.monotonic() - self._started) * 1000),
            tick_ms=config.tick_time_ms,
            min_timeout_ms=config.min_session_timeout_ms,
            max_timeout_ms=config.max_session_timeout_ms,
            links=links,
        )


def _now_ms() -> int:
    """The wall's clock: the engine copes with its leaps in both directions."""
    return time.time_ns() // 1_000_000


def _encode(effect: Accepted | Reply | Notify) -> bytes:
    if isinstance(effect, Accepted):
        return encode_connect_response(effect.response)
    if isinstance(effect, Reply):
        return encode_reply(effect.xid, effect.zxid, effect.err, effect.body)
    return encode_event(effect.zxid, effect.event)


def _run(work: Coroutine[Any, Any, None]) -> None:
    loop = _new_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
