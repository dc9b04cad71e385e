"""Frames on a byte stream: a length of four bytes, big-endian, then that many bytes."""

from __future__ import annotations

import struct

from distsync.errors import PeerError

MAX_FRAME_BYTES = 0xFFFFF
"""Default maximum size of a frame: that of ZooKeeper's jute.maxbuffer."""

_LENGTH = struct.Struct(">i")


class WireError(PeerError, ValueError):
    """The input violates the ZooKeeper protocol, and the connection must be closed. Its ``args`` are the reason."""


def framed(payload: bytes) -> bytes:
    """Return ``payload`` with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


class FrameSplitter:
    """Splits a stream, which may arrive in pieces of any size, into frames."""

    __slots__ = ("limit", "_pending", "_needed")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._pending = bytearray()
        self._needed = 4

    @property
    def pending(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._pending)

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the frames that ``piece`` completes.

        Raises WireError if the length of a frame is not 1 to ``limit``. The frames before it are then
        lost.
        """
        if self._pending:
            self._pending += piece
            if len(self._pending) < self._needed:
                return []
            piece = bytes(self._pending)
            self._pending.clear()
        return self._cut(piece)

    def _cut(self, stream: bytes) -> list[bytes]:
        """Split into frames, and buffer an incomplete one at the end."""
        frames, at, size, limit, read = [], 0, len(stream), self.limit, _LENGTH.unpack_from
        self._needed = 4
        while size - at >= 4:
            (length,) = read(stream, at)
            if not 0 < length <= limit:
                raise WireError(f"frame of {length} bytes, allowed are 1 to {limit}")
            end = at + 4 + length
            if end > size:
                self._needed = 4 + length
                break
            frames.append(stream[at + 4 : end])
            at = end
        self._pending += stream[at:]
        return frames
