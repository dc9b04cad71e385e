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
from distsync._protocols.ended_holders import ended_in
from distsync._protocols.locks.grant import Grant, TemporaryOwner, of_owner
from distsync._protocols.receipts import Operation
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
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    OverReleaseError,
    SessionLostError,
)


class PermitRelease:
    """The release of one permit, which happens exactly once, by a call or else in the background.

    A call that is interrupted runs `finish` in the background.

    Attributes:
        entry: The contender that has the permit; with None, any permit of another process is released.
        is_sent: Whether a transaction was sent whose outcome `settle` gets if it is unknown.
        is_done: Whether the permit is released in the background, or the call has reported why not.
    """

    def __init__(
        self, core: SemaphoreCore, max_permits: int | None, entry: wait_queue.QueueEntry | None = None
    ) -> None:
        self.core = core
        self.max_permits = max_permits
        self.entry = entry
        self.is_sent = self.is_done = False

    def send(self) -> bool:
        """Note that the transaction is about to be sent. For ``still_needed`` of Receipts.commit."""
        self.is_sent = True
        return True

    async def settle(self, committed: bool | None) -> None:
        """Release the permit unless the transaction did. For ``on_unknown_outcome`` of Receipts.commit."""
        if committed is False:
            self.is_sent = False
            await self.finish()

    async def finish(self) -> None:
        """Release the permit in the background, unless a transaction that does it was sent."""
        if self.is_sent or self.is_done:
            return
        self.is_done = True
        if self.entry is None:
            await _release_another(self.core, self.max_permits)
        else:
            await _cancel_wait(self.core, self.entry, self.max_permits)


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
        release = PermitRelease(core, max_permits)
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
            release.entry = entry
            admitted = await core.wait_for_admission(entry, contender_data, replies, blocking)
            if admitted:
                return await core.hold_permit(entry, owner)
            if admitted is False and await _cancel(release, entry):
                return None
            if (await Connected()).session_id == entry.session_id:
                return Grant(entry, owner=owner)
        except SessionLostError:
            continue
        except BaseException as error:
            for grant in [each for each in core.grants if each.entry is entry]:
                core.grants.remove(grant)  # otherwise the undo of the call would release it a second time
            await Background(release.finish())
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
        if (
            not await _cancel(PermitRelease(core, max_permits, entry), entry)
            and (await Connected()).session_id == entry.session_id
        ):
            await _release_permit_elsewhere(PermitRelease(core, max_permits))


async def _cancel(release: PermitRelease, entry: wait_queue.QueueEntry) -> bool:
    """Delete our contender, in the background at the deadline.

    If this is interrupted, the caller must run ``release.finish()`` in the background. Return False
    if another process has released it. Raise OverReleaseError if too many permits would be free.
    """
    core, max_permits = release.core, release.max_permits
    try:
        while True:
            changes, exceeds_max = ((), False) if max_permits is None else await core.release_operations(max_permits)
            operations = (*changes, Delete(entry.path))
            try:
                await core.receipts.commit(*operations, on_unknown_outcome=release.settle, still_needed=release.send)
                break
            except BadVersionError:
                core.version, release.is_sent = -1, False
    except NoNodeError:
        release.is_sent = False
        return False
    except OutcomeUnknownError:
        return True
    except DeadlineError as error:
        raise_if_from_handler(error)
        release.is_sent = False  # the transaction was not executed
        await Background(release.finish())
        return True
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
    release, is_counted = PermitRelease(core, max_permits), False
    try:
        _forget_released_elsewhere(core)
        for grant in of_owner(core.grants, owner, 1):
            release.entry, is_counted = grant.entry, True
            remaining[0] -= 1
            core.grants.remove(grant)
            await StopHolding(grant.loss)
            existed = await _cancel(release, grant.entry)
            if grant.loss.fired:
                raise LockLostError(core.path, grant.loss.reason)
            if not existed and (await Connected()).session_id != grant.entry.session_id:
                raise LockLostError(core.path, "session expired")
            remaining[0] += not existed
            return
        is_counted = True
        remaining[0] -= 1
        await _release_permit_elsewhere(release)
    except BaseException as error:
        is_late = isinstance(error, DeadlineError) and not is_interrupt(error)
        if is_counted and (is_late or is_interrupt(error)):
            await Background(release.finish())
        if not is_late:
            raise


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


async def _release_permit_elsewhere(release: PermitRelease) -> None:
    """Release any permit that is held, or that an ended process held, or add one; in the background at the deadline.

    If this is interrupted, the caller must run ``release.finish()`` in the background.
    """
    core, max_permits, path = release.core, release.max_permits, release.core.path
    try:
        while True:
            _, listing, node = await read_all(Sync(path), Children(path), GetData(path))
            limit = core.limit(node) if isinstance(node, Node) else core.initial
            names = listing.names if isinstance(listing, Listing) else ()
            released = [each.name for each in wait_queue.in_order(names)[:limit]] or ended_in(names)
            operations: tuple[Operation, ...]
            if released:
                operations = (Delete(f"{path}/{released[0]}"),)
            elif max_permits is not None and limit >= max_permits:
                raise OverReleaseError("Semaphore released too many times")
            else:
                operations = await core.add_operations(1, max_permits)
            try:
                await core.receipts.commit(*operations, on_unknown_outcome=release.settle, still_needed=release.send)
                return
            except (BadVersionError, NodeExistsError, NoNodeError):
                release.is_sent = False
            except OutcomeUnknownError as error:
                if error.args[2] != "deadline":
                    raise
                return
    except BaseException as error:
        if is_interrupt(error):
            raise
        if not isinstance(error, DeadlineError):
            release.is_done = True
            raise
        release.is_sent = False  # the transaction was not executed
        await Background(release.finish())


async def _release_another(core: SemaphoreCore, max_permits: int | None) -> None:
    """Complete an interrupted release. An excessive release is not reported."""
    with suppress(OverReleaseError):
        await _release_permit_elsewhere(PermitRelease(core, max_permits))
