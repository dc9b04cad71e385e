"""kazoo's connection, in the few places where we need it otherwise. Works with kazoo 2.8, 2.9 and 2.11.

Rules for this file: the only one that overrides kazoo's insides; it knows nothing of steps.

How it reads and writes is a matter of fast_io.py, unless that is switched off.

* kazoo runs callbacks in two further threads. Ours only fire signals and fill mailboxes, so they run in the
  connection thread, and a wake-up is one thread switch shorter.
* kazoo sends one request for each byte that it reads from its wake-up socket, and writes that byte with a send that
  blocks once some 280 are waiting, for as long as there is no connection. Here a wake-up sends all that is queued,
  in one write, and the byte is written without blocking.
* kazoo makes a poller for each write, although the socket nearly always has room.
* kazoo's thread ends at an answer that makes no sense, or an error number that it does not know.
* A server that throttles has its connection broken, and is asked anew.
* kazoo keeps the negotiated time-out to itself, and reports a connection before it has authenticated.
* kazoo's ``stop`` waits without bound.
* kazoo's TLS trusts more than it should (tls.py).
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  a thread that looks up a host imports it: a fork meanwhile would leave half of it
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped, SASLException, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import connection as kazoo
from kazoo.protocol.serialization import SASL, Auth, CloseInstance, Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from distsync._client import tls
from distsync._client.own_threads import OwnThread
from distsync._client.settings import Settings
from distsync._client.transport import fast_io
from distsync._client.transport.kazoo_errors import unknown_error
from distsync._client.transport.pending_replies import PendingReply
from distsync.errors import PayloadTooLargeError

#: The longest that one attempt to reach one host may take (seconds). Less than the 2 s in which a client closes;
#: more than the second after which a lost SYN is sent again.
ATTEMPT_S = 1.5

#: How soon a lost connection is tried again (seconds), and how slow the attempts become: a herd of clients must not
#: hammer a server that restarts, but none should be late by more than its users notice.
RETRY_S, SLOWEST_RETRY_S = 0.05, 0.5

#: So often in a row a server may hang up on our SASL handshake before the credentials are taken to be wrong.
SASL_REFUSALS = 3

#: At most so many bytes of requests go out before answers are read again.
WRITE_BYTES = 256 * 1024

#: A server hangs up on a longer request (jute.maxbuffer), and would again each time that it is sent anew.
REQUEST_BYTES = 0xFFFFF

#: Of a server that serves nobody who has not proved who he is by a scheme of its choice; kazoo does not know it.
AUTHENTICATION_REQUIRED = -124

#: Of a server that has too much to do, and has not done this (THROTTLED_OP). kazoo before 2.10 does not know it.
THROTTLED = -127

#: The head of a request: length of what follows, xid, opcode.
FRAME = struct.Struct("!iii")

#: What comes of a connection that a server takes, and then hangs up; perhaps before we know that it was taken.
HANG_UPS = (ConnectionDropped, ConnectionResetError, BrokenPipeError)
SERVER_CLOSED = (
    ": it hung up, as a server does that has as many connections of this address as it takes (maxClientCnxns), that is "
    "about to start or to stop, or that expects TLS"
)

logger = logging.getLogger("distsync.client.kazoo")


#: Requests whose reprs tell secrets.
SECRETS = (Auth, Connect, SASL)


def _tells_no_secret(record: logging.LogRecord) -> bool:
    """kazoo logs credentials and session passwords at its two most talkative levels."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return "passwd" not in str(record.msg) and not any(isinstance(one, SECRETS) for one in arguments)


logger.addFilter(_tells_no_secret)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its worker threads."""

    wire: fast_io.FastWire | None = None
    """Who waits in his own way."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[OwnThread] = []

    def spawn(self, func: Any, *args: Any, **kwargs: Any) -> OwnThread:
        """As kazoo's, but the thread is known before it begins: a finalizer may run in its first line."""
        thread = OwnThread(target=func, args=args, kwargs=kwargs, daemon=True)
        self.spawned = [one for one in self.spawned if one.is_alive()] + [thread]
        thread.start()
        return thread

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(self, reads: Any, writes: Any, others: Any, timeout: float | None = None) -> Any:
        if self.wire is None or others or (reads and writes):
            return super().select(reads, writes, others, timeout)
        if reads and timeout is not None:
            return self.wire.wait(reads, timeout)
        return fast_io.ready(reads, writes, timeout)

    host = ""
    """Whom the next connection is meant for; kazoo 2.8 tells the address only."""

    def create_connection(self, address: tuple[str, int], *args: Any, **options: Any) -> Any:
        seconds = options["timeout"] = min(options.get("timeout") or ATTEMPT_S, ATTEMPT_S)
        if not options.get("use_ssl"):
            return super().create_connection(address, *args, **options)
        ca, certificate, key, password = map(options.get, ("ca", "certfile", "keyfile", "keyfile_password"))
        context = tls.context_of(ca, certificate, key, password, options.get("verify_certs", True))
        return tls.connect(address, self.host, context, seconds)


