"""Background protocols that delete leftover znodes and watch held ones.

Invariant: only znodes of the given session are deleted. Another session may own a znode of the
same name.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.json_data import fields
from distsync._client.lease.holds import REVOKED, HeldNode
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Children,
    Connected,
    Delete,
    Exists,
    GetData,
    Pipeline,
    Stat,
    Sync,
    Wait,
    Watch,
)
from distsync.errors import AccessDeniedError, DisconnectedError, DistsyncError, NoNodeError, SessionLostError

#: Interval in seconds between checks of a held znode that its creator may not read. Servers since
#: ZooKeeper 3.8.4 report no change of it.
UNREADABLE_CHECK_S = 1.0


async def delete_leftover(leftover: LeftoverNode, session_id: int) -> None:
    """Delete the leftover znode, retrying until its session ends."""
    while (await Connected()).session_id == session_id:
        try:
            await (remove(leftover.path, session_id) if leftover.exact else delete_by_prefix(leftover.path, session_id))
            return
        except DisconnectedError:
            continue
        except DistsyncError:
            return


async def delete_by_prefix(prefix: str, session_id: int) -> None:
    """Delete the znodes of this session whose paths begin with ``prefix``.

    A creation that is still outstanding on this connection is executed before the reads. Sync
    makes creations visible that were sent over an earlier connection.
    """
    parent = prefix.rpartition("/")[0] or "/"
    _, listing = await Pipeline(Sync(parent), Children(parent))
    if isinstance(listing, DistsyncError):
        raise listing
    for name in listing.names:
        path = f"{parent.rstrip('/')}/{name}"
        if path.startswith(prefix):
            await remove(path, session_id)


async def remove(path: str, session_id: int) -> None:
    """Delete ``path`` if it belongs to the session."""
    if belongs(await Exists(path), session_id):
        try:
            await Delete(path)
        except NoNodeError:
            pass


def belongs(stat: Stat | None, session_id: int) -> bool:
    return stat is not None and stat.ephemeral_owner == session_id


async def loss_of(held: HeldNode, watch: Watch) -> str:
    """Return why the hold is lost, or "" if it is not; pass the data of the znode to ``on_data``, if set."""
    try:
        node = await GetData(held.path, watch)
    except NoNodeError:
        return ZNODE_DELETED
    if not belongs(node.stat, held.session_id):
        return ZNODE_DELETED
    if fields(node.data).get("revoked"):
        return REVOKED
    if held.on_data is not None:
        held.on_data(node.data)
    return ""


async def loss_of_unreadable(held: HeldNode) -> str:
    """Return why the hold is lost, or "" if it is not. ZooKeeper 3.8 answers this without the permission READ."""
    return "" if belongs(await Exists(held.path), held.session_id) else ZNODE_DELETED


async def watch_held_node(held: HeldNode, on_lost: Callable[[str], None]) -> None:
    """Call ``on_lost`` with the reason if the znode is deleted or revoked while it is held.

    A revoked znode is deleted then: until its holder knows of the loss, no other process can hold.
    """
    while not held.ended.fired:
        watch, ended, limit = Watch(), held.ended, None
        try:
            try:
                reason = await loss_of(held, watch)
            except AccessDeniedError:
                reason, limit = await loss_of_unreadable(held), UNREADABLE_CHECK_S
            if held.ended.fired:
                return  # released, or being downgraded, by a call that deletes the znode itself
            if reason:
                on_lost(reason)
                if reason == REVOKED:
                    await delete_leftover(LeftoverNode(held.path, True), held.session_id)
                return
        except SessionLostError:
            return
        except DisconnectedError:
            await Connected()
        else:
            await Wait(watch, ended, limit=limit)
