"""One client's TCP connection: splits its input into frames, passes them to the server, sends replies.

Output is bounded: while too many replies are queued, the connection is neither served nor read.
Notifications may queue further, and then the connection is closed. Time is bounded, too: there is a
deadline for the handshake and one for the last replies. In between, the session timeout applies,
which an incomplete request does not extend.
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
from distsync._wire.codes import OpCode
from distsync._wire.frames import FrameSplitter, WireError, framed
from distsync._wire.message_codec import encode_connect_response, encode_event

log = logging.getLogger("distsync.server")

HANDSHAKE_BYTES = 4096
"""Size of incomplete input before the handshake at which the connection is closed. Far above any handshake."""

PENDING_REPLY_BYTES = 1 << 20
"""Size of unsent output above which further requests of the client wait."""

OUTPUT_BYTES = 64 << 20
"""Size of unsent output above which the connection is closed. The client can reconnect and read again."""

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
        transferred_bytes: Bytes received and sent since the server last checked the buffers.
        failure: Why the server stops; None while it serves.
    """

    engine: Engine
    statistics: ServerStatistics
    encrypted: bool
    buffer: memoryview
    transferred_bytes: int
    failure: Exception | None

    def add(self, connection: Connection) -> None: ...

    def remove(self, connection: Connection) -> None: ...

    def begin_input(self) -> None: ...

    def process_frames(self, connection: Connection, frames: deque[bytes]) -> None: ...

    def end_input(self) -> None: ...

    def close_deadline(self) -> float: ...


class Connection(asyncio.BufferedProtocol):
    """One client's TCP connection. Its requests are processed one at a time, in order."""

    def __init__(self, server: ConnectionServer) -> None:
        self.server = server
        self.peer_id = 0
        self.session_id = 0
        self.handshake_done = False
        self.admitted = False
        self.deadline: float | None = None  # for the handshake, later for the last replies
        self.received = self.sent = 0
        self.address: tuple[str, int] = ("", 0)
        self._head: bytes | None = b""  # first bytes; None once they are no four-letter word
        self._since_ms = time.time_ns() // 1_000_000
        self._last_head = bytes(8)  # header of the last request
        self._last_reply = bytes(16)  # length and header of the last reply
        self._splitter = FrameSplitter(server.engine.config.jute_maxbuffer)
        self._encrypted = server.encrypted
        self._frames: deque[bytes] = deque()
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._stalled = self._reading_paused = self._closing = self._broken = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self.address = (transport.get_extra_info("peername") or self.address)[:2]  # None if already reset
        self.transport.set_write_buffer_limits(high=PENDING_REPLY_BYTES)
        sock = transport.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = self._lost = True
        self._frames.clear()
        self.server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer, from which input is copied at once.

        It must be a memoryview, because asyncio's TLS writes into slices of it.
        """
        return self.server.buffer

    def buffer_updated(self, count: int) -> None:
        data = bytes(self.server.buffer[:count])
        self.server.transferred_bytes += count
        if self._head is not None:
            data = self._check_four_letter_word(self._head + data)
        try:
            self._frames.extend(self._splitter.feed(data))
        except WireError as error:
            self.close_with_error(error)
        self.server.begin_input()
        self.process_requests()
        self.server.end_input()
        if not self.handshake_done and self._splitter.pending > HANDSHAKE_BYTES:
            self.close_with_error("no handshake")

    def _check_four_letter_word(self, head: bytes) -> bytes:
        """Answer a four-letter word. Return all input once it is known not to start with one."""
        answer = self.server.statistics.answer(head) if len(head) >= WORD_BYTES else b""
        self._head = None if answer is None else head
        if answer:
            self.transport.write(answer)
            self.close()
        return head if answer is None else b""

    @property
    def certificate(self) -> bytes | None:
        """The client's TLS certificate in DER, verified by the TLS handshake; None if it has none."""
        tls = self.transport.get_extra_info("ssl_object")
        certificate: bytes | None = tls.getpeercert(True) if tls else None
        return certificate

    def metrics(self) -> ConnectionRow:
        """Return what four-letter words report about the connection."""
        session = self.server.engine.sessions.get(self.session_id)
        xid, op = _XID_AND_OP.unpack_from(self._last_head + bytes(8))
        (zxid,) = _ZXID.unpack_from(self._last_reply, 8)
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
        """Process as many requests as there is room for their replies."""
        if self._frames and self.has_room and self.server.failure is None:
            self.server.process_frames(self, self._frames)
        if self._frames and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def requests_done(self, frames: int, last: bytes) -> None:
        """Record that ``frames`` requests were processed, of which ``last`` was the last."""
        if last:
            self.received += frames
            self._last_head = last[:8]

    @property
    def has_room(self) -> bool:
        return not (self._closing or self._stalled or self._output_bytes > PENDING_REPLY_BYTES)

    @property
    def queued(self) -> int:
        return len(self._frames)

    @property
    def buffered_bytes(self) -> int:
        """Size in bytes of the buffers of incomplete or unprocessed input and of unsent output."""
        unsent = self.transport.get_write_buffer_size() + self._output_bytes
        return unsent + self._splitter.pending + sum(map(len, self._frames))

    def send(self, frame: bytes) -> None:
        """Queue a frame for the next flush."""
        self._output.append(frame)
        self._output_bytes += len(frame)

    def flush(self) -> None:
        """Pass queued frames to the transport, then continue with requests if there is room."""
        try:
            if not self._lost:
                self._write()
                self._after_write()
        except Exception as error:
            self.close_with_error(error)

    def _write(self) -> None:
        """Write the queued frames.

        With TLS, each frame is written as a record of its own: kazoo waits for the plain socket to
        become readable, and would not notice frames that TLS has already decrypted.
        """
        output = self._output
        if output:
            self.sent += len(output)
            self.server.transferred_bytes += self._output_bytes
            self._last_reply = output[-1][:16]
            for frame in output if self._encrypted else (b"".join(output),):
                self.transport.write(frame)
            output.clear()
            self._output_bytes = 0

    def _after_write(self) -> None:
        if self._closing:
            self._close_transport()
        elif self.transport.get_write_buffer_size() > OUTPUT_BYTES:
            self.close_with_error(f"the client has not read {OUTPUT_BYTES} bytes of output")
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
        """Stop reading, and close the connection once everything queued was sent."""
        self._closing = True
        self.deadline = self.server.close_deadline()
        self._frames.clear()
        if not self._output:
            self._close_transport()

    def _close_transport(self) -> None:
        """Close the transport once, because after a second close asyncio's TLS cannot be aborted."""
        if not self.transport.is_closing():
            self.transport.close()

    def close_with_error(self, reason: object) -> None:
        """Abort the connection and log the reason once, with traceback if it is an unexpected exception."""
        if not self._broken:
            self._broken = True
            trace = reason if isinstance(reason, Exception) and not isinstance(reason, WireError) else None
            log.info("closing connection from %s:%s: %s", *self.address, reason, exc_info=trace)
            self.abort()

    def abort(self) -> None:
        self._closing = True
        self._frames.clear()
        self.transport.abort()
