"""Downgrade of a writer that also reads: a reader's znode replaces the writer's.

Source: ZooKeeper recipes, "Shared Locks", has no downgrade. As in Curator, the reader's znode has
the sequence number of the writer's, and so the same position in the queue.

Znodes: one transaction deletes ``_c_<guid>-__WRIT__<sequence>`` and creates
``_c_<guid>-__READ__<sequence>``.

A downgrade runs in the background, so the code checks after each await whether any thread still
reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, TemporaryOwner
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
    """One contender that is shared by readers.

    Attributes:
        grant: The grant.
        owners: Each reader, and how many times it has acquired the lock without releasing it.
        contender_data: Data of the znode.
        writing: The grant of the writer that also read, if a writer acquired this.
        inside: Whether that writer still writes. When it stops, a downgrade replaces its znode.
        joined: How many readers have joined while a writer may have been waiting.
        downgrading: Whether a downgrade is in progress.
        released: Whether the last reader has released it.
    """

    grant: Grant
    owners: dict[object, int]
    contender_data: bytes
    writing: Grant | None = None
    inside: bool = False
    joined: int = 1
    downgrading: bool = False
    released: bool = False

    @property
    def is_held(self) -> bool:
        """Whether any thread holds this: not if only clean-ups of interrupted calls are left."""
        return not all(isinstance(owner, TemporaryOwner) for owner in tuple(self.owners))

    def leave(self, owner: object) -> None:
        """Remove a reader, and what is subscribed for it."""
        self.owners.pop(owner, None)
        self.grant.unsubscribe(owner=owner)

    def reduce(self, owner: object, depth: int) -> None:
        """Set the recursion level of a reader to a smaller one."""
        self.owners[owner] = depth
        self.grant.unsubscribe(depth, owner)


async def into_reader(share: ReadGrant, name_suffix: str) -> None:
    """Replace the znode of a writer by one of a reader.

    If that fails, the reader loses the lock.
    """
    grant = share.grant
    writer = grant.entry
    reader = await _successor_node(writer, name_suffix)
    grant.downgrading = finished = Signal()
    try:
        await StopHolding(grant.loss)  # otherwise the deletion of the writer's znode counts as a loss
        if not await _exchange(share, reader):
            _lose(grant, ZNODE_DELETED)
    except DistsyncError as error:
        await Background(partial(delete_until_session_ends, writer.path, writer.session_id))
        # A later session may have created it while the writer's znode lived on.
        await Background(delete_guaranteed(reader.path))
        _lose(grant, "session expired" if isinstance(error, SessionLostError) else str(error))
    finally:
        grant.downgrading = None
        finished.fire()


async def _successor_node(entry: wait_queue.QueueEntry, name_suffix: str) -> wait_queue.QueueEntry:
    """Return the reader's contender: a new name with the writer's sequence number and token."""
    writer = wait_queue.parse(entry.name)
    prefix, _ = wait_queue.node_name(await Guid(), name_suffix)
    return entry._replace(name=f"{prefix}{writer.number if writer else 0:010d}")


async def _exchange(share: ReadGrant, new: wait_queue.QueueEntry) -> bool:
    """Exchange the znodes in one transaction. Return False if the writer's znode is missing.

    If another client has deleted it, the transaction fails, as another writer may hold the lock.
    """
    old, data, version, in_doubt = share.grant.entry, share.contender_data, 0, False
    while not (share.released or share.grant.loss.fired):  # no loss can fire between StopHolding and Hold
        if (await Connected()).session_id != old.session_id:
            raise SessionLostError(f"the downgrade in {old.directory}")
        try:
            await Multi((Create(new.path, data, ephemeral=True), Delete(old.path, version)))
        except DisconnectedError:
            in_doubt = True
            continue
        except BadVersionError:  # revocation was requested
            data, version = await _merge_request(share, new)
            continue
        except NodeExistsError:
            pass  # executed, but the reply was lost
        except NoNodeError:
            return False
        await _hold_reader(share, new)
        return True
    await delete_until_session_ends(old.path, old.session_id)
    if in_doubt:  # it may have been executed before the last reader released the lock
        await delete_guaranteed(new.path)
    return True


async def _merge_request(share: ReadGrant, new: wait_queue.QueueEntry) -> tuple[bytes, int]:
    """Return the data for the new znode, with any pending request, and the old znode's version."""
    try:
        node = await read(GetData(share.grant.entry.path))
    except NoNodeError:
        return share.contender_data, 0
    return carry_over(new.path, share.contender_data, node.data), node.stat.version


async def _hold_reader(share: ReadGrant, entry: wait_queue.QueueEntry) -> None:
    share.grant.entry = entry
    await Hold(entry.path, entry.session_id, share.grant.loss)
    if share.grant.loss.fired:
        raise SessionLostError(f"the downgrade in {entry.directory}")
    if share.grant.watched:
        await watch_revocation(share.grant)
    share.downgrading = False  # from here on, a release deletes the znode
    if share.released:
        await StopHolding(share.grant.loss)
        await delete_until_session_ends(entry.path, entry.session_id)


def _lose(grant: Grant, reason: str) -> None:
    grant.loss.reason = grant.loss.reason or reason
    grant.loss.fire()
