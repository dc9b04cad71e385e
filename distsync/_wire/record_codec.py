"""The fields of each record, the operation of each request, and the encoding of multi."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from distsync._wire import records as r
from distsync._wire.codes import OpCode
from distsync._wire.field_codec import (
    ACLS,
    BOOL,
    BUFFER,
    INT,
    LONG,
    PATH,
    PATHS,
    STAT,
    STRING,
    Field,
    Reader,
    create_reader,
    vector,
)
from distsync._wire.frames import WireError

Layout = tuple[Field[Any], ...]

_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_HEADER_BYTES = _MULTI_HEADER.size
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)

REQUESTS: dict[int, type[r.Request]] = {
    OpCode.CREATE: r.CreateRequest,
    OpCode.DELETE: r.DeleteRequest,
    OpCode.EXISTS: r.ExistsRequest,
    OpCode.GET_DATA: r.GetDataRequest,
    OpCode.SET_DATA: r.SetDataRequest,
    OpCode.GET_ACL: r.GetAclRequest,
    OpCode.SET_ACL: r.SetAclRequest,
    OpCode.GET_CHILDREN: r.GetChildrenRequest,
    OpCode.SYNC: r.SyncRequest,
    OpCode.PING: r.PingRequest,
    OpCode.GET_CHILDREN2: r.GetChildren2Request,
    OpCode.CHECK: r.CheckVersionRequest,
    OpCode.MULTI: r.MultiRequest,
    OpCode.CREATE2: r.Create2Request,
    OpCode.RECONFIG: r.ReconfigRequest,
    OpCode.CHECK_WATCHES: r.CheckWatchesRequest,
    OpCode.REMOVE_WATCHES: r.RemoveWatchesRequest,
    OpCode.CREATE_CONTAINER: r.CreateContainerRequest,
    OpCode.DELETE_CONTAINER: r.DeleteContainerRequest,
    OpCode.CREATE_TTL: r.CreateTtlRequest,
    OpCode.MULTI_READ: r.MultiReadRequest,
    OpCode.AUTH: r.AuthRequest,
    OpCode.SET_WATCHES: r.SetWatchesRequest,
    OpCode.SASL: r.SaslRequest,
    OpCode.GET_EPHEMERALS: r.GetEphemeralsRequest,
    OpCode.GET_ALL_CHILDREN_NUMBER: r.GetAllChildrenNumberRequest,
    OpCode.SET_WATCHES2: r.SetWatches2Request,
    OpCode.ADD_WATCH: r.AddWatchRequest,
    OpCode.WHO_AM_I: r.WhoAmIRequest,
    OpCode.CLOSE_SESSION: r.CloseSessionRequest,
}
OPERATIONS: dict[type, int] = {request: int(op) for op, request in REQUESTS.items()}

IN_MULTI = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.CHECK,
    }
)
"""Operations allowed in a multi."""

IN_MULTI_READ = frozenset({OpCode.GET_CHILDREN, OpCode.GET_DATA})
"""Operations allowed in a multiRead."""

RESULTS: dict[int, type[r.Result]] = {
    OpCode.CREATE: r.CreateReply,
    OpCode.CREATE2: r.Create2Reply,
    OpCode.SET_DATA: r.StatReply,
    OpCode.DELETE: r.DeleteReply,
    OpCode.CHECK: r.CheckReply,
    OpCode.GET_CHILDREN: r.GetChildrenReply,
    OpCode.GET_DATA: r.GetDataReply,
    OpCode.ERROR: r.ErrorReply,
}
_RESULT_HEADERS = {result: _MULTI_HEADER.pack(op, False, 0) for op, result in RESULTS.items()}


def _write_client_info(info: r.ClientInfo) -> bytes:
    return STRING.write(info.scheme) + STRING.write(info.user)


def _read_client_info(frame: bytes, offset: int) -> tuple[r.ClientInfo, int]:
    scheme, offset = STRING.read(frame, offset)
    user, offset = STRING.read(frame, offset)
    return r.ClientInfo(scheme, user), offset


_CREATE: Layout = (PATH, BUFFER, ACLS, INT)

LAYOUTS: dict[type, Layout] = {
    # Paths that are STRING and not PATH may be null in ZooKeeper.
    r.CreateRequest: _CREATE,
    r.Create2Request: _CREATE,
    r.CreateContainerRequest: _CREATE,
    r.CreateTtlRequest: (*_CREATE, LONG),
    r.DeleteRequest: (PATH, INT),
    r.DeleteContainerRequest: (),
    r.ExistsRequest: (PATH, BOOL),
    r.GetDataRequest: (PATH, BOOL),
    r.SetDataRequest: (STRING, BUFFER, INT),
    r.GetAclRequest: (PATH,),
    r.SetAclRequest: (STRING, ACLS, INT),
    r.GetChildrenRequest: (PATH, BOOL),
    r.GetChildren2Request: (PATH, BOOL),
    r.SyncRequest: (STRING,),
    r.CheckVersionRequest: (STRING, INT),
    r.SetWatchesRequest: (LONG, PATHS, PATHS, PATHS),
    r.SetWatches2Request: (LONG, PATHS, PATHS, PATHS, PATHS, PATHS),
    r.AddWatchRequest: (STRING, INT),
    r.CheckWatchesRequest: (PATH, INT),
    r.RemoveWatchesRequest: (STRING, INT),
    r.GetEphemeralsRequest: (STRING,),
    r.GetAllChildrenNumberRequest: (PATH,),
    r.WhoAmIRequest: (),
    r.ReconfigRequest: (STRING, STRING, STRING, LONG),
    r.SaslRequest: (BUFFER,),
    r.AuthRequest: (INT, STRING, BUFFER),
    r.PingRequest: (),
    r.CloseSessionRequest: (),
    r.CreateReply: (STRING,),
    r.Create2Reply: (STRING, STAT),
    r.StatReply: (STAT,),
    r.GetDataReply: (BUFFER, STAT),
    r.GetAclReply: (ACLS, STAT),
    r.GetChildrenReply: (PATHS,),
    r.GetChildren2Reply: (PATHS, STAT),
    r.SyncReply: (STRING,),
    r.GetEphemeralsReply: (PATHS,),
    r.GetAllChildrenNumberReply: (INT,),
    r.WhoAmIReply: (vector(Field(_write_client_info, _read_client_info)),),
    r.SaslReply: (BUFFER,),
    r.DeleteReply: (),
    r.CheckReply: (),
    r.ErrorReply: (INT,),
    r.WatcherEvent: (INT, INT, STRING),
}


Writer = Callable[[Any], bytes]
_CREATES = frozenset({r.CreateRequest, r.Create2Request, r.CreateContainerRequest})
_new_tuple: Callable[[type, Iterable[Any]], Any] = tuple.__new__
"""Creates a named tuple from all its fields, faster than its constructor does."""


def write(record: Any) -> bytes:
    """Encode a record."""
    return WRITERS[type(record)](record)


def read(kind: type, frame: bytes, offset: int) -> tuple[Any, int]:
    """Decode a record of type ``kind``. Return it and the offset after it."""
    return READERS[kind](frame, offset)


def _writer(layout: Layout) -> Writer:
    writes = [field.write for field in layout]
    if len(writes) == 1:
        return lambda record: writes[0](record[0])
    return lambda record: b"".join([write_field(value) for write_field, value in zip(writes, record, strict=True)])


def _reader(kind: type, layout: Layout) -> Reader:
    """Return the reader for a type of record, a faster one for frequent types."""
    reads = [field.read for field in layout]

    def read_generic(frame: bytes, offset: int) -> tuple[Any, int]:
        values = []
        for read_field in reads:
            value, offset = read_field(frame, offset)
            values.append(value)
        return _new_tuple(kind, values), offset

    if kind in _CREATES:
        return create_reader(kind, read_generic)
    return _pair_reader(kind, *reads) if len(reads) == 2 else read_generic


def _pair_reader(kind: type, read_first: Reader, read_second: Reader) -> Reader:
    def read_pair(frame: bytes, offset: int) -> tuple[Any, int]:
        first, offset = read_first(frame, offset)
        second, offset = read_second(frame, offset)
        return _new_tuple(kind, (first, second)), offset

    return read_pair


def _operations(allowed: frozenset[OpCode]) -> Field[tuple[Any, ...]]:
    """Return the field for the operations of a multi, each with its own header."""

    readers = {int(op): READERS[REQUESTS[op]] for op in allowed}

    def read_all(frame: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
        operations: list[Any] = []
        while True:
            op, done, _ = _MULTI_HEADER.unpack_from(frame, offset)
            offset += _MULTI_HEADER_BYTES
            if done:
                return tuple(operations), offset
            reader = readers.get(op)
            if reader is None:
                raise WireError(f"operation {op} is not allowed in a multi")
            operation, offset = reader(frame, offset)
            operations.append(operation)

    return Field(_write_operations, read_all)


def _write_operations(operations: tuple[Any, ...]) -> bytes:
    parts = [_MULTI_HEADER.pack(OPERATIONS[type(operation)], False, -1) + write(operation) for operation in operations]
    return b"".join(parts) + _MULTI_END


def _write_results(results: tuple[r.Result, ...]) -> bytes:
    return b"".join(map(_write_result, results)) + _MULTI_END


def _write_result(result: r.Result) -> bytes:
    kind = type(result)
    if kind is r.ErrorReply:
        return _MULTI_HEADER.pack(OpCode.ERROR, False, result[0]) + write(result)  # type: ignore[misc]
    return _RESULT_HEADERS[kind] + WRITERS[kind](result)


def _read_results(frame: bytes, offset: int) -> tuple[tuple[r.Result, ...], int]:
    results: list[r.Result] = []
    while True:
        op, done, _ = _MULTI_HEADER.unpack_from(frame, offset)
        offset += _MULTI_HEADER.size
        if done:
            return tuple(results), offset
        if op not in RESULTS:
            raise WireError(f"unexpected result {op} in a multi")
        result, offset = read(RESULTS[op], frame, offset)
        results.append(result)


WRITERS: dict[type, Writer] = {}
READERS: dict[type, Reader] = {}


def _register(layouts: dict[type, Layout]) -> None:
    WRITERS.update((kind, _writer(layout)) for kind, layout in layouts.items())
    READERS.update((kind, _reader(kind, layout)) for kind, layout in layouts.items())


_register(LAYOUTS)
_MULTI_LAYOUTS: dict[type, Layout] = {
    r.MultiRequest: (_operations(IN_MULTI),),
    r.MultiReadRequest: (_operations(IN_MULTI_READ),),
    r.MultiReply: (Field(_write_results, _read_results),),
}
_register(_MULTI_LAYOUTS)
LAYOUTS.update(_MULTI_LAYOUTS)
