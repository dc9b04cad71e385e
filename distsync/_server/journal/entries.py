"""The file format of the journal: a sequence of entries, each with a number and a CRC.

A record is a zxid and bytes. Records appended together form one entry, a group: their count, their
zxids, their lengths, and their bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

SECRET, SNAPSHOT_CHUNK, SNAPSHOT_END, GROUP = range(1, 5)
"""Kinds of entries: the server's secret (always first), a chunk of the snapshot, its end (empty), and a group."""

_HEAD = struct.Struct(">BqI")
_CRC = struct.Struct(">I")
HEAD_BYTES = _HEAD.size + _CRC.size


class JournalEntry(NamedTuple):
    """An entry. ``number`` counts all groups ever written; other entries have that of the last group before."""

    kind: int
    number: int
    payload: bytes


def pack_entry(kind: int, number: int, payload: bytes) -> bytes:
    head = _HEAD.pack(kind, number, len(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head))), payload))


def read_entries(file: IO[bytes], end: int) -> Iterator[JournalEntry]:
    """Iterate over the entries from the file's position to ``end``, or to the first invalid one."""
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
    """Pack one or more records into a group."""
    count = len(records)
    zxids, payloads = zip(*records, strict=True)
    return b"".join((struct.pack(f">i{count}q{count}i", count, *zxids, *map(len, payloads)), *payloads))


def split(group: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the records of a group."""
    (count,) = struct.unpack_from(">i", group)
    numbers = struct.unpack_from(f">{count}q{count}i", group, 4)
    at = 4 + 12 * count
    for zxid, length in zip(numbers[:count], numbers[count:], strict=True):
        yield zxid, group[at : at + length]
        at += length
