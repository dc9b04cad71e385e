"""Conversion of steps to kazoo's request records, and of kazoo's responses to results of steps."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo_exceptions
from kazoo.protocol import serialization

from distsync._client.acls import Access
from distsync._client.transport.kazoo_errors import translate, unknown_error
from distsync._protocols.steps import (
    Check,
    Children,
    Create,
    Created,
    Delete,
    Ephemerals,
    Exists,
    GetData,
    Listing,
    Multi,
    MultiRead,
    Node,
    Request,
    SetData,
    Stat,
    Sync,
)

EPHEMERAL, SEQUENCE, CONTAINER = 1, 2, 4

Watcher = Callable[[Any], object]


class CreateContainer(serialization.Create2):  # type: ignore[misc]
    """Request for a container node, which kazoo lacks: create2 with another opcode."""

    type = 19


class TransactionRequest(namedtuple("TransactionRequest", "operations")):
    """Multi request.

    kazoo's Transaction misreads the results of operations that it does not know, such as the
    creation of containers, and drops falsy results. It is also slower with many operations.
    """

    type = 14

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        previous, packed, acls = None, b"", dict[int, bytes]()
        for operation in self.operations:
            if operation is not previous:  # several operations may be one object, which is packed once
                previous, packed = operation, _packed(operation, acls)
            parts.append(packed)
        return b"".join((*parts, serialization.multiheader_struct.pack(-1, True, -1)))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        unpack, size = serialization.multiheader_struct.unpack_from, serialization.multiheader_struct.size
        kind, done, _ = unpack(data, offset)
        while not done:
            result, offset = _result(kind, data, offset + size)
            results.append(result)
            kind, done, _ = unpack(data, offset)
        return results

    @staticmethod
    def unchroot(client: Any, response: list[Any]) -> list[Any]:
        return response


class KazooMultiRead(namedtuple("KazooMultiRead", "paths")):
    """MultiRead request, which kazoo lacks."""

    type = 22

    def serialize(self) -> bytes:
        head, pack = (
            serialization.multiheader_struct.pack(serialization.GetData.type, False, -1),
            serialization.int_struct.pack,
        )
        encoded = [path.encode() for path in self.paths]
        parts = [part for path in encoded for part in (head, pack(len(path)), path, b"\0")]
        return b"".join((*parts, serialization.multiheader_struct.pack(-1, True, -1)))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        unpack, size = serialization.multiheader_struct.unpack_from, serialization.multiheader_struct.size
        kind, done, _ = unpack(data, offset)
        while not done:
            offset += size
            if kind == -1:
                result, offset = _result(kind, data, offset)
            else:
                content, offset = serialization.read_buffer(data, offset)
                result = Node(content or b"", Stat._make(serialization.stat_struct.unpack_from(data, offset)))
                offset += serialization.stat_struct.size
            results.append(result)
            kind, done, _ = unpack(data, offset)
        return results


class GetEphemerals(namedtuple("GetEphemerals", "path")):
    """Request for the ephemeral znodes of the session, which kazoo lacks."""

    type = 103

    def serialize(self) -> bytes:
        path = self.path.encode()
        return bytes(serialization.int_struct.pack(len(path)) + path)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[str]:
        (count,) = serialization.int_struct.unpack_from(data, offset)
        offset += serialization.int_struct.size
        paths: list[str] = []
        for _ in range(count):
            path, offset = serialization.read_string(data, offset)
            paths.append(path)
        return paths


def _packed(operation: Any, acls: dict[int, bytes]) -> bytes:
    """Return an operation of a multi with its header. ``acls`` caches packed ACLs by id."""
    header = serialization.multiheader_struct.pack(operation.type, False, -1)
    if operation.type != serialization.Create.type:
        return bytes(header + operation.serialize())
    acl = acls.get(id(operation.acl))
    if acl is None:
        empty = operation._replace(path="", data=b"", flags=0).serialize()
        acl = acls[id(operation.acl)] = bytes(empty[2 * serialization.int_struct.size : -serialization.int_struct.size])
    path, data, pack = operation.path.encode(), operation.data, serialization.int_struct.pack
    return b"".join((header, pack(len(path)), path, pack(len(data)), data, acl, pack(operation.flags)))


def _result(kind: int, data: bytes, offset: int) -> tuple[Any, int]:
    """Return one result of a multi, and the offset of the next one."""
    if kind == serialization.SetData.type:
        return Stat._make(serialization.stat_struct.unpack_from(data, offset)), offset + serialization.stat_struct.size
    if kind in CREATES:
        path, offset = serialization.read_string(data, offset)
        return Created(path, None), offset + (
            serialization.stat_struct.size if kind != serialization.Create.type else 0
        )
    if kind == -1:
        code = serialization.int_struct.unpack_from(data, offset)[0]
        return (
            kazoo_exceptions.EXCEPTIONS[code]() if code in kazoo_exceptions.EXCEPTIONS else unknown_error(code)
        ), offset + 4
    return None, offset


CREATES = (serialization.Create.type, serialization.Create2.type, CreateContainer.type)


class Translator:
    """Converts requests to kazoo's records, with the client's ACLs."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.containers = True

    def record(self, request: Request[Any], watcher: Watcher | None) -> Any:
        """Return kazoo's record for ``request``."""
        return RECORDS[type(request)](self, request, watcher)

    def create(self, request: Create, in_multi: bool) -> Any:
        if request.container and self.containers and not (request.ephemeral or request.sequence):
            return CreateContainer(request.path, request.data, self._access.of(request.path), CONTAINER)
        record = serialization.Create if in_multi else serialization.Create2
        flags = request.ephemeral * EPHEMERAL + request.sequence * SEQUENCE
        return record(request.path, request.data, self._access.of(request.path), flags)

    def multi(self, request: Multi) -> Any:
        records: list[Any] = []
        previous = None
        for operation in request.operations:
            records.append(records[-1] if operation is previous else self.operation(operation))
            previous = operation
        return TransactionRequest(records)

    def operation(self, operation: Any) -> Any:
        if isinstance(operation, Create):
            return self.create(operation, in_multi=True)
        if isinstance(operation, Check):
            return serialization.CheckVersion(operation.path, operation.version)
        return self.record(operation, None)


