"""What the engine asks its surroundings to do: plain records, in the order in which they are to be delivered.

Rules for this file: no behaviour. A list of effects is carried out in its order; a Commit is durable before any
later effect of its list is sent. To peers that a list does not mention nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from distsync._wire.records import Body, ConnectResponse, WatcherEvent


class Accepted(NamedTuple):
    """Answer the handshake. A refusal (unknown session, wrong password) has session id 0, and a Drop follows."""

    peer: int
    response: ConnectResponse


class Reply(NamedTuple):
    """Answer a request. ``body`` is None where the wire has a header only: when ``err`` is not 0, but for a
    refused SaslRequest."""

    peer: int
    xid: int
    zxid: int
    err: int
    body: Body | None


_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__


def reply(peer: int, xid: int, zxid: int, err: int, body: Body | None) -> Reply:
    """A Reply, in half the time of its own constructor."""
    made: Reply = _new(Reply, (peer, xid, zxid, err, body))
    return made


class Notify(NamedTuple):
    """Tell a watcher. ``zxid`` is the transaction that fired the watch."""

    peer: int
    zxid: int
    event: WatcherEvent


class Drop(NamedTuple):
    """Close the connection, after what was sent to it before. The engine has forgotten the peer already."""

    peer: int


class Commit(NamedTuple):
    """Store ``payload``, whose meaning only the engine knows, under ``zxid``; zxids of commits grow."""

    zxid: int
    payload: bytes


Effect = Accepted | Reply | Notify | Drop | Commit
