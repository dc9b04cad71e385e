"""Fast I/O: the calling thread sends the whole queue in one write, and one read takes many replies.

This overrides more of kazoo's internals than kazoo_client.py does. It is used only if
`incompatibility` finds them as expected, and can be disabled.

* kazoo reads each reply with two selects and two reads, and creates an epoll for each select. Here
  one read takes all that has arrived. The rest of an incomplete reply is waited for like any other
  input, and an unanswered ping ends the wait.
* kazoo's thread sends the requests of other threads, which have to wake it. Here the calling thread
  sends, unless TLS is used or the socket is full. The sender holds the lock, so that the queue, the
  xids, the pending requests and the bytes have the same order.
* kazoo's thread reads the replies that other threads wait for. See reply_reader.py.
* kazoo does not read while it waits for room in the socket. A server that itself waits for the
  client to read then never makes room. Here a partial write continues while replies are read.
* kazoo drops a silent server only after an unanswered ping, and pings only while nothing is sent.
  Here any overdue reply is enough, even while more is sent.

A signal may interrupt a sending thread between any two lines. The bytes to send are therefore
recorded first (`Outgoing`), and the next holder of the lock can repeat each later line.
"""

from __future__ import annotations

import inspect
import math
import select
import socket
import ssl
from collections import deque
from itertools import islice
from types import MethodDescriptorType
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol import connection as kazoo_connection
from kazoo.protocol.serialization import int_struct

from distsync._client.clocks import wait_clock
from distsync._client.transport.reply_reader import HEADER, CallerReadsReplies
from distsync._signal_handlers import is_interrupt, raise_if_from_handler

if TYPE_CHECKING:
    import threading

#: Maximum size in bytes of one read: some hundreds of replies.
READ_BYTES = 256 * 1024

#: Maximum number of requests in one write, and approximate maximum of their bytes.
WRITE_REQUESTS, WRITE_BYTES = 1000, 256 * 1024

#: Part of kazoo's read timeout during which a request makes a ping unnecessary.
PING_FREE_FRACTION = 1 / 8

#: Errors of a socket that has no room, or nothing to read.
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

#: Methods that are overridden or relied upon: their parameters, and names that their code must use.
EXPECTED_KAZOO_METHODS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "_read": (("length", "timeout"), frozenset({"_socket", "recv"})),
    "_read_header": (("timeout",), frozenset({"_read", "ReplyHeader", "deserialize"})),
    "_read_socket": (("read_timeout",), frozenset({"_read_header", "_read_watch_event", "_read_response", "_pending"})),
    "_read_response": (
        ("header", "buffer", "offset"),
        frozenset({"_pending", "popleft", "xid", "last_zxid", "unchroot"})
        | frozenset({"watcher", "_child_watchers", "_data_watchers"}),
    ),
    "_write": (("msg", "timeout"), frozenset({"_socket", "send"})),
    "_submit": (("request", "timeout", "xid"), frozenset({"_write", "serialize"})),
    "_send_request": (("read_timeout", "connect_timeout"), frozenset({"_queue", "_pending", "_xid", "_read_sock"})),
    "_send_ping": (("connect_timeout",), frozenset({"_submit", "ping_outstanding"})),
    "_connect": (("host", "hostip", "port"), frozenset({"_socket", "_invoke", "setblocking", "create_connection"})),
    "_connect_attempt": (
        ("host", "hostip", "port", "retry"),
        frozenset({"_connect", "_xid", "select", "_read_socket", "_send_request", "_send_ping", "_session_callback"})
        | frozenset({"_socket_error_handling"}),
    ),
}


def incompatibility(handler: type = kazoo_connection.ConnectionHandler, client: type = KazooClient) -> str:
    """Return what is unexpected about kazoo or the system; "" if nothing is."""
    for name, (parameters, used) in EXPECTED_KAZOO_METHODS.items():
        function = vars(handler).get(name)
        if not inspect.isfunction(function):
            return f"{name} is missing"
        if tuple(inspect.signature(function).parameters)[1:] != parameters:
            return f"{name} has other parameters"
        if not used <= _names_in(function.__code__):
            return f"{name} is implemented differently"
    if not hasattr(select, "poll"):
        return "the system has no poll"
    callback = vars(client).get("_session_callback")
    if not inspect.isfunction(callback) or not {"_notify_pending", "_state"} <= _names_in(callback.__code__):
        return "_session_callback is implemented differently"
    return ""


def _names_in(code: Any) -> set[str]:
    found = {*code.co_names, *code.co_varnames}
    return found.union(*(_names_in(one) for one in code.co_consts if inspect.iscode(one)))


class Outgoing:
    """Requests that are chosen to be sent, until their last byte is sent."""

    __slots__ = ("to_dequeue", "awaiting_reply", "data", "sent")

    def __init__(self, to_dequeue: deque[Any], awaiting_reply: tuple[Any, ...], data: bytes) -> None:
        #: Requests that are still to be removed from the queue.
        self.to_dequeue = to_dequeue
        #: Requests that get a reply, in order, with their xids.
        self.awaiting_reply = awaiting_reply
        self.data = data
        #: Number of bytes that each write sent.
        self.sent: list[int] = []


