"""One client's TCP connection: bytes to frames, frames to the server one after the other, replies out.

Rules for this file: it, server.py and tls_acceptor.py alone know asyncio. It knows no request: only frames, and the
four-letter words before them.

Output is bounded: while replies pile up, the connection is neither served nor read from. Notifications, which are not
requested, may pile up further, and then the connection is closed. Time is bounded too: a handshake and the delivery of
the last replies have a deadline; in between the session timeout rules, and half a request does not extend it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections import deque
from contextlib import suppress
from typing import Protocol, cast

from distsync._server.admin.four_letter_words import ConnectionRow
from distsync._server.admin.statistics import WORD_BYTES, ServerStatistics
from distsync._server.effects import Accepted, Notify
from distsync._server.engine import Engine
from distsync._wire.codec import encode_connect_response, encode_event
from distsync._wire.codes import OpCode
from distsync._wire.frames import FrameSplitter, WireError, framed

log = logging.getLogger("distsync.server")

GREETING_BYTES = 4096
"""Far longer than any handshake: who sends more without one is no client."""

ANSWERS_BYTES = 1 << 20
"""Not yet taken by the client: more of it, and the client's further requests wait."""

OUTPUT_BYTES = 64 << 20
"""Not yet taken by the client: more of it, and the connection is closed; the client connects again and reads anew."""


_XID_AND_OP = struct.Struct(">ii")
_ZXID = struct.Struct(">q")
_OP_NAMES = {
    OpCode.CREATE: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA",
    OpCode.SET_ACL: "SETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.SYNC: "SYNC",
    OpCode.PING: "PING",
    OpCode.MULTI: "MULT",
}


def frame_of(effect: Accepted | Notify) -> bytes:
    """Encode a handshake reply or a notification as a whole frame, length included."""
    if isinstance(effect, Accepted):
        return framed(encode_connect_response(effect.response))
    return framed(encode_event(effect.zxid, effect.event))


class ConnectionServer(Protocol):
    """What a connection needs of its server.

    Attributes:
        buffer: Where received bytes are read into; all connections share it.
        moved: Bytes received and sent since the server last looked at how many are held.
        failure: Why the server stops; None while it serves.
    """

    engine: Engine
    report: ServerStatistics
    encrypted: bool
    buffer: memoryview
    moved: int
    failure: Exception | None

    def add(self, connection: Connection) -> None: ...

    def remove(self, connection: Connection) -> None: ...

    def begin(self) -> None: ...

    def work(self, connection: Connection, frames: deque[bytes]) -> None: ...

    def end(self) -> None: ...

    def close_deadline(self) -> float: ...