class KazooConnection(kazoo.ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection thread."""

    refusals = 0
    """Times in a row that a server hung up on our handshake."""

    problem = ""
    """Why the last attempt to connect failed."""

    sasl_refusals = 0
    """Times in a row that a server hung up when we said who we are."""

    _xid: int

    lock: Any
    """Of the client: that of its requests."""

    abandoned = False
    """Nobody waits for its thread any more, which closes what is left."""

    def start(self) -> None:
        super().start()
        self._write_sock.setblocking(False)

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        finally:
            if self.abandoned:
                self.close()

    def wake(self) -> None:
        """The connection thread looks at the queue. A full pipe wakes it as well."""
        with contextlib.suppress(BlockingIOError):
            self._write_sock.send(b"\0")

    def send(self) -> None:
        """What is queued is sent. Any thread; never waits."""
        self.wake()

    def read_for(self, replies: Sequence[PendingReply], seconds: float) -> None:
        """In a thread that is about to wait so long for these answers: it may read them itself."""

    def listen(self) -> None:
        """In a thread that is about to wait for something else."""

    def stop_reading(self) -> None:
        """In a thread that was interrupted."""

    def broken(self) -> None:
        """In the connection thread, before anybody is told that the connection went."""

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self.client.on_attempt(host, port)
        self.handler.host = host
        try:
            timeouts = super()._connect(host, hostip, port)
        except Exception as error:
            self.refusals += self._socket is not None
            problem = error.__context__ or error  # kazoo tells a part of it
            self.problem = f"{host}:{port}: {problem}{SERVER_CLOSED if isinstance(problem, HANG_UPS) else ''}"
            raise
        self.refusals, self.problem = 0, ""
        # kazoo's read time-out is two thirds of what was negotiated, in ms.
        self.client.on_session(self.client._session_id, round(timeouts[0] * 1.5))
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """A server hangs up on a wrong password, and kazoo then never tries again; but a server that is just stopping
        hangs up as well."""
        try:
            super()._authenticate_with_sasl(host, timeout)
        except (ZookeeperError, SASLException, RuntimeError) as error:  # the last for a code that kazoo does not know
            self.sasl_refusals += 1
            if self.sasl_refusals < SASL_REFUSALS and isinstance(error.__cause__, ConnectionDropped):
                raise ConnectionDropped("hung up at the SASL handshake") from error
            raise AuthFailedError(f"SASL: {error}") from error
        self.sasl_refusals = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """kazoo waits for the answer to a handshake until the session is over; a server that was just starting may
        never give it, and would at the next attempt."""
        return super()._invoke(max(timeout / 4, min(timeout, ATTEMPT_S)), request, xid)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(4096)
        frames = bytearray()
        queue = self.client._queue
        while queue and len(frames) < WRITE_BYTES:
            request, reply = queue.popleft()
            xid = self._xid % 2147483647 + 1
            frame = self._frame(request, reply, xid)
            if frame:
                self._xid = xid
                self.client._pending.append((request, reply, xid))
            frames += frame
        if queue:
            self.wake()
        if frames:
            self._write(frames, connect_timeout)

    def _frame(self, request: Any, reply: Any, xid: int) -> bytes:
        """The request's bytes. One that no server takes is answered here, and has none."""
        try:
            body = request.serialize()
        except Exception as error:  # a wrong type somewhere in it
            reply.set_exception(error)
            return b""
        if len(body) + 8 > REQUEST_BYTES:
            reply.set_exception(PayloadTooLargeError("a request", len(body) + 8, REQUEST_BYTES))
            return b""
        return FRAME.pack(len(body) + 8, xid, request.type) + bytes(body)

    def _read_socket(self, read_timeout: float) -> Any:
        try:
            return super()._read_socket(read_timeout)
        except RuntimeError as error:
            raise ConnectionDropped(f"the server's answer makes no sense: {error}") from error

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        if header.err == AUTHENTICATION_REQUIRED:
            raise AuthFailedError("the server wants to know by another scheme who this is")
        if header.err == THROTTLED:
            # What was asked behind it may be done, and a sync that begins a connection may be what was not: only all
            # of it anew, in a while and perhaps by another server, is what was meant.
            raise ConnectionDropped("the server has too much to do, and wants to be asked later")
        if header.err and header.err not in EXCEPTIONS:
            _, reply, _ = self.client._pending.popleft()
            reply.set_exception(unknown_error(header.err))
            return None
        return super()._read_response(header, buffer, offset)

    def _write(self, message: bytes | bytearray, timeout: float) -> None:
        """What the socket takes at once is not waited for."""
        with self._socket_error_handling():
            try:
                sent = self._socket.send(message)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
        if sent < len(message):
            super()._write(message[sent:], timeout)

    def shutdown_socket(self) -> None:
        """Whatever the connection thread waits for on its socket, it waits no more."""
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def after_fork_in_child(self) -> None:
        """In a forked child: our copies of the parent's sockets are closed, which the parent does not notice."""
        for one in (self._socket, self._read_sock, self._write_sock):
            with contextlib.suppress(OSError, AttributeError, ValueError):
                one.close()


class FastKazooConnection(fast_io.FastWire, KazooConnection):
    """The same with a wire of its own."""


def connection_class(fast_wire: bool) -> type[KazooConnection]:
    """Who connects: kazoo, where the fast wire is switched off or does not know this kazoo."""
    unknown = fast_io.incompatibility() if fast_wire else "it is switched off"
    if unknown:
        logger.info("fast I/O disabled, using kazoo's: %s", unknown)
    return KazooConnection if unknown else FastKazooConnection


class Kazoo(KazooClient):  # type: ignore[misc]
    """A kazoo client that is told requests, and tells its sessions. ``lock`` is had by who asks."""

    _connection: KazooConnection

    def __init__(
        self,
        on_attempt: Callable[[str, int], None],
        on_session: Callable[[int, int], None],
        lock: Any = None,
        fast_wire: bool = True,
        on_own_answer: Callable[[PendingReply, Any, BaseException | None], bool] = lambda reply, response, error: False,
        **options: Any,
    ) -> None:
        kind = connection_class(fast_wire)
        handler = Handler()
        retry = KazooRetry(max_tries=-1, delay=RETRY_S, backoff=2, max_delay=SLOWEST_RETRY_S)
        super().__init__(
            handler=handler, read_only=False, connection_retry=retry, command_retry=retry, logger=logger, **options
        )
        self.on_attempt = on_attempt
        self.on_session = on_session
        self.on_own_answer = on_own_answer
        sleeper, sasl = self._connection.retry_sleeper, self._connection.sasl_options
        self._connection = kind(self, sleeper, logger=logger, sasl_options=sasl)
        self._connection.lock = lock or threading.RLock()
        if isinstance(self._connection, FastKazooConnection):
            handler.wire = self._connection

    def enqueue(self, *requests: tuple[Any, Any]) -> None:
        """They will be sent, in this order; of each one's reply ``set`` or ``set_exception`` is called, in the
        connection thread, or here if it cannot be sent at all; or ``on_own_answer``, in a thread that waits for it."""
        self._queue.extend(requests)
        self._connection.send()

    def read_replies(self, replies: Sequence[PendingReply], seconds: float) -> None:
        """The calling thread is about to wait so long, for these answers, or for something else if there are none."""
        if replies:
            self._connection.read_for(replies, seconds)
        else:
            self._connection.listen()

    def stop_reading(self) -> None:
        """The calling thread was interrupted."""
        self._connection.stop_reading()

    def enqueue_first(self, request: Any, reply: Any) -> None:
        """As enqueue, before all that waits: what was asked while the connection broke may be in the queue still."""
        self._queue.appendleft((request, reply))
        self._connection.wake()

    def _session_callback(self, state: Any) -> None:
        if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._connection.broken()
        super()._session_callback(state)

    @property
    def is_dead(self) -> bool:
        """Whether the connection thread ended, which it should not."""
        thread = self._connection._connection_routine
        return thread is None or not thread.is_alive()

    def is_current_thread(self) -> bool:
        return any(thread.is_current() for thread in self.handler.spawned)

    @property
    def refusals(self) -> int:
        return int(self._connection.refusals)

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed."""
        return str(self._connection.problem)

    def end(self, seconds: float, *, flush: bool = True) -> None:
        """The session is closed, if a server can still be told within half of ``seconds`` (also one that is just
        being connected to); thread and sockets are gone."""
        connection = self._connection
        flush = flush and not connection.connection_closed.is_set()  # else it has ended, or never began
        if flush and not self._stopped.is_set():
            self._live.wait(seconds / 4)  # it may be coming back just now
        self._stopped.set()
        if flush:
            with contextlib.suppress(OSError, AttributeError):  # somebody else ends it as well, and has come further
                self.enqueue((CloseInstance, None))
            connection.connection_stopped.wait(seconds / 2)
        connection.shutdown_socket()
        with contextlib.suppress(OSError, AttributeError):
            connection.wake()
        thread = connection._connection_routine
        if thread is not None:
            thread.join(seconds / 2)
        connection.abandoned = True
        if connection.connection_stopped.is_set():
            connection.close()

    def after_fork_in_child(self) -> None:
        """In a forked child."""
        self._connection.after_fork_in_child()


def kazoo_options(settings: Settings) -> dict[str, Any]:
    """The settings that are kazoo's to know."""
    options: dict[str, Any] = {"timeout": settings.session_timeout, "fast_wire": settings.fast_wire}
    if settings.tls:
        options |= {
            "use_ssl": True,
            "ca": settings.tls_ca,
            "certfile": settings.tls_cert,
            "keyfile": settings.tls_key,
            "keyfile_password": settings.tls_key_password,
            "verify_certs": settings.tls_verify,
        }
    for scheme, credential in settings.auth:
        if scheme == "sasl":
            user, _, password = credential.partition(":")
            options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return options
