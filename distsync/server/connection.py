"""One client's TCP connection: bytes to frames, frames to the rim one after the other, answers out.

Rules for this file: it and rim.py alone know asyncio. It knows no request: only frames and the words before them.

Output is bounded: a connection whose answers pile up is not worked for and not read from until it has taken them;
notifications, which come unasked, may pile up further, and then cost the connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from distsync.wire.frames import FrameSplitter, WireError, framed

if TYPE_CHECKING:
    from distsync.server.rim import Rim

log = logging.getLogger("distsync.server")

WORD_BYTES = 4

ANSWERS_BYTES = 1 << 20
"""Not yet taken by the client: more of it, and the client's further requests wait."""

OUTPUT_BYTES = 64 << 20
"""Not yet taken by the client: more of it, and the connection is closed; the client connects again and reads anew."""


class Connection(asyncio.Protocol):
    """One client's TCP connection. It keeps order: requests are worked for one after the other."""

    def __init__(self, rim: Rim) -> None:
        self.rim = rim
        self.peer = 0
        self.since = time.monotonic()
        self.greeted = False
        self.received = self.sent = 0
        self.address: tuple[str, int] = ("", 0)
        self._head: bytes | None = b""  # None once it is known that no four-letter word is coming
        self._splitter = FrameSplitter(rim.engine.config.jute_maxbuffer)
        self._frames: deque[bytes] = deque()
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._stalled = self._reading_paused = self._closing = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.address = transport.get_extra_info("peername")[:2]
        link = transport.get_extra_info("socket")
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.transport.set_write_buffer_limits(high=ANSWERS_BYTES)
        self.rim.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = self._lost = True
        self._frames.clear()
        self.rim.remove(self)

    def data_received(self, piece: bytes) -> None:
        if self._head is not None:
            piece = self._look_for_word(self._head + piece)
        try:
            self._frames.extend(self._splitter.feed(piece))
        except WireError as error:
            self.break_off(error)
        self.work()

    def _look_for_word(self, head: bytes) -> bytes:
        """A four-letter word is answered; all that was received is given back once it is known to be none."""
        answer = self.rim.answer(head) if len(head) >= WORD_BYTES else b""
        self._head = None if answer is None else head
        if answer:
            self.transport.write(answer)
            self.close()
        return head if answer is None else b""

    def work(self) -> None:
        """As many requests as the output has room for."""
        while self._frames and not self._closing and not self._choked:
            self.received += 1
            self.rim.handle(self, self._frames.popleft())
        if self._frames and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    @property
    def _choked(self) -> bool:
        return self._stalled or self._output_bytes > ANSWERS_BYTES

    @property
    def queued(self) -> int:
        return len(self._frames)

    def send(self, payload: bytes) -> None:
        """After the next flush."""
        self.sent += 1
        self._output.append(framed(payload))
        self._output_bytes += len(payload) + 4

    def flush(self) -> None:
        """All that was to be sent is with the operating system, or waits for the client to take it."""
        if self._lost:
            return
        self.transport.write(b"".join(self._output))
        self._output.clear()
        self._output_bytes = 0
        if self._closing:
            self.transport.close()
        elif self.transport.get_write_buffer_size() > OUTPUT_BYTES:
            self.break_off(f"it does not take the {OUTPUT_BYTES} bytes sent to it")
        elif not self._stalled:
            self._go_on()

    def _go_on(self) -> None:
        self.work()
        if self._reading_paused and not self._frames and not self._closing:
            self._reading_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._stalled = True

    def resume_writing(self) -> None:
        self._stalled = False
        self._go_on()

    def close(self) -> None:
        """Nothing more is read; the connection ends when all was sent."""
        self._closing = True
        self._frames.clear()
        if not self._output:
            self.transport.close()

    def break_off(self, reason: object) -> None:
        """The connection is over, whatever waited to be sent."""
        log.info("connection of %s:%s closed: %s", *self.address, reason)
        self.abort()

    def abort(self) -> None:
        self._closing = True
        self._frames.clear()
        self.transport.abort()
