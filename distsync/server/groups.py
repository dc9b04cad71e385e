"""Records that are appended together, as one piece of bytes.

Rules for this file: pure. A record is a zxid and bytes. First how many there are, then their zxids, then their lengths,
then one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence


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
