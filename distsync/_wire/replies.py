"""What a server sends, once it is decoded; see records.py, under whose name all of it is used.

Rules for this file: plain named tuples. A field's order is the wire's order.
"""

from __future__ import annotations

from typing import NamedTuple

from distsync._wire.common import Acl, ClientInfo, StatRecord


class ConnectResponse(NamedTuple):
    """The answer to ConnectRequest; a refusal has time-out 0, session 0 and 16 zero bytes."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None = None


class CreateReply(NamedTuple):
    path: str


class Create2Reply(NamedTuple):
    """To Create2Request, CreateContainerRequest and CreateTtlRequest."""

    path: str
    stat: StatRecord


class StatReply(NamedTuple):
    """To ExistsRequest, SetDataRequest and SetAclRequest."""

    stat: StatRecord


class GetDataReply(NamedTuple):
    data: bytes | None
    stat: StatRecord


class GetAclReply(NamedTuple):
    acl: tuple[Acl, ...]
    stat: StatRecord


class GetChildrenReply(NamedTuple):
    children: tuple[str, ...]


class GetChildren2Reply(NamedTuple):
    children: tuple[str, ...]
    stat: StatRecord


class SyncReply(NamedTuple):
    path: str


class GetEphemeralsReply(NamedTuple):
    ephemerals: tuple[str, ...]


class GetAllChildrenNumberReply(NamedTuple):
    """Children, their children, and so on."""

    total: int


class WhoAmIReply(NamedTuple):
    client_info: tuple[ClientInfo, ...]


class SaslReply(NamedTuple):
    token: bytes | None


class DeleteReply(NamedTuple):
    """Only inside a multi: a delete went well."""


class CheckReply(NamedTuple):
    """Only inside a multi: a check went well."""


class ErrorReply(NamedTuple):
    """Inside a multi: 0 before the operation that failed, its code, RUNTIME_INCONSISTENCY after it. Inside a multiRead
    the code of this read. To AddWatchRequest: 0."""

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
"""What follows the header of a reply. Header only: delete, ping, auth, setWatches, checkWatches, removeWatches and
closeSession."""


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str
