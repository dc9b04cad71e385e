"""A TCP proxy between clients and a ZooKeeper server that injects faults.

It parses frames only as far as it must to match replies to requests. It imports nothing but the
standard library and _wire/.
"""

from __future__ import annotations

import contextlib
import enum
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from distsync._wire.codes import OpCode
from distsync._wire.frames import FrameSplitter, framed
from distsync._wire.message_codec import decode_connect_response
from distsync._wire.records import ConnectResponse

LOOPBACK = "127.0.0.1"
LARGEST_FRAME = 1 << 26
RECV_BYTES = 1 << 16
NO_SESSION = ConnectResponse(0, 0, 0, None)

_HEAD = struct.Struct(">ii")
_XID = struct.Struct(">i")


class ProxyMode(enum.Enum):
    """What the proxy does with what it receives."""

    PASSED = "passed on"
    REFUSED = "refused, and hung up on"
    HELD = "held back until it heals"


class _DropRule:
    """Rule that drops one request or its reply, and breaks the connection.

    ``opcode`` and ``session_id`` select the request; None takes any. ``before`` is True to drop the
    request, and False to drop the reply.
    """

    def __init__(self, opcode: int | None, session_id: int | None, *, before: bool) -> None:
        self.opcode = opcode
        self.session_id = session_id
        self.before = before
        self.triggered = threading.Event()

    def matches(self, opcode: int, session_id: int, *, before: bool) -> bool:
        wanted = self.opcode in (None, opcode) and self.session_id in (None, session_id)
        if self.before != before or not wanted or opcode in (OpCode.PING, OpCode.AUTH):
            return False
        self.triggered.set()
        return True


