"""The fast wire: all that is queued goes out in one write, by whoever asked; many answers come with one read.

Rules for this file: it overrides kazoo's insides further than kazoo_client.py does, and so only where `incompatibility`
finds them as they are known to be; else, or where it is switched off, the connection is kazoo's own.

* kazoo reads each answer with two selects and two reads, and makes an epoll for each select. Here one read takes all
  that has come; the other half of an answer is waited for as kazoo waits for anything: an unanswered ping ends that.
* kazoo's thread sends what other threads ask, and has to be woken for it. Here the asking thread sends, unless TLS or a
  full socket stands in the way. Whoever sends has the lock; so the order of the queue, of the xids, of what is pending
  and of the bytes is one.
* kazoo's thread reads what other threads wait for, and has to wake them. Who reads here: reply_reader.py.
* kazoo waits for room in the socket and reads nothing meanwhile: a server that waits for us to read never makes room.
  Here what is half sent goes on whenever there is room, while answers are read.
* kazoo gives a silent server up for an unanswered ping, and pings only who sends nothing. Here it is given up for
  whatever it has not answered, however much is sent meanwhile.

A signal may interrupt a thread that sends between any two lines. So what is about to be sent is written down first
(`Outgoing`), and each line after that may be done again, by whoever has the lock next.
"""

from __future__ import annotations

import inspect
import math
import select
import socket
import ssl
from collections import deque
from contextlib import suppress
from itertools import islice
from time import monotonic
from types import MethodDescriptorType
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol import connection as kazoo
from kazoo.protocol.serialization import int_struct

from distsync._client.transport.reply_reader import HEADER, CallerReadsReplies

if TYPE_CHECKING:
    import threading

#: What one read takes at most (bytes): some hundreds of answers.
READ_BYTES = 256 * 1024

#: At most so many requests, and about so many bytes of them, go out with one write.
WRITE_REQUESTS, WRITE_BYTES = 1000, 256 * 1024

#: This part of kazoo's read time-out after a request no ping is needed.
RECENT = 1 / 8

#: What the socket says if it has no room, or nothing to read.
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

#: The methods that are overridden or relied upon, their parameters, and the names that their code must use.
KNOWN: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
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
        frozenset({"_connect", "_xid", "select", "_read_socket", "_send_request", "_send_ping", "_session_callback"}),
    ),
}


def incompatibility(handler: type = kazoo.ConnectionHandler, client: type = KazooClient) -> str:
    """What of kazoo's insides, or the system's, is not as it is known here; empty if all is."""
    for name, (parameters, used) in KNOWN.items():
        function = vars(handler).get(name)
        if not inspect.isfunction(function):
            return f"there is no {name}"
        if tuple(inspect.signature(function).parameters)[1:] != parameters:
            return f"{name} has other parameters"
        if not used <= _names_in(function.__code__):
            return f"{name} does its work otherwise"
    if not hasattr(select, "poll"):
        return "the system has no poll"
    callback = vars(client).get("_session_callback")
    if not inspect.isfunction(callback) or not {"_notify_pending", "_state"} <= _names_in(callback.__code__):
        return "the client hears of connections otherwise"
    return ""


def _names_in(code: Any) -> set[str]:
    found = {*code.co_names, *code.co_varnames}
    return found.union(*(_names_in(one) for one in code.co_consts if inspect.iscode(one)))


class Outgoing:
    """Some requests, from when they were chosen until the last byte of them is sent."""

    __slots__ = ("taken", "expected", "data", "sent")

    def __init__(self, taken: deque[Any], expected: tuple[Any, ...], data: bytes) -> None:
        #: What is to be taken off the queue still.
        self.taken = taken
        #: What is answered in this order.
        self.expected = expected
        self.data = data
        #: How many bytes each write took.
        self.sent: list[int] = []


