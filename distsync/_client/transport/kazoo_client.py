"""kazoo's connection, changed where distsync needs it to work differently.

No other module overrides kazoo's internals, except for fast_io.py, which replaces the reading and
writing below unless it is disabled. For kazoo 2.8 to 2.11. The reasons:

* kazoo runs callbacks in two more threads. Here callbacks only fire signals and fill queues, so
  they run in the connection thread, which saves a thread switch for each wake-up.
* kazoo sends one request for each byte that it reads from its wake-up socket. It writes these bytes
  with a blocking send, which blocks after some 280 of them while there is no connection. Here a
  wake-up sends the whole queue in one write, and does not block.
* kazoo creates a poller for each write, although the socket nearly always has room.
* kazoo's thread ends at a malformed reply, or at an unknown error code.
* A reply of a throttling server breaks the connection here, and all requests are retried.
* kazoo does not expose the negotiated timeout, and reports a connection before it is authenticated.
* kazoo's ``stop`` may block without limit.
* kazoo's TLS trusts too much (see tls.py).
* kazoo's clock is replaced by freezegun, which ends its thread (see clocks.py).
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  resolving a host imports it; a fork during that import would break the child
import logging
import math
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped, SASLException, ZookeeperError
from kazoo.handlers import utils
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import connection as kazoo_connection
from kazoo.protocol.serialization import SASL, Auth, CloseInstance, Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from distsync._client import tls
from distsync._client.clocks import with_real_time
from distsync._client.own_threads import OwnThread
from distsync._client.settings import Settings
from distsync._client.transport import fast_io
from distsync._client.transport.kazoo_errors import unknown_error
from distsync._client.transport.reply_futures import ReplyFuture
from distsync._log import OwnLogger
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import PayloadTooLargeError

#: Maximum duration in seconds of one attempt to reach one host. Less than the 2 s in which a client
#: closes; more than the second after which a lost SYN is sent again.
ATTEMPT_S = 1.5

#: First and longest delay in seconds before a lost connection is retried. Many clients must not
#: overload a server that restarts, but none should reconnect noticeably late.
RETRY_S, SLOWEST_RETRY_S = 0.05, 0.5

#: The credentials are taken to be wrong after this many aborted SASL handshakes in a row.
SASL_REFUSALS = 3

#: Approximate number of bytes of requests that are sent before replies are read again.
WRITE_BYTES = 256 * 1024

#: Maximum size in bytes of a request (jute.maxbuffer). A server closes the connection at a longer
#: one, and would do so again at each retry.
REQUEST_BYTES = 0xFFFFF

#: Error code of a server that requires another authentication scheme. Unknown to kazoo.
AUTHENTICATION_REQUIRED = -124

#: Error code of an overloaded server that did not execute the request (THROTTLED_OP). Unknown to
#: kazoo before 2.10.
THROTTLED = -127

#: Header of a request: length of what follows, xid, opcode.
FRAME = struct.Struct("!iii")

#: Errors of a connection that a server accepts and then closes, perhaps before the client notices.
CLOSED_BY_SERVER = (ConnectionDropped, ConnectionResetError, BrokenPipeError)
SERVER_CLOSED = (
    ": connection closed by the server (is maxClientCnxns reached, does it expect TLS, or is it starting or stopping?)"
)

logger = OwnLogger("distsync.client.kazoo")


#: Requests whose reprs contain secrets.
SECRETS = (Auth, Connect, SASL)


def _has_no_secret(record: logging.LogRecord) -> bool:
    """Return whether the record has no secrets: kazoo logs some at its two lowest levels."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return "passwd" not in str(record.msg) and not any(isinstance(one, SECRETS) for one in arguments)


logging.getLogger("distsync.client.kazoo").addFilter(_has_no_secret)

#: Messages of kazoo about an attempt to connect, without their reasons.
ATTEMPT_MESSAGES = ("Connection dropped: %s", "Connection time-out: %s", "Cannot resolve %s: %s")

#: How often the same reason of a failed attempt is logged, in seconds: an outage has 2 attempts a second.
ATTEMPT_LOG_INTERVAL_S = 60

#: Number of reasons that are remembered, so that reasons that always differ need little memory.
MAX_REASONS = 100


class RepeatedAttempts:
    """A filter that drops the record of a failed attempt if the same reason was logged within the interval."""

    def __init__(self) -> None:
        #: When each text was logged.
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        if record.msg not in ATTEMPT_MESSAGES:
            return True
        text = record.getMessage()
        if 0 <= record.created - self._logged.get(text, -math.inf) < ATTEMPT_LOG_INTERVAL_S:
            return False
        if len(self._logged) >= MAX_REASONS:
            self._logged.clear()
        self._logged[text] = record.created
        return True


