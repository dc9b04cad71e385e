"""Locks and semaphores of processes: what one has taken, any other may give back.

Source: recipes.txt, "Locks", the unlock protocol, done for whoever holds; stdlib ``multiprocessing.Lock``.

Rules for this file: pure; what a process itself holds is lock.py's and semaphore.py's to give back.

Whoever held what another process gave back is simply not the holder any more: an acquire begins anew, and a permit is
forgotten. Only a release of the lock that he thinks he still holds tells him, and changes nothing, since somebody else
may hold it by now. A session that ended is a loss as ever.
"""

from __future__ import annotations

from distsync.errors import DeadlineError, LockLostError, NoNodeError, NotHeldError, ReleasedTooOftenError
from distsync.protocols import line
from distsync.protocols.guard import INTERRUPTED, read, read_all
from distsync.protocols.keep import is_taken, keeps
from distsync.protocols.lock import LOCAL_TURNS, Grant, LockCore
from distsync.protocols.semaphore import SemaphoreCore
from distsync.session.steps import Children, Connected, Delete, GetData, Heed, Listing, Node, Proven, Sync, Unhold

#: Why something is lost whose znode others deleted while its session lived.
GIVEN_BACK = "znode deleted"


async def acquire(core: LockCore, owner: object, data: bytes, wait: bool = True) -> bool:
    """As core.acquire; if this process holds the lock, it learns in time that another one gave it back."""
    if core.grant is not None and wait:
        await Heed(core.grant.loss, _nothing)
    elif core.grant is not None:
        try:
            await _look_after(core.grant)
        except DeadlineError:
            return False
    acquired = await core.acquire(owner, data, wait)
    if acquired:
        core.lost = [entry for entry in core.lost if entry[1].loss.reason != GIVEN_BACK]
    return acquired


def _nothing(data: bytes) -> None:
    """What is written into the znode does not matter, only that it is there."""


async def _look_after(grant: Grant) -> None:
    """It is known whether somebody gave this back."""
    try:
        await read(GetData(grant.place.path))
    except NoNodeError:
        if not grant.loss.fired:
            grant.loss.reason = GIVEN_BACK
            grant.loss.fire()
            await Unhold(grant.loss)


async def release(core: LockCore, owner: object) -> None:
    """The lock goes to the next one, whoever holds it.

    Raises ReleasedTooOftenError if nobody does, or if this process did until another one gave it back; LockLostError
    if this process had lost it.
    """
    grant = core.grant
    core.turns = LOCAL_TURNS  # no hand-over inside the process: the server knows whether it is ours still
    try:
        await core.release(owner, keep=False)
    except LockLostError as lost:
        if not await _given_back(grant, lost):
            raise
        raise ReleasedTooOftenError(core.path) from None
    except NotHeldError:
        await _release_elsewhere(core.path)


async def _given_back(grant: Grant | None, lost: LockLostError) -> bool:
    """Whether another process did this, and not the end of our session."""
    return lost.args[1:] == (GIVEN_BACK,) and (grant is None or await Proven(grant.place.session_id))


async def _release_elsewhere(directory: str) -> None:
    while True:
        _, listing = await read_all(Sync(directory), Children(directory))
        holders = line.in_order(listing.names)[:1] if isinstance(listing, Listing) else []
        if not holders or await _is_only_kept(directory, holders[0]):
            raise ReleasedTooOftenError(directory)
        if await _deleted(f"{directory}/{holders[0].name}"):
            return


async def _is_only_kept(directory: str, first: line.Contender) -> bool:
    """Whether who stands first in the line has let go already, and keeps his znode for a while."""
    try:
        node = await read(GetData(f"{directory}/{first.name}"))
    except NoNodeError:
        return False
    return keeps(node.data) and not await is_taken(directory)


async def _deleted(path: str) -> bool:
    """Whether it was there and we deleted it, or perhaps did: should it have been the holder himself, in this moment,
    then two releases were one, and one of them was too many."""
    perhaps = False
    while True:
        try:
            await Delete(path)
            return True
        except NoNodeError:
            return perhaps
        except INTERRUPTED as error:
            perhaps = perhaps or getattr(error, "sent", True)
            await Connected()


async def acquire_permit(
    core: SemaphoreCore, data: bytes, wait: bool = True, owner: object = None, bound: int | None = None
) -> Grant | None:
    """As core.acquire; who is admitted, and loses his place to a release before he knows, has had the permit."""
    _forget_given_back(core)
    return await core.acquire(data, wait, owner, bound, handed=True)


def _forget_given_back(core: SemaphoreCore) -> None:
    """Permits that others gave back are not held any more, and nobody needs to be told."""
    for grant in tuple(core.grants):
        if grant.loss.fired and grant.loss.reason == GIVEN_BACK:
            core.grants.remove(grant)


async def release_permits(core: SemaphoreCore, count: int, bound: int | None, begun: list[bool], owner: object) -> None:
    """``count`` permits are free again: those of this process first, then those of others, then new ones.

    Raises ReleasedTooOftenError if more than ``bound`` would be free; LockLostError if one of this process was lost.
    """
    begun[0] = True
    for _ in range(count):
        while not await _release_one(core, bound, owner):
            pass


async def _release_one(core: SemaphoreCore, bound: int | None, owner: object) -> bool:
    """False: another process has given this permit back before."""
    _forget_given_back(core)
    if not core.grants:
        await _release_permit_elsewhere(core, bound)
        return True
    grant = min(core.grants, key=lambda grant: grant.owner is not owner)
    try:
        await core.release(1, bound, None, owner)
    except LockLostError as lost:
        if not await _given_back(grant, lost):
            raise
        return False
    return True


async def _release_permit_elsewhere(core: SemaphoreCore, bound: int | None) -> None:
    """A permit that is taken is free, whoever has it; one more if none is."""
    path = core.path
    while True:
        _, listing, node = await read_all(Sync(path), Children(path), GetData(path))
        holders = []
        if isinstance(listing, Listing) and isinstance(node, Node):
            holders = line.in_order(listing.names)[: core.limit(node)]
        if not holders:
            await core.release(1, bound)
            return
        try:
            await core.receipts.commit(Delete(f"{path}/{holders[0].name}"))
            return
        except NoNodeError:
            continue
