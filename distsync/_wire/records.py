"""Records of the ZooKeeper protocol, in the wire's words: what a frame says once it is decoded.

Rules for this file: plain named tuples; no bytes are packed here, nothing is decided. A field's order is the wire's
order. Two records of different types may compare equal as tuples: whoever tells records apart looks at the type.
"""

from __future__ import annotations  # noqa: I001  (the numbers are part of the records)

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
    """The first frame of a client. ``read_only`` is None when the client did not send that byte."""

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
    """``ttl`` in ms: the node goes when it was not changed for so long, and has no children."""

    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    flags: int = 5
    ttl: int = -1


class DeleteRequest(NamedTuple):
    path: str
    version: int = -1


class DeleteContainerRequest(NamedTuple):
    """Only servers send it, to themselves: what it says is not looked at."""


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
    """Each read has its own result; their watches are not armed."""

    operations: tuple[GetChildrenRequest | GetDataRequest, ...]


class SetWatchesRequest(NamedTuple):
    """The watches of a client that has reconnected: paths by kind."""

    relative_zxid: int
    data: tuple[str, ...] = ()
    exist: tuple[str, ...] = ()
    child: tuple[str, ...] = ()


class SetWatches2Request(NamedTuple):
    """SetWatchesRequest, and the paths that addWatch named."""

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
    """The session's own ephemeral nodes; none of "", blanks and "/" leaves any out."""

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
    """A request whose operation this server does not know."""

    op: int


class MalformedRequest(NamedTuple):
    """A request whose header is readable and whose body is not."""

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