logging.getLogger("distsync.client.kazoo").addFilter(RepeatedAttempts())


create_tcp_connection = with_real_time(utils.create_tcp_connection)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its worker threads."""

    fast_connection: fast_io.FastIO | None = None
    """The connection, if it uses fast I/O and so waits for its socket itself."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[OwnThread] = []

    def spawn(self, func: Any, *args: Any, **kwargs: Any) -> OwnThread:
        """Start a thread, listed before it runs: a finalizer may run at its first line."""
        thread = OwnThread(target=func, args=args, kwargs=kwargs, daemon=True)
        self.spawned = [one for one in self.spawned if one.is_alive()] + [thread]
        thread.start()
        return thread

    def start(self) -> None:
        """Do nothing: there are no worker threads."""

    def stop(self) -> None:
        """Do nothing: there are no worker threads."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(self, reads: Any, writes: Any, others: Any, timeout: float | None = None) -> Any:
        if self.fast_connection is None or others or (reads and writes):
            return super().select(reads, writes, others, timeout)
        if reads and timeout is not None:
            return self.fast_connection.wait(reads, timeout)
        return fast_io.ready(reads, writes, timeout)

    host = ""
    """Host name for the next connection. kazoo 2.8 passes only the address."""

    def create_connection(self, address: tuple[str, int], *args: Any, **options: Any) -> Any:
        seconds = options["timeout"] = min(options.get("timeout") or ATTEMPT_S, ATTEMPT_S)
        if not options.get("use_ssl"):
            return create_tcp_connection(socket, address, *args, **options)
        ca, certificate, key, password = map(options.get, ("ca", "certfile", "keyfile", "keyfile_password"))
        context = tls.context_of(ca, certificate, key, password, options.get("verify_certs", True))
        return tls.connect(address, self.host, context, seconds)


class KazooConnection(kazoo_connection.ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection and its thread, with the changes listed at the top."""

    refusals = 0
    """Number of handshakes in a row that a server aborted."""

    problem = ""
    """Why the last attempt to connect failed; empty if it did not."""

    sasl_refusals = 0
    """Number of SASL handshakes in a row that a server aborted."""

    _xid: int

    lock: Any
    """The session's lock."""

    abandoned = False
    """Whether the thread must close its sockets itself when it ends."""

    _connect_attempt = with_real_time(kazoo_connection.ConnectionHandler._connect_attempt)

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
        """Wake the connection thread, which then sends the queue."""
        try:
            self._write_sock.send(b"\0")
        except BlockingIOError as error:  # a full pipe wakes it as well
            raise_if_from_handler(error)

    def send(self) -> None:
        """Send the queue. Callable from any thread; does not block."""
        self.wake()

    def read_replies(self, replies: Sequence[ReplyFuture], seconds: float) -> None:
        """Let the calling thread, which is about to wait for ``replies``, read them itself, if supported.

        Without ``replies``, the thread waits for something else.
        """

    def stop_reading(self) -> None:
        """End the reading of the calling thread, which was interrupted."""

    def connection_lost(self) -> None:
        """Handle a lost connection, in the connection thread, before it is reported."""

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self.client.on_attempt(host, port)
        self.handler.host = host
        try:
            timeouts = super()._connect(host, hostip, port)
        except Exception as error:
            self.refusals += self._socket is not None
            problem = error.__context__ or error  # kazoo's error contains only a part of the message
            self.problem = f"{host}:{port}: {problem}{SERVER_CLOSED if isinstance(problem, CLOSED_BY_SERVER) else ''}"
            raise
        self.refusals, self.problem = 0, ""
        # kazoo's read timeout is two thirds of the negotiated timeout, in ms.
        self.client.on_session(self.client._session_id, round(timeouts[0] * 1.5))
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Authenticate, and retry a few times if the server closes the connection.

        It does so at a wrong password, for which kazoo would give up, but also when it stops.
        """
        try:
            super()._authenticate_with_sasl(host, timeout)
        # RuntimeError is for a code that kazoo does not know.
        except (ZookeeperError, SASLException, RuntimeError) as error:
            self.sasl_refusals += 1
            if self.sasl_refusals < SASL_REFUSALS and isinstance(error.__cause__, ConnectionDropped):
                raise ConnectionDropped("connection closed by the server at the SASL handshake") from error
            raise AuthFailedError(f"SASL: {error}") from error
        self.sasl_refusals = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Perform a request of the handshake with a shorter timeout.

        kazoo waits for the whole session timeout. A server that was just starting may never reply,
        but does at the next attempt.
        """
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
        """Return the request's bytes. An invalid request fails here, and has no bytes."""
        try:
            body = request.serialize()
        except Exception as error:  # an argument of a wrong type
            raise_if_from_handler(error)
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
            raise ConnectionDropped(f"malformed reply: {error}") from error

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        if header.err == AUTHENTICATION_REQUIRED:
            raise AuthFailedError("the server requires another authentication scheme")
        if header.err == THROTTLED:
            # Later requests may be executed, and this one may be the sync at the start of the
            # connection. Only a retry of all of them keeps their order.
            raise ConnectionDropped("the server throttles requests (THROTTLED_OP)")
        if header.err and header.err not in EXCEPTIONS:
            _, reply, _ = self.client._pending.popleft()
            reply.set_exception(unknown_error(header.err))
            return None
        return super()._read_response(header, buffer, offset)

    def _write(self, message: bytes | bytearray, timeout: float) -> None:
        """Write what the socket accepts at once, and only then wait for room."""
        with self._socket_error_handling():
            try:
                sent = self._socket.send(message)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
        if sent < len(message):
            super()._write(message[sent:], timeout)

    def shutdown_socket(self) -> None:
        """Shut down the socket, so that the connection thread stops waiting for it."""
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def after_fork_in_child(self) -> None:
        """Close the inherited sockets in a forked child, which the parent does not notice."""
        for one in (self._socket, self._read_sock, self._write_sock):
            with contextlib.suppress(OSError, AttributeError, ValueError):
                one.close()


