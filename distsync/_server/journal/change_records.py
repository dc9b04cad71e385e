"""The changes of transactions and the content of snapshots, as records and as bytes.

Invariant: a change describes the outcome of a request, not the request. Applying it needs no check,
and the same changes in the same order produce the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distsync._wire.field_codec import ACLS, BOOL, BUFFER, INT, LONG, STRING, Field
from distsync._wire.frames import WireError
from distsync._wire.records import OPEN_ACL, Acl
from distsync.errors import DistsyncError


class UnreadableStateError(DistsyncError, ValueError):
    """A stored transaction or snapshot is invalid. Its ``args`` are the reason."""

    template = "cannot read the stored state: {0}"


TTL_OWNER = -(1 << 56)
"""Base of the owner of a TTL node, which is this number plus the TTL in ms, as in ZooKeeper. Negative, unlike
session ids."""

MAX_TTL_MS = (1 << 40) - 1


class CreateNode(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int
    """Session id, 0 for none, or an encoded TTL (see TTL_OWNER)."""
    container: bool


class DeleteNode(NamedTuple):
    path: str


class SetNodeData(NamedTuple):
    path: str
    data: bytes | None


class SetNodeAcl(NamedTuple):
    path: str
    acl: tuple[Acl, ...]


class OpenSession(NamedTuple):
    id: int
    timeout_ms: int


class ResizeSession(NamedTuple):
    """A session was attached again with another timeout."""

    id: int
    timeout_ms: int


class CloseSession(NamedTuple):
    """A session ended, and its ephemeral nodes were deleted."""

    id: int


class StoredHead(NamedTuple):
    """The first record of a snapshot. Its counts show whether the rest is complete."""

    zxid: int
    last_session_id: int
    sessions: int
    nodes: int


class StoredNode(NamedTuple):
    """A znode in a snapshot."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int
    container: bool
    counters: tuple[int, ...]
    """In the order of TreeNode.COUNTERS."""


NodeChange = CreateNode | DeleteNode | SetNodeData | SetNodeAcl
Change = NodeChange | OpenSession | ResizeSession | CloseSession
Stored = Change | StoredHead | StoredNode

_NO_ACLS = ACLS.write(())


def _write_acl(acl: tuple[Acl, ...]) -> bytes:
    """Write an ACL. The open ACL is written as an empty one, which no node has."""
    return _NO_ACLS if acl is OPEN_ACL else ACLS.write(acl)


def _read_acl(stored: bytes, offset: int) -> tuple[tuple[Acl, ...], int]:
    acl, offset = ACLS.read(stored, offset)
    return acl or OPEN_ACL, offset


_ACL: Field[tuple[Acl, ...]] = Field(_write_acl, _read_acl)
_CREATE_FIELDS = (STRING, BUFFER, _ACL, LONG, BOOL)

_NUMBERS = struct.Struct(">5q3i")


def _write_counters(counters: tuple[int, ...]) -> bytes:
    return _NUMBERS.pack(*counters)


def _read_counters(stored: bytes, offset: int) -> tuple[tuple[int, ...], int]:
    return _NUMBERS.unpack_from(stored, offset), offset + _NUMBERS.size


_COUNTERS: Field[tuple[int, ...]] = Field(_write_counters, _read_counters)

_FORMS: dict[int, tuple[type[Stored], tuple[Field[Any], ...]]] = {
    1: (CreateNode, _CREATE_FIELDS),
    2: (DeleteNode, (STRING,)),
    3: (SetNodeData, (STRING, BUFFER)),
    4: (SetNodeAcl, (STRING, _ACL)),
    5: (OpenSession, (LONG, INT)),
    6: (ResizeSession, (LONG, INT)),
    7: (CloseSession, (LONG,)),
    8: (StoredHead, (LONG, LONG, LONG, LONG)),
    9: (StoredNode, (*_CREATE_FIELDS, _COUNTERS)),
}
"""Fields by number of the record type. A number must never be reused, so that old journals stay readable."""

_WRITERS = {kind: (bytes([number]), fields) for number, (kind, fields) in _FORMS.items()}
_TRANSACTION = struct.Struct(">qq")
_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__


# Faster formats of the most frequent records, which have data and the open ACL. All numbers come first.
_USUAL_CREATE, _USUAL_STORED = 10, 11
_CREATE = struct.Struct(">Biiq?")
_CREATED = struct.Struct(">qqBiiq?")
_STORED = struct.Struct(">Biiq?5q3i")
_TEXT = struct.Struct(">Bi")
_LENGTH = struct.Struct(">i")


