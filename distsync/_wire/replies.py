"""Decoded records that a server sends. Import them from records.py."""

from __future__ import annotations

from typing import NamedTuple

from distsync._wire.common import Acl, ClientInfo, StatRecord


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
    stat: StatRecord


class StatReply(NamedTuple):
    """Reply to ExistsRequest, SetDataRequest and SetAclRequest."""

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
