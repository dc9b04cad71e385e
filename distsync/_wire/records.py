"""Decoded records of the ZooKeeper protocol, with the fields in the order of the wire.

Records of different types may compare equal, as tuples do. Compare their types to tell them apart.
"""

from __future__ import annotations  # noqa: I001

from typing import NamedTuple

from distsync._wire.common import (
    OPEN_ACL as OPEN_ACL,
    Acl as Acl,
    ClientInfo as ClientInfo,
    StatRecord as StatRecord,
)
from distsync._wire.codes import (
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
    WatcherType as WatcherType,
    WatchMode as WatchMode,
)
from distsync._wire.replies import (
    Body as Body,
    CheckReply as CheckReply,
    ConnectResponse as ConnectResponse,
    Create2Reply as Create2Reply,
    CreateReply as CreateReply,
    DeleteReply as DeleteReply,
    ErrorReply as ErrorReply,
    GetAclReply as GetAclReply,
    GetAllChildrenNumberReply as GetAllChildrenNumberReply,
    GetChildren2Reply as GetChildren2Reply,
    GetChildrenReply as GetChildrenReply,
    GetDataReply as GetDataReply,
    GetEphemeralsReply as GetEphemeralsReply,
    MultiReply as MultiReply,
    Result as Result,
    SaslReply as SaslReply,
    StatReply as StatReply,
    SyncReply as SyncReply,
    WatcherEvent as WatcherEvent,
    WhoAmIReply as WhoAmIReply,
)


class ConnectRequest(NamedTuple):
    """The first frame of a client. ``read_only`` is None if the client did not send it."""

    protocol_version: int = 0
    last_zxid_seen: int = 0
    timeout_ms: int = 10_000
    session_id: int = 0
    password: bytes | None = bytes(16)
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


class CreateTtlRequest(NamedTuple):
    """``ttl`` in ms: the node is deleted once it was not changed for that time and has no children."""

    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    flags: int = 5
    ttl: int = -1


class DeleteRequest(NamedTuple):
    path: str
    version: int = -1


class DeleteContainerRequest(NamedTuple):
    """Sent only by servers to themselves. Its content is ignored."""


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
    """Only in a multi."""

    path: str
    version: int = -1


Operation = (
    CreateRequest
    | Create2Request
    | CreateContainerRequest
    | CreateTtlRequest
    | DeleteRequest
    | SetDataRequest
    | CheckVersionRequest
)


class MultiRequest(NamedTuple):
    operations: tuple[Operation, ...]


class MultiReadRequest(NamedTuple):
    """Reads with a result each. Their watches are not armed."""

    operations: tuple[GetChildrenRequest | GetDataRequest, ...]


class SetWatchesRequest(NamedTuple):
    """The paths that a reconnected client watches."""

    relative_zxid: int
    data: tuple[str, ...] = ()
    exist: tuple[str, ...] = ()
    child: tuple[str, ...] = ()


class SetWatches2Request(NamedTuple):
    """SetWatchesRequest, and the paths watched by addWatch."""

    relative_zxid: int
    data: tuple[str, ...] = ()
    exist: tuple[str, ...] = ()
    child: tuple[str, ...] = ()
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


class AddWatchRequest(NamedTuple):
    path: str
    mode: int = 0


class CheckWatchesRequest(NamedTuple):
    path: str
    type: int = 3


class RemoveWatchesRequest(NamedTuple):
    path: str
    type: int = 3


class GetEphemeralsRequest(NamedTuple):
    """Lists the ephemeral nodes of the session below a prefix. "", blanks and "/" list all."""

    prefix_path: str = ""


class GetAllChildrenNumberRequest(NamedTuple):
    path: str


class WhoAmIRequest(NamedTuple):
    pass


class ReconfigRequest(NamedTuple):
    joining_servers: str = ""
    leaving_servers: str = ""
    new_members: str = ""
    current_config: int = -1


class SaslRequest(NamedTuple):
    token: bytes | None


class AuthRequest(NamedTuple):
    kind: int
    scheme: str
    auth: bytes | None


class PingRequest(NamedTuple):
    pass


class CloseSessionRequest(NamedTuple):
    pass


class UnknownRequest(NamedTuple):
    """A request with an unknown operation."""

    op: int


class MalformedRequest(NamedTuple):
    """A request with a valid header and an invalid body."""

    op: int


Request = (
    CreateRequest
    | Create2Request
    | CreateContainerRequest
    | CreateTtlRequest
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
    | MultiReadRequest
    | SetWatchesRequest
    | SetWatches2Request
    | AddWatchRequest
    | CheckWatchesRequest
    | RemoveWatchesRequest
    | GetEphemeralsRequest
    | GetAllChildrenNumberRequest
    | WhoAmIRequest
    | DeleteContainerRequest
    | ReconfigRequest
    | SaslRequest
    | AuthRequest
    | PingRequest
    | CloseSessionRequest
    | UnknownRequest
    | MalformedRequest
)