class FastIO(CallerReadsReplies):
    """Mixin for KazooConnection: how it reads and writes."""

    lock: threading.RLock
    """Lock of the session, never held during a wait."""

    if TYPE_CHECKING:
        _xid: int

        def _frame(self, request: Any, reply: Any, xid: int) -> bytes: ...

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outgoing: Outgoing | None = None
        #: When a request was last sent, and for how many seconds that makes a ping unnecessary.
        self._sent_at, self._ping_free_s = 0.0, 0.0
        #: Since when a reply has been due, when data last arrived, and the timeout of a reply in
        #: seconds (kazoo's read timeout, once connected).
        self._reply_due_since, self._received_at, self._reply_timeout = 0.0, 0.0, math.inf
        #: Whether any thread may send and read: connected, with a socket whose send is implemented in
        #: C, so that no signal handler runs in the middle of it.
        self._caller_io_enabled = False

    # ---- connecting

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self.connection_lost()
        self._reset_input()
        timeouts = super()._connect(host, hostip, port)
        self._ping_free_s = timeouts[0] / 1000 * PING_FREE_FRACTION
        self._received_at, self._reply_timeout = wait_clock(), timeouts[0] / 1000
        with self.lock:
            kind = type(self._socket)  # TLS's and gevent's have no send in C
            self._caller_io_enabled = kind is socket.socket and isinstance(kind.send, MethodDescriptorType)
        return timeouts

    def connection_lost(self) -> None:
        """Stop sending. Called in the connection thread, before the lost connection is reported."""
        with self.reader_lock, self.lock:
            self._caller_io_enabled = False
            self._outgoing = None
        self._reply_timeout = math.inf

    # ---- waiting, in the connection thread

    def wait(self, reads: Any, timeout: float) -> tuple[list[Any], list[Any], list[Any]]:
        """Perform kazoo's select for reading, and continue a partial write during it.

        Raise ConnectionDropped if a reply is overdue and the socket has nothing to read.
        """
        until, sock = wait_clock() + timeout, self._socket
        while True:
            deferred_until = self._defer_reading(until) if self._caller_io_enabled else 0.0
            if not deferred_until and self._caller_io_enabled and self._has_undelivered():
                return [sock], [], []
            poller = select.poll()
            for one in reads:
                if one is not sock or not deferred_until:
                    poller.register(one, select.POLLIN)
            if self._outgoing is not None and not deferred_until:
                poller.register(sock, select.POLLIN | select.POLLOUT)
            seconds = (deferred_until or min(until, self._reply_overdue_at())) - wait_clock()
            found = dict(poller.poll(max(0.0, seconds) * 1000))
            if deferred_until and not found:
                continue
            if found.get(sock.fileno(), 0) & select.POLLOUT:
                self._send_queue_from_connection_thread()
            readable = [one for one in reads if found.get(one.fileno(), 0) & ~select.POLLOUT]
            now = wait_clock()
            if sock not in readable and now >= self._reply_overdue_at():
                raise ConnectionDropped(f"no reply for {self._reply_timeout:.1f} s")
            if readable or now >= until:
                return readable, [], []

    def _reply_overdue_at(self) -> float:
        """Return when the connection must be dropped because a reply is overdue."""
        owed = self.client._pending or self._outgoing is not None or self.ping_outstanding.is_set()
        return max(self._reply_due_since, self._received_at) + self._reply_timeout if owed else math.inf

    # ---- reading, in the connection thread

    def _read_socket(self, read_timeout: float) -> Any:
        """Deliver all complete replies. An incomplete one stays in the input."""
        response = None
        if self._try_become_reader():
            try:
                if not self._is_complete():  # replies that a caller has read come before a closed connection
                    self._receive()
                while response != kazoo_connection.CLOSE_RESPONSE and self._is_complete():
                    if not self._discard_delivered():
                        response = super()._read_socket(read_timeout)
            finally:
                self.reader_lock.release()
        return response

    def _receive(self) -> None:
        while True:
            try:
                chunk = self._socket.recv(READ_BYTES)
            except WOULD_BLOCK:
                return
            if not chunk:
                raise ConnectionDropped("socket connection broken")
            self._input += chunk
            self._received_at = wait_clock()
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                return

    def _is_complete(self) -> bool:
        """Return whether the input begins with a complete reply."""
        have = len(self._input)
        if have < int_struct.size:
            return False
        length = int_struct.unpack_from(self._input)[0]
        if length < HEADER.size:
            raise ConnectionDropped(f"malformed reply: {length} bytes")
        return bool(have >= int_struct.size + length)

    def _read(self, length: int, timeout: float) -> Any:
        """Return bytes from the input, which has a complete reply while one is handled."""
        if not self._input:
            return super()._read(length, timeout)
        part = bytes(memoryview(self._input)[:length])
        del self._input[:length]
        return part

    # ---- writing

    def send(self) -> None:
        """Send the queue, now if possible. Callable from any thread; does not block."""
        with self.lock:
            if self._caller_io_enabled:
                try:
                    if self._send_queued() and not self.client._queue:
                        return
                except BaseException as error:
                    if is_interrupt(error) or not isinstance(error, OSError):
                        self.wake()  # the connection thread sends the rest
                        raise
                    # The connection thread gets an error of the socket too.
        self.wake()

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(4096)
        self._send_queue_from_connection_thread()

    def _send_queue_from_connection_thread(self) -> None:
        """Send the queue in the connection thread. `wait` waits for room in the socket."""
        if self._send_queued() and self.client._queue:
            self.wake()

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        """Write kazoo's own messages, waiting for room only before the session is connected."""
        with self._socket_error_handling():
            self._set_outgoing(Outgoing(deque(), (), bytes(msg)))
            while not self._continue_write() and self._reply_timeout == math.inf:
                self._wait_for_room(timeout)

    def _wait_for_room(self, timeout: float) -> None:
        if not self.handler.select([], [self._socket], [], timeout)[1]:
            raise self.handler.timeout_exception("timeout while writing to the socket")

    def _send_queued(self) -> bool:
        """Send the next requests of the queue. Return False if the socket has no room."""
        with self.lock:
            if self._outgoing is not None and not self._continue_write():
                return False
            self._outgoing = self._next_outgoing()
            return self._outgoing is None or self._continue_write()

    def _next_outgoing(self) -> Outgoing | None:
        """Choose the next requests to send, and their xids."""
        self._note_request()
        to_dequeue: deque[Any] = deque(islice(self.client._queue, WRITE_REQUESTS))
        awaiting_reply, frames, size, xid = [], [], 0, self._xid
        for number, (request, reply) in enumerate(to_dequeue):
            if size > WRITE_BYTES:
                to_dequeue = deque(islice(to_dequeue, number))
                break
            following = xid % 2147483647 + 1
            frame = self._frame(request, reply, following)
            if frame:
                xid = following
                size += len(frame)
                frames.append(frame)
                awaiting_reply.append((request, reply, xid))
        return Outgoing(to_dequeue, tuple(awaiting_reply), b"".join(frames)) if to_dequeue else None

    def _set_outgoing(self, outgoing: Outgoing) -> None:
        """Set the bytes to send next."""
        with self.lock:
            self._outgoing = outgoing

    def _continue_write(self) -> bool:
        """Continue the write. Return whether it is complete.

        If interrupted at any line, the next call does what is left.
        """
        with self.lock:
            outgoing = self._outgoing
            if outgoing is None:
                return True
            if not outgoing.sent:
                self._add_pending(outgoing)
            while (done := sum(outgoing.sent)) < len(outgoing.data):
                # One operation of C, which no signal can divide: all sent bytes are counted.
                try:
                    outgoing.sent.extend(map(self._socket.send, (outgoing.data[done:],)))
                except WOULD_BLOCK as error:
                    raise_if_from_handler(error)
                    return False
            self._outgoing = None
            self._sent_at = wait_clock()
            return True

    def _send_ping(self, connect_timeout: float) -> None:
        """Ping, unless a request was sent recently.

        kazoo does not know the requests of other threads, and would drop the connection if the
        reply to a needless ping is late.
        """
        with self.lock:
            if self._outgoing is None and wait_clock() - self._sent_at > self._ping_free_s:
                self._note_request()
                super()._send_ping(connect_timeout)

    def _note_request(self) -> None:
        """Record the time, if no reply was due so far, because a request is sent now."""
        if not self.client._pending and not self.ping_outstanding.is_set():
            self._reply_due_since = wait_clock()

    def _add_pending(self, outgoing: Outgoing) -> None:
        """Move requests from the queue to the pending ones, before their first byte is sent."""
        pending, queue = self.client._pending, self.client._queue
        if outgoing.awaiting_reply:
            self._xid = outgoing.awaiting_reply[-1][2]
            if not pending or pending[-1] is not outgoing.awaiting_reply[-1]:
                pending.extend(outgoing.awaiting_reply)
        to_dequeue = outgoing.to_dequeue
        while to_dequeue:
            if queue and queue[0] is to_dequeue[0]:
                queue.popleft()
            to_dequeue.popleft()


def ready(reads: Any, writes: Any, timeout: float | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Perform kazoo's select, for sockets either to read from or to write to."""
    poller = select.poll()
    for one in (*reads, *writes):
        poller.register(one, select.POLLOUT if writes else select.POLLIN)
    found = {number for number, _ in poller.poll(None if timeout is None else timeout * 1000)}
    return [one for one in reads if one.fileno() in found], [one for one in writes if one.fileno() in found], []
