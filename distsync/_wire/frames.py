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

    __slots__ = ("limit", "_pending", "_needed")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()
        self._needed = 4

    @property
    def pending(self) -> int:
        """Bytes held back because their frame is not complete."""
        return len(self._pending)

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that ``piece`` completes. Raises WireError on a length that is not 1 to ``limit``; the frames
        before it are lost with the connection."""
        if self._pending:
            self._pending += piece
            if len(self._pending) < self._needed:
                return []
            piece = bytes(self._pending)
            self._pending.clear()
        return self._cut(piece)

    def _cut(self, stream: bytes) -> list[bytes]:
        """The rest is kept until there is enough of it for its length, then for its frame."""
        frames, at, size, limit, read = [], 0, len(stream), self.limit, _LENGTH.unpack_from
        self._needed = 4
        while size - at >= 4:
            (length,) = read(stream, at)
            if not 0 < length <= limit:
                raise WireError(f"a frame of {length} bytes, the limit is {limit}")
            end = at + 4 + length
            if end > size:
                self._needed = 4 + length
                break
            frames.append(stream[at + 4 : end])
            at = end
        self._pending += stream[at:]
        return frames
