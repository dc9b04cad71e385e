"""Records that requests and replies share."""

from __future__ import annotations

from typing import NamedTuple


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


OPEN_ACL: tuple[Acl, ...] = (Acl(31, "world", "anyone"),)


class StatRecord(NamedTuple):
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
