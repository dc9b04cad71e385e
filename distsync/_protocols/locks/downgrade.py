"""From writer to reader: the znode of a writer who reads too becomes that of a reader, at the same place in the line.

Source: recipes.txt, "Shared Locks", has none; that a reader's znode may have the sequence number of its writer is
Curator's way.

Rules for this file: pure; it knows one ReadGrant, and nothing of the others. What is done here goes on apart from any
call, so it looks again, after each await, whether anybody still reads.

Picture: ``_c_<guid>-__WRIT__<sequence>`` is deleted in the transaction that makes ``_c_<guid>-__READ__<sequence>``
"""

from __future__ import annotations

from dataclasses import dataclass

from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync._protocols.locks.revocation import carry_over, watch_revocation
from distsync._protocols.retries import delete_guaranteed, delete_until_session_ends, read
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Connected,
    Create,
    Delete,
    GetData,
    Guid,
    Hold,
    Multi,
    Signal,
    StopHolding,
)
from distsync.errors import (
    BadVersionError,
    DisconnectedError,
    DistsyncError,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
)


@dataclass(eq=False)
class ReadGrant:
    """One contender of readers: ``owners`` says who reads by it, and how deep.

    ``writing`` is the grant of the writer who read too, ``inside`` as long as he writes. When he lets go, his znode
    becomes that of the reader; ``turning`` as long as nobody knows whether it did. ``over`` once nobody reads by it.
    """

    grant: Grant
    owners: dict[object, int]
    contender_data: bytes
    writing: Grant | None = None
    inside: bool = False
    joined: int = 1
    turning: bool = False
    over: bool = False


async def into_reader(share: ReadGrant, mark: str) -> None:
    """What is read under a writer's znode is read by a znode of its own, or is lost, or is over."""
    grant = share.grant
    writer = grant.place
    reader = await _successor_node(writer, mark)
    grant.turning = turned = Signal()
    try:
        await StopHolding(grant.loss)  # or the end of the writer's znode would be taken for a loss
        if not await _exchange(share, reader):
            _lose(grant, ZNODE_DELETED)
    except DistsyncError as error:
        await Background(delete_until_session_ends(writer.path, writer.session_id))
        # it may have been made in a later session, beside a writer's that lives on
        await Background(delete_guaranteed(reader.path))
        _lose(grant, "session expired" if isinstance(error, SessionLostError) else str(error))
    finally:
        grant.turning = None
        turned.fire()


async def _successor_node(place: wait_queue.QueueEntry, mark: str) -> wait_queue.QueueEntry:
    """The reader's place: a name with the writer's sequence number, and his token."""
    writer = wait_queue.parse(place.name)
    prefix, _ = wait_queue.node_name(await Guid(), mark)
    return place._replace(name=f"{prefix}{writer.number if writer else 0:010d}")


async def _exchange(share: ReadGrant, new: wait_queue.QueueEntry) -> bool:
    """One transaction, so that it fails where somebody has deleted the writer's znode, and another may write."""
    old, data, version, in_doubt = share.grant.place, share.contender_data, 0, False
    while not (share.over or share.grant.loss.fired):  # nothing fires it between StopHolding and Hold
        if (await Connected()).session_id != old.session_id:
            raise SessionLostError(f"the downgrade in {old.directory}")
        try:
            await Multi((Create(new.path, data, ephemeral=True), Delete(old.path, version)))
        except DisconnectedError:
            in_doubt = True
            continue
        except BadVersionError:  # somebody has asked for it
            data, version = await _asked(share, new)
            continue
        except NodeExistsError:
            pass  # it was done, and the answer was lost
        except NoNodeError:
            return False
        await _hold_on(share, new)
        return True
    await delete_until_session_ends(old.path, old.session_id)
    if in_doubt:  # it may have been done before nobody read any more
        await delete_guaranteed(new.path)
    return True


async def _asked(share: ReadGrant, new: wait_queue.QueueEntry) -> tuple[bytes, int]:
    """What the new znode says, which inherits the word that is in the old one; and the version of that."""
    try:
        node = await read(GetData(share.grant.place.path))
    except NoNodeError:
        return share.contender_data, 0
    return carry_over(new.path, share.contender_data, node.data), node.stat.version


async def _hold_on(share: ReadGrant, place: wait_queue.QueueEntry) -> None:
    share.grant.place = place
    await Hold(place.path, place.session_id, share.grant.loss)
    if share.grant.loss.fired:
        raise SessionLostError(f"the downgrade in {place.directory}")
    if share.grant.heeded:
        await watch_revocation(share.grant)
    share.turning = False  # from here on whoever ends it takes care of the znode
    if share.over:
        await StopHolding(share.grant.loss)
        await delete_until_session_ends(place.path, place.session_id)


def _lose(grant: Grant, reason: str) -> None:
    grant.loss.reason = grant.loss.reason or reason
    grant.loss.fire()