def _pack_create(change: CreateNode) -> bytes:
    path, data, acl, owner, container = change
    if data is None or acl is not OPEN_ACL:
        return _pack_any(change)
    name = path.encode()
    return _CREATE.pack(_USUAL_CREATE, len(name), len(data), owner, container) + name + data


def _unpack_create(stored: bytes, offset: int) -> tuple[CreateNode, int]:
    _, length, size, owner, container = _CREATE.unpack_from(stored, offset)
    path, data, end = _two_parts(stored, offset + _CREATE.size, length, size)
    return _new(CreateNode, (path, data, OPEN_ACL, owner, container)), end


def _pack_stored(node: StoredNode) -> bytes:
    path, data, acl, owner, container, counters = node
    if data is None or acl is not OPEN_ACL:
        return _pack_any(node)
    name = path.encode()
    return _STORED.pack(_USUAL_STORED, len(name), len(data), owner, container, *counters) + name + data


def _unpack_stored(stored: bytes, offset: int) -> tuple[StoredNode, int]:
    _, length, size, owner, container, *counters = _STORED.unpack_from(stored, offset)
    path, data, end = _two_parts(stored, offset + _STORED.size, length, size)
    return _new(StoredNode, (path, data, OPEN_ACL, owner, container, counters)), end


def _two_parts(stored: bytes, offset: int, length: int, size: int) -> tuple[str, bytes, int]:
    middle, end = offset + length, offset + length + size
    if length < 0 or size < 0 or end > len(stored):
        raise WireError(f"record with lengths {length} and {size} exceeds {len(stored) - offset} bytes")
    return stored[offset:middle].decode(), stored[middle:end], end


def _pack_delete(change: DeleteNode) -> bytes:
    name = change[0].encode()
    return _TEXT.pack(2, len(name)) + name


def _pack_set_data(change: SetNodeData) -> bytes:
    path, data = change
    if data is None:
        return _pack_any(change)
    name = path.encode()
    return b"".join((_TEXT.pack(3, len(name)), name, _LENGTH.pack(len(data)), data))


def _pack_any(record: Stored) -> bytes:
    number, fields = _WRITERS[type(record)]
    return number + b"".join([field.write(value) for field, value in zip(fields, record, strict=True)])


_PACK: dict[type, Callable[[Any], bytes]] = {
    **dict.fromkeys(_WRITERS, _pack_any),
    CreateNode: _pack_create,
    DeleteNode: _pack_delete,
    SetNodeData: _pack_set_data,
    StoredNode: _pack_stored,
}
_UNPACK: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    _USUAL_CREATE: _unpack_create,
    _USUAL_STORED: _unpack_stored,
}


def pack(record: Stored) -> bytes:
    return _PACK[type(record)](record)


def unpack(stored: bytes, offset: int = 0) -> list[Any]:
    """Return the packed records from ``offset`` on."""
    records = []
    try:
        while offset < len(stored):
            record, offset = _UNPACK.get(stored[offset], _unpack_any)(stored, offset)
            records.append(record)
    except (struct.error, WireError, KeyError, UnicodeDecodeError) as error:
        raise UnreadableStateError(f"{error} at byte {offset} of {len(stored)}") from None
    return records


def _unpack_any(stored: bytes, offset: int) -> tuple[Any, int]:
    kind, fields = _FORMS[stored[offset]]
    offset += 1
    values = []
    for field in fields:
        value, offset = field.read(stored, offset)
        values.append(value)
    return kind(*values), offset


def pack_transaction(zxid: int, time_ms: int, changes: Sequence[Change]) -> bytes:
    """Pack a transaction. That of a failed write has no changes, but consumes a zxid."""
    return _TRANSACTION.pack(zxid, time_ms) + b"".join(map(pack, changes))


def pack_change(zxid: int, time_ms: int, change: Change) -> bytes:
    """Pack a transaction of one change, faster than `pack_transaction`."""
    if type(change) is CreateNode:
        path, data, acl, owner, container = change
        if data is not None and acl is OPEN_ACL:
            name = path.encode()
            head = _CREATED.pack(zxid, time_ms, _USUAL_CREATE, len(name), len(data), owner, container)
            return b"".join((head, name, data))
    return _TRANSACTION.pack(zxid, time_ms) + _PACK[type(change)](change)


def unpack_transaction(payload: bytes) -> tuple[int, int, list[Change]]:
    """Return zxid, time in ms, and changes."""
    if len(payload) < _TRANSACTION.size:
        raise UnreadableStateError(f"transaction of only {len(payload)} bytes")
    zxid, time_ms = _TRANSACTION.unpack_from(payload)
    return zxid, time_ms, unpack(payload, _TRANSACTION.size)