class _Pair:
    """A client's connection, and the proxy's connection to the server for it."""

    def __init__(self, client: socket.socket, server: socket.socket, sealed: bool) -> None:
        self.client, self.server = client, server
        self._requests, self._replies = FrameSplitter(LARGEST_FRAME), FrameSplitter(LARGEST_FRAME)
        self._handshake_seen = [False, False]
        self._is_unframed: bool | None = True if sealed else None
        """Whether bytes are forwarded unparsed: if encrypted, or if they begin with a letter, as only
        four-letter words do. None before the first byte.
        """
        self._opcodes: dict[int, int] = {}
        self.session = NO_SESSION
        self.ended: set[socket.socket] = set()

    def take(self, source: socket.socket) -> bytes:
        """Return what has arrived at ``source``; empty at its end."""
        try:
            data = source.recv(RECV_BYTES)
        except OSError:
            data = b""
        if not data:
            self.ended.add(source)
        return data

    def forward(self, source: socket.socket, data: bytes, drop_rule: _DropRule | None) -> bool:
        """Pass on what has arrived at ``source``. Return whether the connection continues."""
        to_server = source is self.client
        if self._is_unframed is None:
            self._is_unframed = data[:1].isalpha()
        if self._is_unframed:
            (self.server if to_server else self.client).sendall(data)
            return bool(data)
        for frame in (self._requests if to_server else self._replies).feed(data):
            if self._is_dropped(frame, to_server, drop_rule):
                return False
            (self.server if to_server else self.client).sendall(framed(frame))
        return bool(data)

    def _is_dropped(self, frame: bytes, to_server: bool, drop_rule: _DropRule | None) -> bool:
        """Return whether the rule drops this frame.

        The first frame of each direction is the handshake. Each other frame has an xid, and
        requests also have an opcode.
        """
        if not self._handshake_seen[to_server]:
            self._handshake_seen[to_server] = True
            if not to_server:
                with contextlib.suppress(struct.error):  # a read-only server may refuse a session by another reply
                    self.session = decode_connect_response(frame)
            return False
        if to_server:
            xid, opcode = _HEAD.unpack_from(frame)
            self._opcodes[xid] = opcode
        else:
            found = self._opcodes.pop(_XID.unpack_from(frame)[0], None)
            if found is None:
                return False
            opcode = found
        return drop_rule is not None and drop_rule.matches(opcode, self.session.session_id, before=to_server)

    def close(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class _DelayedBytes(NamedTuple):
    """Bytes received from ``source``, and when to pass them on."""

    due: float
    pair: _Pair
    source: socket.socket
    data: bytes


class Proxy:
    """A proxy on a free port of loopback that passes everything on until a fault is injected.

    It runs in a thread of its own from its creation until ``close()``. ``connections`` is the
    number of connections that it has accepted so far.

    Args:
        upstream: Address of the server, ``"host:port"``.
        sealed: Whether connections are encrypted, so that the proxy cannot tell requests, replies
            and sessions apart.

    Example:
        >>> proxy = Proxy("127.0.0.1:2181")                          # doctest: +SKIP
        >>> client = distsync.connect(proxy.hosts)                   # doctest: +SKIP
        >>> proxy.drop_next_reply(OpCode.CREATE2)                    # doctest: +SKIP
    """

    __module__ = "distsync.testing"

    def __init__(self, upstream: str, *, sealed: bool = False) -> None:
        self.sealed = sealed
        host, _, port = upstream.rpartition(":")
        self._upstream = (host.strip("[]"), int(port))
        self._listener = socket.create_server((LOOPBACK, 0))
        self._wake_read, self._wake_write = socket.socketpair()
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._sessions: dict[int, ConnectResponse] = {}
        self._mode = ProxyMode.PASSED
        self._drop_rule: _DropRule | None = None
        self._delay = 0.0
        self._delayed: deque[_DelayedBytes] = deque()
        self._closed = False
        self.connections = 0
        self._thread = threading.Thread(target=self._run, name="distsync-proxy", daemon=True)
        self._thread.start()

    @property
    def hosts(self) -> str:
        """Connect string for clients: the address of the proxy."""
        return f"{LOOPBACK}:{self._listener.getsockname()[1]}"

    def session(self, session_id: int) -> ConnectResponse | None:
        """Return the server's reply to the handshake of a session.

        Args:
            session_id: Id of the session.

        Returns:
            The reply, including the session's password; None if the session was not made over this
            proxy.
        """
        with self._lock:
            return self._sessions.get(session_id)

    def sessions(self) -> list[int]:
        """Return the ids of all sessions that were made over this proxy.

        Returns:
            The ids, the latest last.
        """
        with self._lock:
            return list(self._sessions)

    def cut(self, session_id: int | None = None) -> None:
        """Break connections. Clients may reconnect at once.

        Args:
            session_id: Id of the session whose connections to break; None breaks all.
        """
        with self._lock:
            broken = [pair for pair in self._pairs if session_id in (None, pair.session.session_id)]
            for pair in broken:
                self._pairs.remove(pair)
                pair.close()
        self._wake()

    def refuse(self) -> None:
        """Break all connections, and close new ones at once, until ``heal()``."""
        self._set_mode(ProxyMode.REFUSED)
        self.cut()

    def blackhole(self) -> None:
        """Hold back all messages in both directions until ``heal()``, which delivers them.

        Connections stay open.
        """
        self._set_mode(ProxyMode.HELD)

    def delay(self, seconds: float) -> None:
        """Delay all messages in both directions. Their order is kept.

        Args:
            seconds: Delay of each message, in seconds; 0 ends the delay.
        """
        self._delay = seconds
        self._wake()

    def heal(self) -> None:
        """Pass everything on again, without a delay. Drops that were requested stay pending."""
        self._delay = 0.0
        self._set_mode(ProxyMode.PASSED)

    def disarm(self) -> None:
        """Cancel a pending ``drop_next_reply`` or ``drop_next_request``."""
        self._drop_rule = None

    def drop_next_reply(self, opcode: int | None = None, session_id: int | None = None) -> threading.Event:
        """Lose the reply to the next request, and the connection with it. The request is executed.

        Pings and authentication are not counted. This replaces an earlier drop that is still
        pending.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            session_id: Id of the session that sends the request; None takes any.

        Returns:
            An event that is set when the reply has been lost.
        """
        return self._set_drop_rule(_DropRule(opcode, session_id, before=False))

    def drop_next_request(self, opcode: int | None = None, session_id: int | None = None) -> threading.Event:
        """Lose the next request, and the connection with it. The request is not executed.

        Pings and authentication are not counted. This replaces an earlier drop that is still
        pending.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            session_id: Id of the session that sends the request; None takes any.

        Returns:
            An event that is set when the request has been lost.
        """
        return self._set_drop_rule(_DropRule(opcode, session_id, before=True))

    def close(self) -> None:
        """Break all connections, and stop the proxy."""
        self._closed = True
        self._wake()
        self._thread.join()
        self.cut()
        for one in (self._listener, self._wake_read, self._wake_write):
            one.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set_mode(self, mode: ProxyMode) -> None:
        self._mode = mode
        self._wake()

    def _set_drop_rule(self, drop_rule: _DropRule) -> threading.Event:
        self._drop_rule = drop_rule
        return drop_rule.triggered

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    # ---- proxy thread

    def _run(self) -> None:
        while not self._closed:
            for source in self._readable():
                if source is self._wake_read:
                    source.recv(RECV_BYTES)
                elif source is self._listener:
                    self._accept()
                else:
                    self._serve(source)
            self._deliver()

    def _readable(self) -> list[socket.socket]:
        """Return the sockets that can be read now and may be read in this mode."""
        timeout = 1.0
        with self._lock:
            sources = [self._wake_read]
            if self._mode is not ProxyMode.HELD:
                sources += [self._listener, *self._ends()]
                if self._delayed:
                    timeout = min(timeout, max(0.0, self._delayed[0].due - time.monotonic()))
        try:
            return select.select(sources, [], [], timeout)[0]
        except (OSError, ValueError):  # a socket was closed since
            return []

    def _ends(self) -> Iterator[socket.socket]:
        for pair in self._pairs:
            yield from (end for end in (pair.client, pair.server) if end not in pair.ended)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._mode is ProxyMode.REFUSED:
            client.close()
            return
        try:
            server = socket.create_connection(self._upstream, timeout=5.0)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self.connections += 1
            self._pairs.append(_Pair(client, server, self.sealed))

    def _serve(self, source: socket.socket) -> None:
        with self._lock:
            pair = next((pair for pair in self._pairs if source in (pair.client, pair.server)), None)
            if pair is None or self._mode is ProxyMode.HELD:
                return
            due = max(time.monotonic() + self._delay, self._delayed[-1].due if self._delayed else 0.0)
            self._delayed.append(_DelayedBytes(due, pair, source, pair.take(source)))

    def _deliver(self) -> None:
        """Pass on what is due, in the order of its arrival."""
        with self._lock:
            while self._delayed and self._mode is not ProxyMode.HELD and self._delayed[0].due <= time.monotonic():
                self._forward_delayed(self._delayed.popleft())

    def _forward_delayed(self, delayed: _DelayedBytes) -> None:
        pair = delayed.pair
        if pair not in self._pairs:
            return
        if not self._forwards(pair, delayed.source, delayed.data):
            self._pairs.remove(pair)
            pair.close()
        elif pair.session.session_id:
            self._sessions[pair.session.session_id] = pair.session

    def _forwards(self, pair: _Pair, source: socket.socket, data: bytes) -> bool:
        drop_rule = self._drop_rule
        try:
            is_open = pair.forward(source, data, drop_rule)
        except (OSError, ValueError):
            is_open = False
        if drop_rule is not None and drop_rule.triggered.is_set():
            self._drop_rule = None
        return is_open
