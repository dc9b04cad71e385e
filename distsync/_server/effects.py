"""Effects: what the engine asks the network server to do.

Effects must be carried out in order. A Commit must be durable before any later effect is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from distsync._wire.records import Body, ConnectResponse, WatcherEvent


class Accepted(NamedTuple):
    """Reply to a handshake. A refusal (unknown session, wrong password) has session id 0, and a Drop follows."""

    peer_id: int
    response: ConnectResponse


class Reply(NamedTuple):
    """Reply to a request. ``body`` is None if the reply is only a header.

    That is so for all errors, except of a SaslRequest.
    """

    peer_id: int
    xid: int
    zxid: int
    err: int
    body: Body | None


_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__


def reply(peer_id: int, xid: int, zxid: int, err: int, body: Body | None) -> Reply:
    """Create a Reply, faster than its constructor does."""
    made: Reply = _new(Reply, (peer_id, xid, zxid, err, body))
    return made


class Notify(NamedTuple):
    """Notify a watcher. ``zxid`` is the transaction that fired the watch."""

    peer_id: int
    zxid: int
    event: WatcherEvent


class Drop(NamedTuple):
    """Close the connection once everything queued was sent. The engine has already forgotten the peer."""

    peer_id: int


class Commit(NamedTuple):
    """Store ``payload``, which only the engine interprets, under ``zxid``. The zxids of commits never decrease."""

    zxid: int
    payload: bytes


Effect = Accepted | Reply | Notify | Drop | Commit
