"""What a journal's file is made of: entries, one after the other, each with a number and a CRC.

Rules for this file: layouts only; it opens no file. A record is a zxid and bytes; those that are appended together are
one entry: first how many there are, then their zxids, then their lengths, then one after the other.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

SECRET, PART, WHOLE, GROUP = range(1, 5)
"""The server's secret, which comes first; a part of the snapshot; its end, with nothing in it; records."""

_HEAD = struct.Struct(">BqI")
_CRC = struct.Struct(">I")
HEAD_BYTES = _HEAD.size + _CRC.size


class JournalEntry(NamedTuple):
    """``number`` is a group's own, of all groups ever written; the others' is that of the last group before."""

    kind: int
    number: int
    payload: bytes


def pack_entry(kind: int, number: int, payload: bytes) -> bytes:
    head = _HEAD.pack(kind, number, len(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head))), payload))


def read_entries(file: IO[bytes], end: int) -> Iterator[JournalEntry]:
    """The entries from the file's position on, up to the first one that is not valid, or to ``end``."""
    while (entry := _read_entry(file, end)) is not None:
        yield entry


def _read_entry(file: IO[bytes], end: int) -> JournalEntry | None:
    head, crc = file.read(_HEAD.size), file.read(_CRC.size)
    if len(crc) < _CRC.size:
        return None
    kind, number, length = _HEAD.unpack(head)
    payload = file.read(length) if file.tell() + length <= end else b""
    valid = len(payload) == length and _CRC.unpack(crc) == (zlib.crc32(payload, zlib.crc32(head)),)
    return JournalEntry(kind, number, payload) if valid else None


def join(records: Sequence[tuple[int, bytes]]) -> bytes:
    """One or more records."""
    count = len(records)
    zxids, payloads = zip(*records, strict=True)
    return b"".join((struct.pack(f">i{count}q{count}i", count, *zxids, *map(len, payloads)), *payloads))


def split(group: bytes) -> Iterator[tuple[int, bytes]]:
    """What was joined."""
    (count,) = struct.unpack_from(">i", group)
    numbers = struct.unpack_from(f">{count}q{count}i", group, 4)
    at = 4 + 12 * count
    for zxid, length in zip(numbers[:count], numbers[count:], strict=True):
        yield zxid, group[at : at + length]
        at += length
