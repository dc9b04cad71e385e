"""Background protocols that delete leftover znodes and watch held ones.

Invariant: only znodes of the given session are deleted. Another session may own a znode of the
same name.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.lease.holds import HeldNode
from distsync._protocols.steps import Children, Connected, Delete, Exists, GetData, Pipeline, Stat, Sync, Wait, Watch
from distsync.errors import DisconnectedError, DistsyncError, NoNodeError, SessionLostError


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


async def read_held_node(held: HeldNode, watch: Watch) -> Stat | None:
    """Return the Stat of the held znode, or None; pass its data to ``on_data``, if set."""
    if held.on_data is None:
        return await Exists(held.path, watch)
    try:
        node = await GetData(held.path, watch)
    except NoNodeError:
        return None
    held.on_data(node.data)
    return node.stat


async def watch_held_node(held: HeldNode, on_deleted: Callable[[], None]) -> None:
    """Call ``on_deleted`` if the znode is deleted while it is held."""
    while not held.ended.fired:
        watch, ended = Watch(), held.ended
        try:
            if not belongs(await read_held_node(held, watch), held.session_id):
                on_deleted()
                return
        except SessionLostError:
            return
        except DisconnectedError:
            await Connected()
        else:
            await Wait(watch, ended)
