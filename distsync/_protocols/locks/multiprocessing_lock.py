"""Locks that any process may release, whichever process acquired them, as in multiprocessing.

Source: ZooKeeper recipes, "Locks", the unlock protocol, applied to the znode of the current holder.

If another process releases the lock, the former holder simply stops holding it, and an acquire
starts again. Only a release by the former holder reports an error. It changes nothing, since
another process may hold the lock by then. The end of a session is a loss as for every lock.

What a process holds at its end is free, and may still be released once (see ended_holders.py).
"""

from __future__ import annotations

from distsync._protocols import wait_queue
from distsync._protocols.ended_holders import ended_in, forget
from distsync._protocols.locks.cache_revocation import is_cached_entry, is_occupied
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS, Grant, LockCore
from distsync._protocols.retries import INTERRUPTED, read, read_all
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Children,
    Connected,
    Delete,
    GetData,
    Listing,
    SessionAlive,
    StopHolding,
    Sync,
    WatchNode,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    DeadlineError,
    LockLostError,
    NoNodeError,
    NotHeldError,
    ReleasedTooOftenError,
)


async def acquire(core: LockCore, owner: object, contender_data: bytes, blocking: bool = True) -> bool:
    """Acquire like core.acquire, but notice in time if another process releases our lock."""
    if core.grant is not None and blocking:
        await WatchNode(core.grant.loss, _ignore_data)
    elif core.grant is not None:
        try:
            await _check_still_held(core.grant)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
    acquired = await core.acquire(owner, contender_data, blocking)
    if acquired:
        core.unreported_losses = [entry for entry in core.unreported_losses if entry[1].loss.reason != ZNODE_DELETED]
    return acquired


def _ignore_data(data: bytes) -> None:
    """Ignore the data: only the deletion of the znode matters."""


async def _check_still_held(grant: Grant) -> None:
    """Check whether another process has released this grant."""
    try:
        await read(GetData(grant.entry.path))
    except NoNodeError:
        if not grant.loss.fired:
            grant.loss.reason = ZNODE_DELETED
            grant.loss.fire()
            await StopHolding(grant.loss)


async def release(core: LockCore, owner: object, *, only_ours: bool = False) -> None:
    """Release the lock, whichever process holds it; with ``only_ours``, only if this process does.

    Raises ReleasedTooOftenError if no process holds it, or if another process has already released
    what this process held. Raises LockLostError if this process had lost it.
    """
    grant = core.grant
    was_released = grant is not None and grant.loss.fired and grant.loss.reason == ZNODE_DELETED
    # No handover to a local waiter: only the server knows whether we still hold the lock.
    core.local_handovers = MAX_LOCAL_HANDOVERS
    try:
        await core.release(owner, linger=False)
    except LockLostError as lost:
        if not was_released and not await _was_released_elsewhere(grant, lost):
            raise
        raise ReleasedTooOftenError(core.path) from None
    except NotHeldError:
        if only_ours:
            raise ReleasedTooOftenError(core.path) from None
        await _release_elsewhere(core.path)


async def _was_released_elsewhere(grant: Grant | None, lost: LockLostError) -> bool:
    """Return whether another process released the lock, rather than our session ending."""
    return lost.args[1:] == (ZNODE_DELETED,) and (grant is None or await SessionAlive(grant.entry.session_id))


async def _release_elsewhere(directory: str) -> None:
    while True:
        _, listing = await read_all(Sync(directory), Children(directory))
        names = listing.names if isinstance(listing, Listing) else ()
        holders = wait_queue.in_order(names)[:1]
        if holders and not await _is_only_cached(directory, holders[0]):
            if await _delete_holder(f"{directory}/{holders[0].name}"):
                return
        elif ended := ended_in(names):
            if await forget(f"{directory}/{ended[0]}"):
                return
        else:
            raise ReleasedTooOftenError(directory)


async def _is_only_cached(directory: str, first: wait_queue.ContenderNode) -> bool:
    """Return whether the first contender has released the lock, and only caches it."""
    try:
        node = await read(GetData(f"{directory}/{first.name}"))
    except NoNodeError:
        return False
    return is_cached_entry(node.data) and not await is_occupied(directory)


async def _delete_holder(path: str) -> bool:
    """Delete the znode. Return whether we deleted it, or may have.

    After a lost reply the holder may have deleted it instead, by a release of its own. Then two
    releases count as one, and neither reports an error.
    """
    may_have_deleted = False
    while True:
        try:
            await Delete(path)
            return True
        except NoNodeError:
            return may_have_deleted
        except INTERRUPTED as error:
            may_have_deleted = may_have_deleted or getattr(error, "sent", True)
            await Connected()
