"""Encoding of the fields that records consist of.

``read(frame, offset)`` returns the value and the offset after it. It raises WireError if the field is
invalid, and WireError or struct.error if the frame ends within it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distsync._wire.frames import WireError
from distsync._wire.records import OPEN_ACL, Acl, Stat

Value = TypeVar("Value")
Reader = Callable[[bytes, int], tuple[Any, int]]

_INT = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")
_NULL = _INT.pack(-1)
_NULL_LENGTH = (-1,)
_unpack_int = _INT.unpack_from
_new_tuple: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__


@dataclass(frozen=True)
class Field(Generic[Value]):
    """How to write and read a kind of field."""

    write: Callable[[Value], bytes]
    read: Callable[[bytes, int], tuple[Value, int]]


def number(layout: str) -> Field[Any]:
    """Return a field for a number or bool, with the format of the struct module."""
    packing = struct.Struct(layout)
    size = packing.size

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        return packing.unpack_from(frame, offset)[0], offset + size

    return Field(packing.pack, read)


def write_buffer(value: bytes | None) -> bytes:
    return _NULL if value is None else _INT.pack(len(value)) + value


def read_buffer(frame: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _unpack_int(frame, offset)
    end = offset + 4 + length
    if 0 <= length and end <= len(frame):
        return frame[offset + 4 : end], end
    if length == -1:
        return None, offset + 4
    raise WireError(f"field of {length} bytes in a frame of {len(frame)}")


def write_string(value: str) -> bytes:
    encoded = value.encode()
    return _INT.pack(len(encoded)) + encoded


def read_string(frame: bytes, offset: int) -> tuple[str, int]:
    """Read a string. Null becomes "". Invalid UTF-8 becomes U+FFFD, which no path may contain."""
    (length,) = _unpack_int(frame, offset)
    end = offset + 4 + length
    if 0 <= length and end <= len(frame):
        return frame[offset + 4 : end].decode("utf-8", "replace"), end
    return "", read_buffer(frame, offset)[1]


def read_path(frame: bytes, offset: int) -> tuple[str, int]:
    """Read a string that must not be null."""
    (length,) = _unpack_int(frame, offset)
    end = offset + 4 + length
    if 0 <= length and end <= len(frame):
        return frame[offset + 4 : end].decode("utf-8", "replace"), end
    if length == -1:
        raise WireError("path is null")
    return read_string(frame, offset)


def read_count(frame: bytes, offset: int, nullable: bool) -> tuple[int, int]:
    """Read the length of a vector; a negative one counts as 0.

    Each item has at least one byte, so a length above the size of the frame is invalid.
    """
    (count,) = _INT.unpack_from(frame, offset)
    if count > len(frame) or (count == -1 and not nullable):
        raise WireError(f"list of {count} items in a frame of {len(frame)} bytes")
    return max(count, 0), offset + 4


def vector(item: Field[Value], nullable: bool = False) -> Field[tuple[Value, ...]]:
    """Return a field for a list of items. Null, if allowed, is read as an empty list."""

    def write(values: tuple[Value, ...]) -> bytes:
        return _INT.pack(len(values)) + b"".join(map(item.write, values))

    def read(frame: bytes, offset: int) -> tuple[tuple[Value, ...], int]:
        count, offset = read_count(frame, offset, nullable)
        values = []
        for _ in range(count):
            value, offset = item.read(frame, offset)
            values.append(value)
        return tuple(values), offset

    return Field(write, read)


def _write_acl(acl: Acl) -> bytes:
    return _INT.pack(acl.permissions) + write_string(acl.scheme) + write_string(acl.id)


_SCHEMES_WITH_ID = ("world", "digest", "ip")


def _read_acl(frame: bytes, offset: int) -> tuple[Acl, int]:
    (permissions,) = _INT.unpack_from(frame, offset)
    scheme, offset = read_string(frame, offset + 4)
    id, offset = read_path(frame, offset) if scheme in _SCHEMES_WITH_ID else read_string(frame, offset)
    return Acl(permissions, scheme, id), offset


_ACL_VECTOR = vector(Field(_write_acl, _read_acl), nullable=True)
_OPEN_ACL = _ACL_VECTOR.write(OPEN_ACL)
_OPEN_ACL_SIZE = len(_OPEN_ACL)


def create_reader(kind: type, read_generic: Reader) -> Reader:
    """Return a fast reader of the four fields of a create.

    An unusual one (null data, not the open ACL, or malformed) is read by ``read_generic``.
    """

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        (path_bytes,) = _unpack_int(frame, offset)
        data_at = offset + 4 + path_bytes
        (data_bytes,) = _unpack_int(frame, data_at) if path_bytes >= 0 else _NULL_LENGTH
        acl_at = data_at + 4 + data_bytes
        if data_bytes < 0 or not frame.startswith(_OPEN_ACL, acl_at):
            return read_generic(frame, offset)
        path = frame[offset + 4 : data_at].decode("utf-8", "replace")
        flags_at = acl_at + _OPEN_ACL_SIZE
        return _new_tuple(
            kind, (path, frame[data_at + 4 : acl_at], OPEN_ACL, _unpack_int(frame, flags_at)[0])
        ), flags_at + 4

    return read


def _acls() -> Field[tuple[Acl, ...]]:
    """Return the field for ACLs. Nearly all are the open ACL, which is recognised by its bytes."""

    def read(frame: bytes, offset: int) -> tuple[tuple[Acl, ...], int]:
        return (
            (OPEN_ACL, offset + len(_OPEN_ACL))
            if frame.startswith(_OPEN_ACL, offset)
            else _ACL_VECTOR.read(frame, offset)
        )

    return Field(_ACL_VECTOR.write, read)


def _write_stat(stat: Stat) -> bytes:
    return _STAT.pack(*stat)


def _read_stat(frame: bytes, offset: int) -> tuple[Stat, int]:
    return Stat._make(_STAT.unpack_from(frame, offset)), offset + _STAT.size


INT = number(">i")
LONG = number(">q")
BOOL = number(">?")
BUFFER: Field[bytes | None] = Field(write_buffer, read_buffer)
STRING: Field[str] = Field(write_string, read_string)
PATH: Field[str] = Field(write_string, read_path)
PATHS = vector(PATH)
ACLS = _acls()
STAT: Field[Stat] = Field(_write_stat, _read_stat)
