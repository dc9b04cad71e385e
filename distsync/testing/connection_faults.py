"""Faults of the connections to one server, injected by the proxy in front of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect, encode_request
from distsync._wire.records import CloseSessionRequest, ConnectRequest
from distsync.errors import UsageError
from distsync.testing.faulty_proxy import Proxy

ANSWER_S = 10.0
"""Seconds after which a server on loopback that has not answered counts as paused or stopped."""


class FaultInjectable:
    """A server behind a proxy."""

    _proxy: Proxy | None = None

    @property
    def _faults(self) -> Proxy:
        if self._proxy is None:
            raise UsageError("the server was not started: use start() or a with block")
        return self._proxy

    @property
    def _frames(self) -> Proxy:
        if self._faults.sealed:
            raise UsageError("with tls=, only all connections can be broken at once")
        return self._faults

    @property
    def hosts(self) -> str:
        """Connect string for clients: ``127.0.0.1:PORT``, the port of the proxy."""
        return self._faults.hosts

    def drop_connection(self, session: object = None) -> None:
        """Break the connection of a session. Its client may reconnect at once.

        Args:
            session: A client of distsync or kazoo, or the id of a session; None breaks all
                connections.

        Raises:
            UsageError: The server was not started, the client has no session, or the connection
                is encrypted and a session was given.
        """
        if session is None:
            self._faults.cut()
        else:
            self._frames.cut(session_id(session))

    def drop_next_reply(self, opcode: int | None = None, session: object = None) -> threading.Event:
        """Lose the reply to the next request, and the connection with it. The request is executed.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            session: A client of distsync or kazoo, or the id of a session; None takes any.

        Returns:
            An event that is set when the reply has been lost.

        Raises:
            UsageError: The server was not started, the client has no session, or connections are
                encrypted.
        """
        return self._frames.drop_next_reply(opcode, None if session is None else session_id(session))

    def drop_next_request(self, opcode: int | None = None, session: object = None) -> threading.Event:
        """Lose the next request, and the connection with it. The request is not executed.

        Args:
            opcode: The kind of request, an ``OpCode``; None takes any.
            session: A client of distsync or kazoo, or the id of a session; None takes any.

        Returns:
            An event that is set when the request has been lost.

        Raises:
            UsageError: The server was not started, the client has no session, or connections are
                encrypted.
        """
        return self._frames.drop_next_request(opcode, None if session is None else session_id(session))

    def refuse_connections(self) -> None:
        """Break all connections, and refuse new ones, until the server is healed."""
        self._faults.refuse()

    def silence(self) -> None:
        """Hold back all messages in both directions until the server is healed. Connections stay."""
        self._faults.blackhole()

    def delay(self, seconds: float) -> None:
        """Delay all messages between clients and the server.

        Args:
            seconds: Delay of each message, in seconds; 0 ends the delay.
        """
        self._faults.delay(seconds)


def session_id(session: object) -> int:
    """Return the session id of a client of distsync or kazoo, or the id itself."""
    if isinstance(session, int):
        return session
    id = getattr(session, "session_id", None) or (getattr(session, "client_id", None) or (0,))[0]
    if not isinstance(id, int) or id == 0:
        raise UsageError(f"{session!r} has no session: it gets one with its first request")
    return id


def say(address: tuple[str, int], sent: bytes, timeout: float = ANSWER_S) -> bytes:
    """Send bytes, and return everything that the server answers until it closes the connection."""
    with socket.create_connection(address, timeout=timeout) as sock:
        sock.sendall(sent)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def end_session(address: tuple[str, int], proxies: Iterable[Proxy], id: int) -> None:
    """End a session that was made over one of the proxies, as if it had timed out."""
    session = next(filter(None, (proxy.session(id) for proxy in proxies)), None)
    if session is None:
        raise UsageError(f"session 0x{id:x} was not made over these hosts")
    hello = ConnectRequest(timeout_ms=session.timeout_ms, session_id=id, password=session.password)
    say(address, framed(encode_connect(hello)) + framed(encode_request(0, CloseSessionRequest())))
