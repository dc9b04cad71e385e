"""Records of the ZooKeeper protocol, in the wire's words: what a frame says once it is decoded.

Rules for this file: plain named tuples; no bytes are packed here, nothing is decided. A field's order is the wire's
order. Two records of different types may compare equal as tuples: whoever tells records apart looks at the type.
"""

from __future__ import annotations  # noqa: I001  (the numbers are part of the records)

from typing import NamedTuple

from distsync.wire.codes import (
    AUTH_XID as AUTH_XID,
    EVENT_XID as EVENT_XID,
    PING_XID as PING_XID,
    SET_WATCHES_XID as SET_WATCHES_XID,
    SYNC_CONNECTED as SYNC_CONNECTED,
    CreateFlag as CreateFlag,
    ErrorCode as ErrorCode,
    EventType as EventType,
    OpCode as OpCode,
    Permission as Permission,
)


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


OPEN_ACL: tuple[Acl, ...] = (Acl(31, "world", "anyone"),)


class Stat(NamedTuple):
    """A znode's Stat; times in ms since the epoch, lengths in bytes."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class ConnectRequest(NamedTuple):
    """The first frame of a client. ``read_only`` is None when the client did not send that byte."""

    protocol_version: int = 0
    last_zxid_seen: int = 0
    timeout_ms: int = 10_000
    session_id: int = 0
    password: bytes | None = bytes(16)
    read_only: bool | None = None


class ConnectResponse(NamedTuple):
    """The answer to ConnectRequest; a refusal has time-out 0, session 0 and 16 zero bytes."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None = None


class CreateRequest(NamedTuple):
    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    flags: int = 0


class Create2Request(NamedTuple):
    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    flags: int = 0


class CreateContainerRequest(NamedTuple):
    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    flags: int = 4


class DeleteRequest(NamedTuple):
    path: str
    version: int = -1


class ExistsRequest(NamedTuple):
    path: str
    watch: bool = False


class GetDataRequest(NamedTuple):
    path: str
    watch: bool = False


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: int = -1


class GetAclRequest(NamedTuple):
    path: str


class SetAclRequest(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int = -1


class GetChildrenRequest(NamedTuple):
    path: str
    watch: bool = False


class GetChildren2Request(NamedTuple):
    path: str
    watch: bool = False


class SyncRequest(NamedTuple):
    path: str


class CheckVersionRequest(NamedTuple):
    """Only inside a multi."""

    path: str
    version: int = -1


Operation = (
    CreateRequest | Create2Request | CreateContainerRequest | DeleteRequest | SetDataRequest | CheckVersionRequest
)


class MultiRequest(NamedTuple):
    operations: tuple[Operation, ...]


class SetWatchesRequest(NamedTuple):
    """The watches of a client that has reconnected: paths by kind."""

    relative_zxid: int
    data: tuple[str, ...] = ()
    exist: tuple[str, ...] = ()
    child: tuple[str, ...] = ()


class AuthRequest(NamedTuple):
    kind: int
    scheme: str
    auth: bytes | None


class PingRequest(NamedTuple):
    pass


class CloseSessionRequest(NamedTuple):
    pass


class UnknownRequest(NamedTuple):
    """A request whose operation this server does not know."""

    op: int


class MalformedRequest(NamedTuple):
    """A request whose header is readable and whose body is not."""

    op: int


Request = (
    CreateRequest
    | Create2Request
    | CreateContainerRequest
    | DeleteRequest
    | ExistsRequest
    | GetDataRequest
    | SetDataRequest
    | GetAclRequest
    | SetAclRequest
    | GetChildrenRequest
    | GetChildren2Request
    | SyncRequest
    | CheckVersionRequest
    | MultiRequest
    | SetWatchesRequest
    | AuthRequest
    | PingRequest
    | CloseSessionRequest
    | UnknownRequest
    | MalformedRequest
)


class CreateReply(NamedTuple):
    path: str


class Create2Reply(NamedTuple):
    """To Create2Request and CreateContainerRequest."""

    path: str
    stat: Stat


class StatReply(NamedTuple):
    """To ExistsRequest, SetDataRequest and SetAclRequest."""

    stat: Stat


class GetDataReply(NamedTuple):
    data: bytes | None
    stat: Stat


class GetAclReply(NamedTuple):
    acl: tuple[Acl, ...]
    stat: Stat


class GetChildrenReply(NamedTuple):
    children: tuple[str, ...]


class GetChildren2Reply(NamedTuple):
    children: tuple[str, ...]
    stat: Stat


class SyncReply(NamedTuple):
    path: str


class DeleteReply(NamedTuple):
    """Only inside a multi: a delete went well."""


class CheckReply(NamedTuple):
    """Only inside a multi: a check went well."""


class ErrorReply(NamedTuple):
    """Only inside a multi: 0 before the operation that failed, its code, RUNTIME_INCONSISTENCY after it."""

    err: int


Result = CreateReply | Create2Reply | StatReply | DeleteReply | CheckReply | ErrorReply


class MultiReply(NamedTuple):
    results: tuple[Result, ...]


Body = (
    CreateReply
    | Create2Reply
    | StatReply
    | GetDataReply
    | GetAclReply
    | GetChildrenReply
    | GetChildren2Reply
    | SyncReply
    | MultiReply
)
"""What follows the header of a reply; delete, ping, auth, setWatches and closeSession have a header only."""


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str
