"""What the keeper does by itself: protocols that clean up, and that watch over what is held.

Rules for this file: pure, over steps like any protocol. It deletes only what belongs to the session that made it:
another session's znode may have the same name.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.lease.holds import HeldNode
from distsync._protocols.steps import Children, Connected, Delete, Exists, GetData, Stat, Sync, Together, Wait, Watch
from distsync.errors import DisconnectedError, DistsyncError, NoNodeError, SessionLostError


async def delete_leftover(orphan: LeftoverNode, session_id: int) -> None:
    """The orphan is gone, or its session is over."""
    while (await Connected()).session_id == session_id:
        try:
            await (remove(orphan.path, session_id) if orphan.exact else delete_by_prefix(orphan.path, session_id))
            return
        except DisconnectedError:
            continue
        except DistsyncError:
            return


async def delete_by_prefix(prefix: str, session_id: int) -> None:
    """Whatever of this session begins with ``prefix`` is gone. A creation that is still under way on this
    connection is executed before our reads are; sync brings in what went over an earlier one."""
    parent = prefix.rpartition("/")[0] or "/"
    _, listing = await Together(Sync(parent), Children(parent))
    if isinstance(listing, DistsyncError):
        raise listing
    for name in listing.names:
        path = f"{parent.rstrip('/')}/{name}"
        if path.startswith(prefix):
            await remove(path, session_id)


async def remove(path: str, session_id: int) -> None:
    """``path`` is gone, if it belonged to the session."""
    if belongs(await Exists(path), session_id):
        try:
            await Delete(path)
        except NoNodeError:
            pass


def belongs(stat: Stat | None, session_id: int) -> bool:
    return stat is not None and stat.ephemeral_owner == session_id


async def read_held_node(held: HeldNode, watch: Watch) -> Stat | None:
    """The Stat of the znode that is held; whoever heeds it hears what it says."""
    if held.on_data is None:
        return await Exists(held.path, watch)
    try:
        node = await GetData(held.path, watch)
    except NoNodeError:
        return None
    held.on_data(node.data)
    return node.stat


async def watch_held_node(held: HeldNode, on_deleted: Callable[[], None]) -> None:
    """``on_deleted`` is called when somebody deletes the znode while the hold stands."""
    while not held.over.fired:
        watch, over = Watch(), held.over
        try:
            if not belongs(await read_held_node(held, watch), held.session_id):
                on_deleted()
                return
        except SessionLostError:
            return
        except DisconnectedError:
            await Connected()
        else:
            await Wait(watch, over)
