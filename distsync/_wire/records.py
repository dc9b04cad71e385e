"""Records of the ZooKeeper protocol: decoded requests and replies, with the fields in the order of the wire.

Two records of different types may be equal as tuples, so check the type first.
"""

from __future__ import annotations

from typing import NamedTuple


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


OPEN_ACL: tuple[Acl, ...] = (Acl(31, "world", "anyone"),)


class Stat(NamedTuple):
    """A znode's Stat. Times are in ms since the epoch, lengths in bytes."""

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


class ClientInfo(NamedTuple):
    """An identity, without password or hash."""

    scheme: str
    user: str


# ---- requests


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


# ---- replies and events


class ConnectResponse(NamedTuple):
    """Reply to ConnectRequest. A refusal has timeout 0, session 0 and a password of 16 zero bytes."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None = None


class CreateReply(NamedTuple):
    path: str


class Create2Reply(NamedTuple):
    """Reply to Create2Request, CreateContainerRequest and CreateTtlRequest."""

    path: str
    stat: Stat


class StatReply(NamedTuple):
    """Reply to ExistsRequest, SetDataRequest and SetAclRequest."""

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


class GetEphemeralsReply(NamedTuple):
    ephemerals: tuple[str, ...]


class GetAllChildrenNumberReply(NamedTuple):
    """Number of all descendants."""

    total: int


class WhoAmIReply(NamedTuple):
    client_info: tuple[ClientInfo, ...]


class SaslReply(NamedTuple):
    token: bytes | None


class DeleteReply(NamedTuple):
    """Successful delete in a multi."""


class CheckReply(NamedTuple):
    """Successful version check in a multi."""


class ErrorReply(NamedTuple):
    """Result with an error code.

    In a failed multi: 0 before the failed operation, its code, and RUNTIME_INCONSISTENCY after it.
    In a multiRead: the code of the read. As reply to AddWatchRequest: 0.
    """

    err: int


Result = (
    CreateReply | Create2Reply | StatReply | DeleteReply | CheckReply | GetChildrenReply | GetDataReply | ErrorReply
)


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
    | GetEphemeralsReply
    | GetAllChildrenNumberReply
    | WhoAmIReply
    | SaslReply
    | ErrorReply
)
"""Body of a reply. Replies to delete, ping, auth, setWatches, checkWatches, removeWatches and closeSession have
none."""


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str
