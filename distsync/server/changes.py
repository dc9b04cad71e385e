"""What a transaction does, as records and as bytes: the only language of the journal.

Rules for this file: records and layouts. A change says what was decided, never what was asked: applying it needs no
check, and the same changes in the same order lead to the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distsync.errors import DistsyncError
from distsync.wire.fields import ACLS, BOOL, BUFFER, INT, LONG, STRING, Field
from distsync.wire.frames import WireError
from distsync.wire.records import OPEN_ACL, Acl


class UnreadableStateError(DistsyncError, ValueError):
    """A stored transaction or snapshot makes no sense. Fields: what is wrong."""

    template = "the stored state cannot be read: {0}"


TTL_OWNER = -(1 << 56)
"""An owner that stands for a time to live is the time in ms on top of this number, as ZooKeeper has it: below zero,
as no session is."""

MAX_TTL_MS = (1 << 40) - 1


class CreateNode(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int
    """A session, 0 for none, or a time to live."""
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
    """The session got another time-out, as it was attached again."""

    id: int
    timeout_ms: int


class CloseSession(NamedTuple):
    """The session ended, and its ephemeral nodes are gone."""

    id: int


class StoredHead(NamedTuple):
    """The first record of a snapshot; the counts tell whether the rest is whole."""

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
    """In the order of Node.COUNTERS."""


NodeChange = CreateNode | DeleteNode | SetNodeData | SetNodeAcl
Change = NodeChange | OpenSession | ResizeSession | CloseSession
Stored = Change | StoredHead | StoredNode

_NO_ACLS = ACLS.write(())


def _write_acl(acl: tuple[Acl, ...]) -> bytes:
    """The open ACL, which nearly every node has, is written as none: no node is without."""
    return _NO_ACLS if acl is OPEN_ACL else ACLS.write(acl)


def _read_acl(stored: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    acl, at = ACLS.read(stored, at)
    return acl or OPEN_ACL, at


_ACL: Field[tuple[Acl, ...]] = Field(_write_acl, _read_acl)
_CREATED = (STRING, BUFFER, _ACL, LONG, BOOL)

_NUMBERS = struct.Struct(">5q3i")


def _write_counters(counters: tuple[int, ...]) -> bytes:
    return _NUMBERS.pack(*counters)


def _read_counters(stored: bytes, at: int) -> tuple[tuple[int, ...], int]:
    return _NUMBERS.unpack_from(stored, at), at + _NUMBERS.size


_COUNTERS: Field[tuple[int, ...]] = Field(_write_counters, _read_counters)

_FORMS: dict[int, tuple[type[Stored], tuple[Field[Any], ...]]] = {
    1: (CreateNode, _CREATED),
    2: (DeleteNode, (STRING,)),
    3: (SetNodeData, (STRING, BUFFER)),
    4: (SetNodeAcl, (STRING, _ACL)),
    5: (OpenSession, (LONG, INT)),
    6: (ResizeSession, (LONG, INT)),
    7: (CloseSession, (LONG,)),
    8: (StoredHead, (LONG, LONG, LONG, LONG)),
    9: (StoredNode, (*_CREATED, _COUNTERS)),
}
"""Numbers are never used again for something else: old journals stay readable."""

_WRITERS = {kind: (bytes([number]), fields) for number, (kind, fields) in _FORMS.items()}
_TRANSACTION = struct.Struct(">qq")


_PATH = struct.Struct(">Bi")
_LENGTH = struct.Struct(">i")
_OPEN_END = struct.Struct(">iq?")


def _pack_create(change: CreateNode) -> bytes:
    path, data, acl, owner, container = change
    if data is None or acl is not OPEN_ACL:
        return _pack_any(change)
    name = path.encode()
    head, length = _PATH.pack(1, len(name)), _LENGTH.pack(len(data))
    return b"".join((head, name, length, data, _OPEN_END.pack(0, owner, container)))


def _pack_delete(change: DeleteNode) -> bytes:
    name = change.path.encode()
    return _PATH.pack(2, len(name)) + name


def _pack_set_data(change: SetNodeData) -> bytes:
    path, data = change
    if data is None:
        return _pack_any(change)
    name = path.encode()
    return b"".join((_PATH.pack(3, len(name)), name, _LENGTH.pack(len(data)), data))


_QUICK: dict[type, Callable[[Any], bytes]] = {
    CreateNode: _pack_create,
    DeleteNode: _pack_delete,
    SetNodeData: _pack_set_data,
}
"""The same bytes as _pack_any, for what is written most."""


def pack(record: Stored) -> bytes:
    return _QUICK.get(type(record), _pack_any)(record)


def _pack_any(record: Stored) -> bytes:
    number, fields = _WRITERS[type(record)]
    return number + b"".join([field.write(value) for field, value in zip(fields, record, strict=True)])


def unpack(stored: bytes, at: int = 0) -> list[Any]:
    """The records that ``pack`` wrote one after the other, from ``at`` on."""
    records = []
    try:
        while at < len(stored):
            quick = _QUICK_READS.get(stored[at])
            record, at = (quick and quick(stored, at)) or _unpack_any(stored, at)
            records.append(record)
    except (struct.error, WireError, KeyError, UnicodeError) as error:
        raise UnreadableStateError(f"{error} at byte {at} of {len(stored)}") from None
    return records


def _unpack_usual(kind: type, end: struct.Struct) -> Callable[[bytes, int], tuple[Any, int] | None]:
    """Reads a path, data, the open ACL and numbers; what is not of this form is left to _unpack_any."""
    length_of, end_of, size = _LENGTH.unpack_from, end.unpack_from, end.size
    make, counted = tuple.__new__, kind is StoredNode

    def read(stored: bytes, at: int) -> tuple[Any, int] | None:
        path_end = at + 5 + length_of(stored, at + 1)[0]
        (length,) = length_of(stored, path_end)
        end_at = path_end + 4 + length
        numbers = end_of(stored, end_at)
        if length < 0 or numbers[0]:
            return None
        made = (stored[at + 5 : path_end].decode(), stored[path_end + 4 : end_at], OPEN_ACL, numbers[1], numbers[2])
        return make(kind, (*made, numbers[3:]) if counted else made), end_at + size

    return read


_QUICK_READS = {1: _unpack_usual(CreateNode, _OPEN_END), 9: _unpack_usual(StoredNode, struct.Struct(">iq?5q3i"))}


def _unpack_any(stored: bytes, at: int) -> tuple[Any, int]:
    kind, fields = _FORMS[stored[at]]
    at += 1
    values = []
    for field in fields:
        value, at = field.read(stored, at)
        values.append(value)
    return kind(*values), at


def pack_transaction(zxid: int, time_ms: int, changes: Sequence[Change]) -> bytes:
    """A failed write has no changes: it has used up its zxid all the same."""
    packed = pack(changes[0]) if len(changes) == 1 else b"".join(map(pack, changes))
    return _TRANSACTION.pack(zxid, time_ms) + packed


def unpack_transaction(payload: bytes) -> tuple[int, int, list[Change]]:
    """(zxid, time, changes)."""
    if len(payload) < _TRANSACTION.size:
        raise UnreadableStateError(f"a transaction of {len(payload)} bytes")
    zxid, time_ms = _TRANSACTION.unpack_from(payload)
    return zxid, time_ms, unpack(payload, _TRANSACTION.size)
