"""What can happen to the connections of clients to one server: shared by EmbeddedServer and the servers of an Ensemble.

Rules for this file: a name for each fault; the proxy before the server does it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from distsync._wire.codec import encode_connect, encode_request
from distsync._wire.frames import framed
from distsync._wire.records import CloseSessionRequest, ConnectRequest
from distsync.errors import UsageError
from distsync.testing.faulty_proxy import Proxy

ANSWER_S = 10.0
"""A server on loopback that has not answered by then is paused, or dead."""


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
            raise UsageError("what is encrypted cannot be told apart: with tls= only all connections can be broken")
        return self._faults

    @property
    def hosts(self) -> str:
        """What clients connect to: ``127.0.0.1:PORT``."""
        return self._faults.hosts

    def drop_connection(self, session: object = None) -> None:
        """The connection of that session is broken (None: those of all); its client may connect again at once."""
        if session is None:
            self._faults.cut()
        else:
            self._frames.cut(session_id(session))

    def drop_next_reply(self, opcode: int | None = None, session: object = None) -> threading.Event:
        """The next request of that session (None: of any) and of that kind, an `OpCode` (None: any), will be
        executed; its reply is lost, and the connection with it.

        Returns: an event that is set when it has happened."""
        return self._frames.drop_next_reply(opcode, None if session is None else session_id(session))

    def drop_next_request(self, opcode: int | None = None, session: object = None) -> threading.Event:
        """As `drop_next_reply`, but the request is not executed."""
        return self._frames.drop_next_request(opcode, None if session is None else session_id(session))

    def refuse_connections(self) -> None:
        """Every connection is broken, and new ones are hung up on, until the server is healed."""
        self._faults.refuse()

    def silence(self) -> None:
        """Connections stay, and nothing gets through in either direction, until the server is healed: then it comes
        late."""
        self._faults.blackhole()

    def delay(self, seconds: float) -> None:
        """All that clients and the server say to each other comes so much later (0: at once)."""
        self._faults.delay(seconds)


def session_id(session: object) -> int:
    """Of a distsync client, of a kazoo client (which has ``client_id``, id and password), or the id itself."""
    if isinstance(session, int):
        return session
    id = getattr(session, "session_id", None) or (getattr(session, "client_id", None) or (0,))[0]
    if not isinstance(id, int) or id == 0:
        raise UsageError(f"{session!r} has no session: it gets one with its first request")
    return id


def say(address: tuple[str, int], sent: bytes, timeout: float = ANSWER_S) -> bytes:
    """All that the server answers until it closes the connection. Raises: OSError."""
    with socket.create_connection(address, timeout=timeout) as link:
        link.sendall(sent)
        return b"".join(iter(lambda: link.recv(1 << 16), b""))


def end_session(address: tuple[str, int], proxies: Iterable[Proxy], id: int) -> None:
    """The session is over, as if it had timed out. ``proxies``: those through which its client came, perhaps."""
    session = next(filter(None, (proxy.session(id) for proxy in proxies)), None)
    if session is None:
        raise UsageError(f"session 0x{id:x} was not made over these hosts")
    hello = ConnectRequest(timeout_ms=session.timeout_ms, session_id=id, password=session.password)
    say(address, framed(encode_connect(hello)) + framed(encode_request(0, CloseSessionRequest())))