RECORDS: dict[type[Any], Callable[[Translator, Any, Watcher | None], Any]] = {
    Create: lambda self, request, _: self.create(request, in_multi=False),
    Delete: lambda _, request, __: serialization.Delete(request.path, request.version),
    SetData: lambda _, request, __: serialization.SetData(request.path, request.data, request.version),
    GetData: lambda _, request, watcher: serialization.GetData(request.path, watcher),
    MultiRead: lambda _, request, __: KazooMultiRead(request.paths),
    Exists: lambda _, request, watcher: serialization.Exists(request.path, watcher),
    Children: lambda _, request, watcher: serialization.GetChildren2(request.path, watcher),
    Ephemerals: lambda _, request, __: GetEphemerals(request.path),
    Sync: lambda *_: TransactionRequest(()),
    Multi: lambda self, request, _: self.multi(request),
}


RESULTS: dict[type[Any], Callable[[Any], Any]] = {
    Create: lambda response: Created(response[0], Stat._make(response[1])),
    Delete: lambda _: None,
    SetData: Stat._make,
    GetData: lambda response: Node(response[0] or b"", Stat._make(response[1])),
    Exists: lambda response: None if response is None else Stat._make(response),
    Children: lambda response: Listing(tuple(response[0]), Stat._make(response[1])),
    Ephemerals: tuple,
    Sync: lambda _: None,
}


def result_of(request: Request[Any], response: Any) -> Any:
    """Return the result of ``request``, or raise the error of a failed multi."""
    if isinstance(request, Multi):
        return _results(request, response)
    if isinstance(request, MultiRead):
        return tuple(
            translate(result, GetData(path)) if isinstance(result, Exception) else result
            for path, result in zip(request.paths, response, strict=True)
        )
    return RESULTS[type(request)](response)


def _results(request: Multi, results: list[Any]) -> tuple[Any, ...]:
    """Return the results of the operations, or raise the error of the one that failed."""
    failed = [index for index, result in enumerate(results) if isinstance(result, Exception)]
    if not failed:
        return tuple(results)
    raise _error_of(request, results, failed)


def _error_of(request: Multi, results: list[Any], failed: list[int]) -> BaseException:
    # The operation that failed by itself, and was not just rolled back or skipped.
    index = next((each for each in failed if not isinstance(results[each], ROLLED_BACK_ERRORS)), failed[0])
    error = translate(results[index], request.operations[index])
    error.index = index  # type: ignore[attr-defined]
    return error


ROLLED_BACK_ERRORS = (kazoo_exceptions.RolledBackError, kazoo_exceptions.RuntimeInconsistency)

__all__ = ["CreateContainer", "TransactionRequest", "Translator", "result_of"]