class FastKazooConnection(fast_io.FastIO, KazooConnection):
    """KazooConnection with distsync's fast I/O."""


def connection_class(fast_wire: bool) -> type[KazooConnection]:
    """Return the connection class: kazoo's I/O is used if fast I/O is disabled or incompatible."""
    unknown = fast_io.incompatibility() if fast_wire else "disabled by fast_wire"
    if unknown:
        logger.info("fast I/O disabled, using kazoo's: %s", unknown)
    return KazooConnection if unknown else FastKazooConnection


class RawKazooClient(KazooClient):  # type: ignore[misc]
    """A kazoo client that takes requests as records, and reports its sessions.

    ``lock`` must be held by callers of `enqueue` and `enqueue_first`.
    """

    _connection: KazooConnection

    def __init__(
        self,
        on_attempt: Callable[[str, int], None],
        on_session: Callable[[int, int], None],
        lock: Any = None,
        fast_wire: bool = True,
        on_reply_read_by_caller: Callable[
            [ReplyFuture, Any, BaseException | None], bool
        ] = lambda reply, response, error: False,
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
        self.on_reply_read_by_caller = on_reply_read_by_caller
        sleeper, sasl = self._connection.retry_sleeper, self._connection.sasl_options
        self.connection = self._connection = kind(self, sleeper, logger=logger, sasl_options=sasl)
        self.connection.lock = lock or threading.RLock()
        if isinstance(self.connection, FastKazooConnection):
            handler.fast_connection = self.connection

    def enqueue(self, *requests: tuple[Any, Any]) -> None:
        """Send the requests, in this order.

        For each, ``set`` or ``set_exception`` of its reply is called in the connection thread, or
        here if it cannot be sent, or ``on_reply_read_by_caller`` is called in a thread that waits for it.
        """
        self._queue.extend(requests)
        self._connection.send()

    def enqueue_first(self, request: Any, reply: Any) -> None:
        """Send a request before those that may be queued since the connection broke."""
        self._queue.appendleft((request, reply))
        self._connection.wake()

    def _session_callback(self, state: Any) -> None:
        if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._connection.connection_lost()
        super()._session_callback(state)

    @property
    def is_dead(self) -> bool:
        """Whether the connection thread has ended unexpectedly, or never started."""
        thread = self._connection._connection_routine
        return thread is None or not thread.is_alive()

    def is_current_thread(self) -> bool:
        for thread in self.handler.spawned:
            if thread.is_current():
                return True
        return False

    def end(self, seconds: float, *, flush: bool = True) -> None:
        """Close the connection and end its thread; with ``flush``, close the session first.

        The server is notified if it is, or gets, connected within half of ``seconds``.
        """
        connection = self._connection
        flush = flush and not connection.connection_closed.is_set()  # false if it has ended, or never started
        if flush and not self._stopped.is_set():
            self._live.wait(seconds / 4)  # it may be reconnecting
        self._stopped.set()
        if flush:
            with contextlib.suppress(OSError, AttributeError):  # a concurrent call may have closed the sockets
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
        """Close the inherited sockets in a forked child."""
        self._connection.after_fork_in_child()


def kazoo_options(settings: Settings) -> dict[str, Any]:
    """Return the settings as arguments of `RawKazooClient`."""
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