class Connection(asyncio.BufferedProtocol):
    """One client's TCP connection. It keeps order: requests are worked for one after the other."""

    def __init__(self, server: ConnectionServer) -> None:
        self.server = server
        self.peer = 0
        self.session_id = 0
        self.greeted = False
        self.admitted = False
        self.deadline: float | None = None  # of the handshake, then of the farewell
        self.received = self.sent = 0
        self.address: tuple[str, int] = ("", 0)
        self._head: bytes | None = b""  # None once it is known that no four-letter word is coming
        self._since_ms = time.time_ns() // 1_000_000
        self._last_head = bytes(8)  # of the last request
        self._last_answer = bytes(16)  # its head
        self._splitter = FrameSplitter(server.engine.config.jute_maxbuffer)
        self._encrypted = server.encrypted
        self._frames: deque[bytes] = deque()
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._stalled = self._reading_paused = self._closing = self._broken = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.address = (transport.get_extra_info("peername") or self.address)[:2]  # none: it is gone already
        self.transport.set_write_buffer_limits(high=ANSWERS_BYTES)
        link = transport.get_extra_info("socket")
        with suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = self._lost = True
        self._frames.clear()
        self.server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """All share it: what is read is copied at once. A view, for TLS slices it and means the place."""
        return self.server.buffer

    def buffer_updated(self, count: int) -> None:
        piece = bytes(self.server.buffer[:count])
        self.server.moved += count
        if self._head is not None:
            piece = self._check_four_letter_word(self._head + piece)
        try:
            self._frames.extend(self._splitter.feed(piece))
        except WireError as error:
            self.close_with_error(error)
        self.server.begin()
        self.process_requests()
        self.server.end()
        if not self.greeted and self._splitter.pending > GREETING_BYTES:
            self.close_with_error("no handshake")

    def _check_four_letter_word(self, head: bytes) -> bytes:
        """A four-letter word is answered; all that was received is given back once it is known to be none."""
        answer = self.server.report.answer(head) if len(head) >= WORD_BYTES else b""
        self._head = None if answer is None else head
        if answer:
            self.transport.write(answer)
            self.close()
        return head if answer is None else b""

    @property
    def certificate(self) -> bytes | None:
        """What the client has shown in the handshake of TLS, which has verified it, in DER."""
        tls = self.transport.get_extra_info("ssl_object")
        certificate: bytes | None = tls.getpeercert(True) if tls else None
        return certificate

    def metrics(self) -> ConnectionRow:
        """What four-letter words tell of it."""
        session = self.server.engine.sessions.get(self.session_id)
        xid, op = _XID_AND_OP.unpack_from(self._last_head + bytes(8))
        (zxid,) = _ZXID.unpack_from(self._last_answer, 8)
        return ConnectionRow(
            *self.address,
            self.received,
            self.sent,
            self.queued,
            session_id=self.session_id,
            since_ms=self._since_ms,
            timeout_ms=session.timeout_ms if session else 0,
            last_op=_OP_NAMES.get(op, "NA") if self.admitted else "NA",
            last_xid=xid,
            last_zxid=zxid,
        )

    def process_requests(self) -> None:
        """As many requests as the output has room for."""
        if self._frames and self.has_room and self.server.failure is None:
            self.server.work(self, self._frames)
        if self._frames and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def requests_done(self, frames: int, last: bytes) -> None:
        """So many requests, of which that was the last."""
        if last:
            self.received += frames
            self._last_head = last[:8]

    @property
    def has_room(self) -> bool:
        return not (self._closing or self._stalled or self._output_bytes > ANSWERS_BYTES)

    @property
    def queued(self) -> int:
        return len(self._frames)

    @property
    def held(self) -> int:
        """Bytes of memory that wait for this client: to send the rest, or to take what is sent to it."""
        unsent = self.transport.get_write_buffer_size() + self._output_bytes
        return unsent + self._splitter.pending + sum(map(len, self._frames))

    def send(self, frame: bytes) -> None:
        """After the next flush."""
        self._output.append(frame)
        self._output_bytes += len(frame)

    def flush(self) -> None:
        """All that was to be sent is with the operating system, or waits for the client to take it."""
        try:
            if not self._lost:
                self._write()
                self._after_write()
        except Exception as error:
            self.close_with_error(error)

    def _write(self) -> None:
        """Encrypted, each frame is a record by itself: kazoo waits on the bare socket for what TLS has read already."""
        output = self._output
        if output:
            self.sent += len(output)
            self.server.moved += self._output_bytes
            self._last_answer = output[-1][:16]
            for piece in output if self._encrypted else (b"".join(output),):
                self.transport.write(piece)
            output.clear()
            self._output_bytes = 0

    def _after_write(self) -> None:
        if self._closing:
            self._close_transport()
        elif self.transport.get_write_buffer_size() > OUTPUT_BYTES:
            self.close_with_error(f"it does not take the {OUTPUT_BYTES} bytes sent to it")
        elif not self._stalled:
            self._resume()

    def _resume(self) -> None:
        self.process_requests()
        if self._reading_paused and not self._frames and not self._closing:
            self._reading_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._stalled = True

    def resume_writing(self) -> None:
        self._stalled = False
        self._resume()

    def close(self) -> None:
        """Nothing more is read; the connection ends when all was sent."""
        self._closing = True
        self.deadline = self.server.close_deadline()
        self._frames.clear()
        if not self._output:
            self._close_transport()

    def _close_transport(self) -> None:
        """Once: asyncio's TLS, closed a second time, forgets what an abort would end."""
        if not self.transport.is_closing():
            self.transport.close()

    def close_with_error(self, reason: object) -> None:
        """The connection is over, whatever waited to be sent. Said once; what nobody foresaw is said with its place."""
        if not self._broken:
            self._broken = True
            trace = reason if isinstance(reason, Exception) and not isinstance(reason, WireError) else None
            log.info("closing connection from %s:%s: %s", *self.address, reason, exc_info=trace)
            self.abort()

    def abort(self) -> None:
        self._closing = True
        self._frames.clear()
        self.transport.abort()