class FastWire(CallerReadsReplies):
    """Beside Connection: how it reads and writes."""

    lock: threading.RLock
    """Nobody waits who has it."""

    if TYPE_CHECKING:
        _xid: int

        def _frame(self, request: Any, reply: Any, xid: int) -> bytes: ...

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outgoing: Outgoing | None = None
        #: When a request was sent last, and for how long (seconds) that is as good as a ping.
        self._sent_at, self._recent = 0.0, 0.0
        #: When the server was asked while it owed no answer, when something came from it, and how long (seconds) it may
        #: then owe one: kazoo's read time-out, once there is a connection.
        self._asked_at, self._heard_at, self._patience = 0.0, 0.0, math.inf
        #: Whether any thread may send: there is a connection, and one write of its socket is one operation of C.
        self._open = False

    # ---- connecting

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self.broken()
        self._begin_anew()
        timeouts = super()._connect(host, hostip, port)
        self._recent = timeouts[0] / 1000 * RECENT
        self._heard_at, self._patience = monotonic(), timeouts[0] / 1000
        with self.lock:
            made = type(self._socket)  # not TLS's, nor gevent's, which is no operation of C
            self._open = made is socket.socket and isinstance(made.send, MethodDescriptorType)
        return timeouts

    def broken(self) -> None:
        """In the connection thread, before anybody is told that the connection went: nothing is sent any more."""
        with self.reader, self.lock:
            self._open = False
            self._outgoing = None
        self._patience = math.inf

    # ---- waiting, in the connection thread

    def wait(self, reads: Any, timeout: float) -> tuple[list[Any], list[Any], list[Any]]:
        """kazoo's select of what it reads from. What is half sent goes on meanwhile; a server that owes us an answer
        for too long is given up, but not before we have looked whether it has come."""
        until, wire = monotonic() + timeout, self._socket
        while True:
            away_until = self._yield_socket(until) if self._open else 0.0
            if not away_until and self._open and self._has_undelivered():
                return [wire], [], []
            poller = select.poll()
            for one in reads:
                if one is not wire or not away_until:
                    poller.register(one, select.POLLIN)
            if self._outgoing is not None and not away_until:
                poller.register(wire, select.POLLIN | select.POLLOUT)
            seconds = (away_until or min(until, self._give_up_at())) - monotonic()
            found = dict(poller.poll(max(0.0, seconds) * 1000))
            if away_until and not found:
                continue
            if found.get(wire.fileno(), 0) & select.POLLOUT:
                self._continue_write()
            readable = [one for one in reads if found.get(one.fileno(), 0) & ~select.POLLOUT]
            now = monotonic()
            if wire not in readable and now >= self._give_up_at():
                raise ConnectionDropped(f"no answer for {self._patience:.1f} seconds")
            if readable or now >= until:
                return readable, [], []

    def _give_up_at(self) -> float:
        """When the server will have owed us an answer, and been silent, for too long."""
        owed = self.client._pending or self._outgoing is not None or self.ping_outstanding.is_set()
        return max(self._asked_at, self._heard_at) + self._patience if owed else math.inf

    # ---- reading, in the connection thread

    def _read_socket(self, read_timeout: float) -> Any:
        """All answers that came are given; those that are half there stay until the rest comes."""
        response = None
        if self._try_become_reader():
            try:
                if not self._is_complete():  # what a caller has left comes before the end of the connection
                    self._receive()
                while response != kazoo.CLOSE_RESPONSE and self._is_complete():
                    if not self._discard_delivered():
                        response = super()._read_socket(read_timeout)
            finally:
                self.reader.release()
        return response

    def _receive(self) -> None:
        with self._socket_error_handling(), suppress(*NOT_NOW):
            while True:
                chunk = self._socket.recv(READ_BYTES)
                if not chunk:
                    raise ConnectionDropped("socket connection broken")
                self._input += chunk
                self._heard_at = monotonic()
                if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                    return

    def _is_complete(self) -> bool:
        """Whether an answer is there, to its last byte."""
        have = len(self._input)
        if have < int_struct.size:
            return False
        length = int_struct.unpack_from(self._input)[0]
        if length < HEADER.size:
            raise ConnectionDropped(f"the server's answer makes no sense: {length} bytes")
        return bool(have >= int_struct.size + length)

    def _read(self, length: int, timeout: float) -> Any:
        """What was received already comes first: an answer that is handled is complete."""
        if not self._input:
            return super()._read(length, timeout)
        part = bytes(memoryview(self._input)[:length])
        del self._input[:length]
        return part

    # ---- writing

    def send(self) -> None:
        """What is queued is sent, now if it can be, else soon. Any thread; never waits."""
        with self.lock:
            if self._open:
                with suppress(OSError):  # the connection thread sees it too
                    if self._send_queued() and not self.client._queue:
                        return
        self.wake()

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(4096)
        self._continue_write()

    def _continue_write(self) -> None:
        """In the connection thread. What there is no room for waits for it in `wait`."""
        with self._socket_error_handling():
            if self._send_queued() and self.client._queue:
                self.wake()

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        """kazoo's own messages, while nothing else is half sent. Those before there is a connection are waited for."""
        with self._socket_error_handling():
            self._start_write(Outgoing(deque(), (), bytes(msg)))
            while not self._complete_write() and self._patience == math.inf:
                self._wait_for_room(timeout)

    def _wait_for_room(self, timeout: float) -> None:
        if not self.handler.select([], [self._socket], [], timeout)[1]:
            raise self.handler.timeout_exception("socket time-out during write")

    def _send_queued(self) -> bool:
        """Whether the next requests of the queue are sent; False if there is no room."""
        with self.lock:
            if self._outgoing is not None and not self._complete_write():
                return False
            self._outgoing = self._next_batch()
            return self._outgoing is None or self._complete_write()

    def _next_batch(self) -> Outgoing | None:
        """The next requests; from then on they have their xids."""
        self._is_asked()
        taken: deque[Any] = deque(islice(self.client._queue, WRITE_REQUESTS))
        expected, frames, size, xid = [], [], 0, self._xid
        for number, (request, reply) in enumerate(taken):
            if size > WRITE_BYTES:
                taken = deque(islice(taken, number))
                break
            following = xid % 2147483647 + 1
            frame = self._frame(request, reply, following)
            if frame:
                xid = following
                size += len(frame)
                frames.append(frame)
                expected.append((request, reply, xid))
        return Outgoing(taken, tuple(expected), b"".join(frames)) if taken else None

    def _start_write(self, outgoing: Outgoing) -> None:
        """It will be sent, before all else."""
        with self.lock:
            self._outgoing = outgoing

    def _complete_write(self) -> bool:
        """Whether nothing is half sent. A thread that was interrupted in any line is followed by one that does all that
        it had not done."""
        with self.lock:
            outgoing = self._outgoing
            if outgoing is None:
                return True
            if not outgoing.sent:
                self._add_pending(outgoing)
            while (done := sum(outgoing.sent)) < len(outgoing.data):
                try:  # one operation of C, which no signal can divide: what is sent is known to be
                    outgoing.sent.extend(map(self._socket.send, (outgoing.data[done:],)))
                except NOT_NOW:
                    return False
            self._outgoing = None
            self._sent_at = monotonic()
            return True

    def _send_ping(self, connect_timeout: float) -> None:
        """kazoo does not know of what other threads sent: a connection that is at work is not pinged, and not given up
        for an answer that is somewhat late."""
        with self.lock:
            if self._outgoing is None and monotonic() - self._sent_at > self._recent:
                self._is_asked()
                super()._send_ping(connect_timeout)

    def _is_asked(self) -> None:
        """Something goes out that is to be answered."""
        if not self.client._pending and not self.ping_outstanding.is_set():
            self._asked_at = monotonic()

    def _add_pending(self, outgoing: Outgoing) -> None:
        """From the queue to what is pending. Before the first byte is sent nothing of it can be answered."""
        pending, queue = self.client._pending, self.client._queue
        if outgoing.expected:
            self._xid = outgoing.expected[-1][2]
            if not pending or pending[-1] is not outgoing.expected[-1]:
                pending.extend(outgoing.expected)
        taken = outgoing.taken
        while taken:
            if queue and queue[0] is taken[0]:
                queue.popleft()
            taken.popleft()


def ready(reads: Any, writes: Any, timeout: float | None) -> tuple[list[Any], list[Any], list[Any]]:
    """kazoo's select of some sockets to read from, or some to write to: those that something can be done with."""
    poller = select.poll()
    for one in (*reads, *writes):
        poller.register(one, select.POLLOUT if writes else select.POLLIN)
    found = {number for number, _ in poller.poll(None if timeout is None else timeout * 1000)}
    return [one for one in reads if one.fileno() in found], [one for one in writes if one.fileno() in found], []
