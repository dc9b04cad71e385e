"""Frames on a byte stream: four bytes of big-endian length, then that many bytes.

Rules for this file: pure; it knows lengths, not contents.
"""

from __future__ import annotations

import struct

from distsync.errors import PeerError

MAX_FRAME_BYTES = 0xFFFFF
"""ZooKeeper's default jute.maxbuffer."""

_LENGTH = struct.Struct(">i")


class WireError(PeerError, ValueError):
    """What came in is not the ZooKeeper protocol: the connection has to be closed. Fields: what is wrong."""


def framed(payload: bytes) -> bytes:
    """``payload`` with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


class FrameSplitter:
    """Cuts a stream into frames, whatever pieces it arrives in."""

    __slots__ = ("limit", "_pending")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()

    @property
    def pending(self) -> int:
        """Bytes held back because their frame is not complete."""
        return len(self._pending)

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that ``piece`` completes. Raises WireError on a length that is not 1 to ``limit``; the frames
        before it are lost with the connection."""
        if not self._pending:
            frames, at = self._cut(piece)
            self._pending += piece[at:]
            return frames
        self._pending += piece
        frames, at = self._cut(self._pending)
        del self._pending[:at]
        return frames

    def _cut(self, stream: bytes | bytearray) -> tuple[list[bytes], int]:
        frames, at, size, limit, read = [], 0, len(stream), self.limit, _LENGTH.unpack_from
        while size - at >= 4:
            (length,) = read(stream, at)
            if not 0 < length <= limit:
                raise WireError(f"a frame of {length} bytes, the limit is {limit}")
            end = at + 4 + length
            if end > size:
                break
            frames.append(bytes(stream[at + 4 : end]))
            at = end
        return frames, at
