"""Permits that any process may release, whichever process acquired them, as in multiprocessing.

Source: ZooKeeper recipes, "Locks", the unlock protocol, applied to the znode of any holder.

If another process releases a permit, the former holder simply forgets it. The end of a session is a
loss as for every permit.

A release takes any permit. If it deletes the znode of a call that ends without a permit, that call
releases another one. So a call enqueues with a receipt, and knows afterwards whether it was in the
queue.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, TemporaryOwner, of_owner
from distsync._protocols.retries import read_all
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Children,
    Connected,
    Create,
    Delete,
    GetData,
    Guid,
    Listing,
    Node,
    Pipeline,
    StopHolding,
    Sync,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    DeadlineError,
    LockLostError,
    NoNodeError,
    OutcomeUnknownError,
    OverReleaseError,
    SessionLostError,
)


async def acquire_permit(
    core: SemaphoreCore,
    contender_data: bytes,
    blocking: bool = True,
    owner: object = None,
    max_permits: int | None = None,
) -> Grant | None:
    """Acquire a permit like core.acquire, although any process may release it at any time.

    If our contender is released before we learn that it was admitted, it has had the permit, and
    the returned grant is not registered in ``core``. If it is released although we no longer want a
    permit, release another one instead.
    """
    _forget_released_elsewhere(core)
    while True:
        try:
            entry, replies = await _enqueue_with_receipt(core, contender_data, max_permits)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None
        except OutcomeUnknownError as error:
            if error.args[2] == "deadline":
                return None
            continue
        try:
            admitted = await core.wait_for_admission(entry, contender_data, replies, blocking)
            if admitted:
                return await core.hold_permit(entry, owner)
        except SessionLostError:
            continue
        except BaseException as error:
            await Background(_cancel_wait(core, entry, max_permits))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return None
            raise
        if admitted is False and await _cancel(core, entry, max_permits):
            return None
        try:
            if (await Connected()).session_id == entry.session_id:
                return Grant(entry, owner=owner)
        except BaseException as error:
            await Background(_cancel_wait(core, entry, max_permits))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return None
            raise


async def _enqueue_with_receipt(
    core: SemaphoreCore, contender_data: bytes, max_permits: int | None
) -> wait_queue.Enqueued:
    """Enqueue like wait_queue.enqueue, with a receipt.

    If the contender is missing afterwards, it is known whether it was ever enqueued.
    """
    reads = (Children(core.path), GetData(core.path))
    while True:
        prefix, guid = wait_queue.node_name(await Guid(), wait_queue.LOCK)
        create = Create(f"{core.path}/{prefix}", contender_data, ephemeral=True, sequence=True, own_cleanup=True)
        try:
            settle = partial(_withdraw, core, guid, max_permits)
            outcome = await core.receipts.commit(create, reads=reads, on_unknown_outcome=settle)
        except NoNodeError:
            await core.ensure_directory(core.path)
            continue
        try:
            if outcome.results is not None:
                name = outcome.results[0].path.rpartition("/")[2]
                entry = wait_queue.QueueEntry(core.path, name, outcome.zxid, outcome.session_id)
                await wait_queue.check_sequence(entry)
                return wait_queue.Enqueued(entry, outcome.replies)
            found = await wait_queue.find(core.path, guid)
            entry = found or wait_queue.QueueEntry(core.path, prefix, 0, outcome.session_id)
            await wait_queue.check_sequence(entry)
            return wait_queue.Enqueued(entry, tuple(await Pipeline(*reads)))
        except BaseException:
            await Background(_withdraw(core, guid, max_permits, True))
            raise


async def _withdraw(core: SemaphoreCore, guid: str, max_permits: int | None, committed: bool | None) -> None:
    """Cancel the wait of a contender after its call has ended, if its create was ``committed``."""
    if committed:
        session_id = (await Connected()).session_id
        entry = await wait_queue.find(core.path, guid)
        await _cancel_wait(core, entry or wait_queue.QueueEntry(core.path, guid, 0, session_id), max_permits)


async def _cancel_wait(core: SemaphoreCore, entry: wait_queue.QueueEntry, max_permits: int | None) -> None:
    """Delete the contender of a call that has ended.

    If another process has released it, release another permit on behalf of that process.
    """
    if (await Connected()).session_id != entry.session_id:
        return
    with suppress(OverReleaseError):
        if not await _cancel(core, entry, max_permits) and (await Connected()).session_id == entry.session_id:
            await _release_permit_elsewhere(core, max_permits)


async def _cancel(core: SemaphoreCore, entry: wait_queue.QueueEntry, max_permits: int | None) -> bool:
    """Delete our contender, in the background if interrupted or at the deadline.

    Return False if another process has released it. Raise OverReleaseError if too many permits
    would be free.
    """
    in_flight = False

    async def settle(committed: bool | None) -> None:
        if committed is False:
            await _cancel_wait(core, entry, max_permits)

    try:
        while True:
            change, exceeds_max = (None, False) if max_permits is None else await core.release_operations(max_permits)
            in_flight = True
            try:
                operations = (Delete(entry.path),) if change is None else (change, Delete(entry.path))
                await core.receipts.commit(*operations, on_unknown_outcome=settle)
                break
            except BadVersionError:
                core.version, in_flight = -1, False
    except NoNodeError:
        return False
    except OutcomeUnknownError:
        return True
    except BaseException as error:
        was_interrupted = is_interrupt(error)
        is_late = isinstance(error, DeadlineError) and not was_interrupted
        if is_late or (was_interrupted and not in_flight):
            await Background(_cancel_wait(core, entry, max_permits))
        if is_late:
            return True
        raise
    if exceeds_max:
        raise OverReleaseError("Semaphore released too many times")
    return True


def _forget_released_elsewhere(core: SemaphoreCore) -> None:
    """Forget permits that other processes have released. Their owners need not be notified."""
    for grant in tuple(core.grants):
        if grant.loss.fired and grant.loss.reason == ZNODE_DELETED:
            core.grants.remove(grant)


async def release_permits(
    core: SemaphoreCore, count: int, max_permits: int | None, started: list[bool], owner: object
) -> None:
    """Release ``count`` permits: first those of this process, then those of others, then new ones.

    Raises OverReleaseError if more than ``max_permits`` would be free. Raises LockLostError if a
    permit of this process was lost; the others are released. Sets the element of ``started`` to
    True at the start. From then on, an interrupted call is completed in the background.
    """
    started[0] = True
    lost: LockLostError | None = None
    remaining = [count]
    try:
        while remaining[0]:
            try:
                await _release_one(core, max_permits, owner, remaining)
            except LockLostError as error:
                lost = lost or error
    except BaseException as error:
        if is_interrupt(error):
            for grant in of_owner(core.grants, owner, remaining[0]):
                remaining[0] -= 1
                grant.owner = TemporaryOwner()  # no thread holds it from now on
                await Background(drop_permit(core, grant, max_permits))
            if remaining[0]:
                await Background(_release_rest(core, remaining[0], max_permits, owner))
        raise
    if lost is not None:
        raise lost


async def _release_rest(core: SemaphoreCore, count: int, max_permits: int | None, owner: object) -> None:
    """Complete an interrupted release. Excessive releases and losses are not reported."""
    with suppress(OverReleaseError, LockLostError):
        await release_permits(core, count, max_permits, [True], owner)


async def _release_one(core: SemaphoreCore, max_permits: int | None, owner: object, remaining: list[int]) -> None:
    """Release a permit, and subtract it from ``remaining`` once an interrupt cannot stop that.

    A permit that another process has already released is not counted.
    """
    grant = None
    try:
        _forget_released_elsewhere(core)
        for grant in of_owner(core.grants, owner, 1):
            remaining[0] -= 1
            core.grants.remove(grant)
            await StopHolding(grant.loss)
    except BaseException:
        if grant is not None:
            await Background(_cancel_wait(core, grant.entry, max_permits))
        raise
    if grant is None:
        remaining[0] -= 1
        await _release_permit_elsewhere(core, max_permits)
        return
    existed = await _cancel(core, grant.entry, max_permits)
    if grant.loss.fired:
        raise LockLostError(core.path, grant.loss.reason)
    try:
        if existed or (await Connected()).session_id == grant.entry.session_id:
            remaining[0] += not existed
            return
    except BaseException as error:
        await Background(_cancel_wait(core, grant.entry, max_permits))
        if isinstance(error, DeadlineError) and not is_interrupt(error):
            return
        raise
    raise LockLostError(core.path, "session expired")


async def drop_permit(core: SemaphoreCore, grant: Grant, max_permits: int | None) -> None:
    """Release a permit whose acquire was interrupted after it was granted.

    If another process has released it since, that release was meant for another permit, so release
    another one.
    """
    if grant in core.grants:
        core.grants.remove(grant)
        await StopHolding(grant.loss)
        await _cancel_wait(core, grant.entry, max_permits)
    elif not grant.loss.fired or grant.loss.reason == ZNODE_DELETED:
        await _release_rest(core, 1, max_permits, grant.owner)


async def _release_permit_elsewhere(core: SemaphoreCore, max_permits: int | None) -> None:
    """Release any permit that is held, or add one if none is.

    If interrupted, or at the deadline, this is completed in the background, unless an outcome has
    already been reported to the caller.
    """
    in_flight = is_reported = False
    path = core.path

    async def settle(committed: bool | None) -> None:
        if committed is False and not is_reported:
            await _release_another(core, max_permits)

    try:
        while True:
            _, listing, node = await read_all(Sync(path), Children(path), GetData(path))
            limit = core.limit(node) if isinstance(node, Node) else core.initial
            holders = wait_queue.in_order(listing.names)[:limit] if isinstance(listing, Listing) else []
            in_flight = True
            if not holders:
                if max_permits is not None and limit >= max_permits:
                    raise OverReleaseError("Semaphore released too many times")
                await core.release(1, max_permits)
                return
            try:
                await core.receipts.commit(Delete(f"{path}/{holders[0].name}"), on_unknown_outcome=settle)
                return
            except NoNodeError:
                in_flight = False
            except OutcomeUnknownError as error:
                if error.args[2] != "deadline":
                    raise
                return
    except BaseException as error:
        was_interrupted = is_interrupt(error)
        is_late = isinstance(error, DeadlineError) and not was_interrupted
        if is_late or (was_interrupted and not in_flight):
            await Background(_release_another(core, max_permits))
        if not is_late:
            is_reported = not was_interrupted
            raise


async def _release_another(core: SemaphoreCore, max_permits: int | None) -> None:
    """Complete an interrupted release. An excessive release is not reported."""
    with suppress(OverReleaseError):
        await _release_permit_elsewhere(core, max_permits)
