"""Records of the ZooKeeper protocol, in the wire's words: what a frame says once it is decoded.

Rules for this file: plain named tuples and numbers; no bytes are packed here, nothing is decided, nothing imported
from the package. A field's order is the wire's order. Two records of different types may compare equal as tuples:
whoever tells records apart looks at the type.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Union


class OpCode(enum.IntEnum):
    """The number of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CREATE_CONTAINER = 19
    AUTH = 100
    SET_WATCHES = 101
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(enum.IntEnum):
    """The ``err`` of a reply."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115


class EventType(enum.IntEnum):
    """What a watch tells."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class Permission(enum.IntFlag):
    """One bit each in ``Acl.permissions``."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class CreateFlag(enum.IntEnum):
    """The ``flags`` of a create."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENCE = 2
    EPHEMERAL_SEQUENCE = 3
    CONTAINER = 4
    TTL = 5
    SEQUENCE_TTL = 6


EVENT_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8
SYNC_CONNECTED = 3
"""The only ``state`` that a server puts into an event."""


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


Operation = Union[
    CreateRequest, Create2Request, CreateContainerRequest, DeleteRequest, SetDataRequest, CheckVersionRequest
]


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


Request = Union[
    CreateRequest,
    Create2Request,
    CreateContainerRequest,
    DeleteRequest,
    ExistsRequest,
    GetDataRequest,
    SetDataRequest,
    GetAclRequest,
    SetAclRequest,
    GetChildrenRequest,
    GetChildren2Request,
    SyncRequest,
    CheckVersionRequest,
    MultiRequest,
    SetWatchesRequest,
    AuthRequest,
    PingRequest,
    CloseSessionRequest,
    UnknownRequest,
    MalformedRequest,
]


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


Result = Union[CreateReply, Create2Reply, StatReply, DeleteReply, CheckReply, ErrorReply]


class MultiReply(NamedTuple):
    results: tuple[Result, ...]


Body = Union[
    CreateReply,
    Create2Reply,
    StatReply,
    GetDataReply,
    GetAclReply,
    GetChildrenReply,
    GetChildren2Reply,
    SyncReply,
    MultiReply,
]
"""What follows the header of a reply; delete, ping, auth, setWatches and closeSession have a header only."""


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str
