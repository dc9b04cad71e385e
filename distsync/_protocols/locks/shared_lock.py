"""Shared locks: many readers or one writer.

Source: ZooKeeper recipes, "Shared Locks". Reentrance, the downgrade (downgrade.py), the caching of
the last reader's znode (cache_revocation.py), and that the readers of a process share a contender,
are not from the recipe.

The writer is a Lock (lock.py) with another name suffix. All threads of a process share one
SharedCore, without a mutex of its own: its state changes only between two awaits.

Znodes:
``<path>/_c_<guid>-__READ__<sequence>``  ephemeral, shared by readers of one process
``<path>/_c_<guid>-__WRIT__<sequence>``  ephemeral, a writer
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import (
    holder_names,
    is_occupied,
    watch_for_contenders,
    without_cache_flag,
)
from distsync._protocols.locks.downgrade import ReadGrant, into_reader
from distsync._protocols.locks.grant import CacheState, TemporaryOwner
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS, Grant, LockCore, hold
from distsync._protocols.retries import delete_own, delete_until_session_ends, try_delete_own
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    SessionAlive,
    Signal,
    StopHolding,
    Wait,
    WakeReason,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    DeadlineError,
    LockLostError,
    NotHeldError,
    UpgradeError,
)


class NodeNames(NamedTuple):
    """Suffixes of the names of readers and writers in a layout."""

    read: str = wait_queue.READ
    write: str = wait_queue.WRITE


class ReadSnapshot(NamedTuple):
    """State of a reader before a call, from which an interrupted call is undone or completed.

    Attributes:
        depth: How many times it had acquired the lock without releasing it.
        unreported_losses: A loss that it was not yet notified of, or None.
    """

    depth: int
    unreported_losses: Grant | None = None


class SharedCore:
    """In-process state of a shared lock, shared by all its threads.

    Attributes:
        path: Path of the queue.
        name_suffixes: Suffixes of the names of readers and writers.
        writer: State of the writers.
        shares: Contenders by which threads of this process read.
        cached: A contender that no thread reads by, but that can be acquired again, or None.
        unreported_losses: Loss of each owner that was not yet notified.
        contending: How many readers of this process are enqueued, or about to be.
        changed: Fires at the next change of this state.
        names: Watched names of the contenders.
    """

    def __init__(self, path: str, name_suffixes: NodeNames | None = None) -> None:
        self.path = path
        self.name_suffixes = name_suffixes or NodeNames()
        self.writer = WriterCore(self)
        self.shares: list[ReadGrant] = []
        self.cached: ReadGrant | None = None
        self.unreported_losses: dict[object, Grant] = {}
        self.contending = 0
        self.changed = Signal()
        self.names: WatchCache[tuple[str, ...]] = WatchCache(path, partial(holder_names, path))

    @property
    def idle(self) -> bool:
        """Whether this state can be discarded: nothing is held, cached, awaited or unreported."""
        cached = self.cached is not None and not self.cached.grant.loss.fired
        return not (self.shares or cached or self.contending or self.unreported_losses) and self.writer.idle

    # ---- state of the readers

    def share_of(self, owner: object) -> ReadGrant | None:
        """Return the contender by which ``owner`` reads."""
        return next((share for share in tuple(self.shares) if owner in share.owners), None)

    def reads(self, owner: object) -> bool:
        """Return whether ``owner`` reads, and has not lost the lock."""
        share = self.share_of(owner)
        return share is not None and not share.grant.loss.fired

    def depth(self, owner: object) -> int:
        share = self.share_of(owner)
        return 0 if share is None else share.owners.get(owner, 0)

    def reading(self, owner: object) -> ReadSnapshot:
        """Return a snapshot of the state of ``owner``."""
        return ReadSnapshot(self.depth(owner), self.unreported_losses.get(owner))

    def loss_of(self, owner: object) -> Grant | None:
        """Return the grant that ``owner`` has lost without being notified yet, or None."""
        share = self.share_of(owner)
        return share.grant if share is not None and share.grant.loss.fired else self.unreported_losses.get(owner)

    def deepen(self, owner: object) -> bool:
        """Acquire the lock again if ``owner`` already reads. Costs no request."""
        return self.reads(owner) and self._reenter(owner)

    def ascend(self, owner: object) -> bool:
        """Release the lock once if ``owner`` has acquired it more than once. Costs no request."""
        share = self.share_of(owner)
        if share is None or share.grant.loss.fired or share.owners[owner] <= 1:
            return False
        share.reduce(owner, share.owners[owner] - 1)
        return True

    def reads_under(self, grant: Grant | None) -> ReadGrant | None:
        """Return the contender by which the writer that holds ``grant`` reads, or has read before its downgrade.

        If only the clean-up of an interrupted call is left of it, there is nothing to downgrade.
        """
        shares = (share for share in tuple(self.shares) if grant is not None and share.writing is grant)
        return next((share for share in shares if share.is_held or share.downgrading or not share.inside), None)

    # ---- acquire

    async def acquire(
        self,
        owner: object,
        contender_data: bytes,
        blocking: bool = True,
        is_short_wait: bool = False,
        *,
        linger: float = 0.0,
        depth: int = 1,
    ) -> bool:
        """Acquire the reader for ``owner``.

        Args:
            owner: The thread or task that will read.
            contender_data: Data of the contender's znode. It must state ``linger``.
            blocking: Whether to wait if a writer holds the lock or waits for it.
            is_short_wait: Whether the deadline is too close to wait for a cached lock to be evicted.
            linger: Seconds for which the lock stays cached after its last release; 0 disables caching.
            depth: How many times it is acquired.

        Returns:
            True if the lock was acquired. False at the deadline, or if ``blocking`` is False and the
            lock is not available.
        """
        while True:
            self._apply_losses()
            try:
                await self.writer.evict(self.writer.cached)
            except DeadlineError as error:
                raise_if_from_handler(error)
                return False
            if self._reenter(owner, depth):
                return True
            if self.writer.owner is owner and self.writer.grant is not None:
                await self._read_under_writer(owner, contender_data, self.writer.grant, depth)
                return True
            share = self._open_share()
            if share is not None and await SessionAlive(share.grant.entry.session_id) and share is self._open_share():
                self._join(share, owner, depth)
                return True
            if self.cached is not None:
                if not await self.make_way():
                    return False
                continue
            # The other one may only wait for a reply. A reader that hardly waits is admitted together with it.
            if not self.contending or not blocking or is_short_wait:
                break
            if await Wait(self.changed) is WakeReason.DEADLINE:
                return False
        self.contending += 1
        try:
            if (is_short_wait or not blocking) and await self._is_blocked() and not blocking:
                return False
            return await self._contend(owner, contender_data, linger, depth)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
        finally:
            self.contending -= 1
            self._notify()

    def _reenter(self, owner: object, depth: int = 1) -> bool:
        """Acquire the lock again if ``owner`` reads.

        A waiting writer does not prevent this: it would be a deadlock.
        """
        share = self.share_of(owner)
        if share is not None:
            share.owners[owner] += depth
        return share is not None

    def _join(self, share: ReadGrant, owner: object, depth: int) -> None:
        """Read by an existing or cached contender. Costs no request.

        If interrupted, ``owner`` reads by it and the undo releases it, or it is still cached.
        """
        share.grant.loss.is_joined = True
        if share is self.cached:
            share.owners = {owner: depth}
            self.shares.append(share)
            cache, self.cached = share.grant.cache, None
            if cache is not None:
                cache.idle, cache.uses = False, cache.uses + 1
        else:
            share.owners[owner] = depth
        if not share.grant.may_be_cached:  # a writer may be waiting
            share.joined += 1
        self.unreported_losses.pop(owner, None)

    def _open_share(self) -> ReadGrant | None:
        """Return a contender that another reader may join, or None.

        A waiting writer of this process has precedence. A waiting writer of another process may be
        unknown here, so the number of readers that join is limited.
        """
        if self._is_writer_waiting:
            return None
        cached = (
            self.cached
            if self.cached is not None and self.cached.grant.may_be_cached and not self.cached.released
            else None
        )
        return next((share for share in self.shares if self._is_open(share)), cached)

    @property
    def _is_writer_waiting(self) -> bool:
        """Whether a writer of this process waits."""
        return self.writer.contending or bool(self.writer.local_waiters)

    def _is_open(self, share: ReadGrant) -> bool:
        grant = share.grant
        closed = share.inside or share.downgrading or grant.loss.fired or grant.revoke_requested.fired
        return not closed and share.joined < MAX_LOCAL_HANDOVERS

    async def _is_blocked(self) -> bool:
        """Return whether there is a writer. This does not enqueue (see LockCore.occupied)."""
        return await is_occupied(self.path, lambda order: any(map(wait_queue.is_writer, order)))

    async def _contend(self, owner: object, contender_data: bytes, linger: float, depth: int) -> bool:
        """Enqueue and wait ("Obtaining a read lock", steps 1 to 6)."""
        entry = await wait_queue.acquire(self.path, self.name_suffixes.read, contender_data, wait_queue.is_writer)
        if entry is None:
            return False
        try:
            grant = await hold(entry, owner)
            share = ReadGrant(grant, {owner: depth}, contender_data)
            if linger:
                grant.cache = CacheState(linger)
                await Background(watch_for_contenders(grant, grant.cache, lambda: self.evict(share), reads=True))
        except BaseException:
            await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            raise
        self._add_share(share)
        return True

    async def _read_under_writer(self, owner: object, contender_data: bytes, writing: Grant, depth: int = 1) -> None:
        """Let the writer read under its own znode, which keeps all others out.

        Its loss is reported to the reader and to the writer.
        """
        grant = await hold(writing.entry, owner)
        self._add_share(ReadGrant(grant, {owner: depth}, without_cache_flag(contender_data), writing, inside=True))

    def _add_share(self, share: ReadGrant) -> None:
        self.shares.append(share)
        for owner in share.owners:
            self.unreported_losses.pop(owner, None)

    def _notify(self) -> None:
        changed, self.changed = self.changed, Signal()
        changed.fire()

    def _apply_losses(self) -> None:
        """Clear lost grants. The owner of a lost lock is notified when it releases the lock."""
        self.writer._apply_losses()
        for share in tuple(self.shares):
            if share.grant.loss.fired:
                self.shares.remove(share)
                share.released = True
                self.unreported_losses.update(dict.fromkeys(share.owners, share.grant))
        if self.cached is not None and self.cached.grant.loss.fired:
            self.cached = None

    async def is_held(self, matches: wait_queue.Rule) -> bool:
        """Return whether a matching contender holds the lock, by the watched names or by a read.

        The result reflects the writes of this process: the event of a write comes before its reply.
        """
        return any(map(matches, wait_queue.current_holders(wait_queue.in_order(await self.names.get()))))

    # ---- release

    async def release(self, owner: object, linger: bool = True, *, all_levels: bool = False) -> None:
        """Release the lock once, or on ``all_levels``. The last release caches it, or deletes its znode.

        Raises LockLostError if the lock was lost while it was held, NotHeldError if ``owner`` does
        not read.
        """
        if not all_levels and self.ascend(owner):
            return
        share = self._claim(owner)
        try:
            session_alive = await SessionAlive(share.grant.entry.session_id)
        except BaseException:
            await Background(self._leave(share, owner))
            raise
        share = self._claim(owner)
        try:
            if linger and session_alive and self._release_to_cache(share, owner):
                return
            subscribers = [each for each in share.grant.subscribers if each.owner is owner]
            existed = not self._remove_reader(share, owner) or await self._delete_node(share)
        except BaseException:
            await Background(self._leave(share, owner))
            raise
        if not existed or not session_alive:
            share.grant.lose(ZNODE_DELETED if session_alive else "lease expired", subscribers)
            raise LockLostError(self.path, share.grant.loss.reason)

    def _claim(self, owner: object) -> ReadGrant:
        """Return the contender by which ``owner`` reads.

        Raise LockLostError, once, if it was lost.
        """
        self._apply_losses()
        share = self.share_of(owner)
        if share is not None:
            return share
        grant = self.unreported_losses.pop(owner, None)
        if grant is not None:
            raise LockLostError(self.path, grant.loss.reason or "session expired")
        raise NotHeldError(f"cannot release the reader of {self.path}: it is not held by this thread")

    async def force_release(self, share: ReadGrant, owner: object) -> None:
        """Release ``share`` after a call of ``owner`` was interrupted at an unknown point."""
        if self.unreported_losses.get(owner) is share.grant:
            del self.unreported_losses[owner]
        share.leave(owner)
        if not share.owners:
            share.released = True
            self.shares = [each for each in self.shares if each is not share]
            self.cached = None if self.cached is share else self.cached
            await self._delete_node(share)

    def _leave(self, share: ReadGrant, owner: object) -> Coroutine[Any, Any, None]:
        """Stop reading now, so that ``owner`` may acquire the lock again. Return a coroutine.

        The coroutine completes the release, on behalf of a temporary owner.
        """
        stranger = TemporaryOwner()
        if self.unreported_losses.get(owner) is share.grant:
            del self.unreported_losses[owner]
        if owner in share.owners:
            share.owners[stranger] = 1
            share.leave(owner)
        return self.force_release(share, stranger)

    def undo_acquire(
        self, owner: object, before: ReadSnapshot, temporary_owner: TemporaryOwner
    ) -> Coroutine[Any, Any, None] | None:
        """Undo acquisitions by ``owner`` made after the snapshot ``before``.

        Return a coroutine that releases the lock, or None if it stays held. Until then
        ``temporary_owner`` is the reader instead of any thread. Idempotent if called again with the
        same ``temporary_owner``.
        """
        share = self.share_of(owner) or self.share_of(temporary_owner)
        if not before.depth and self.unreported_losses.get(owner) is not before.unreported_losses:
            self.unreported_losses.pop(owner, None)
        if share is None:
            return None
        if before.depth > 0:
            share.reduce(owner, min(before.depth, share.owners[owner]))
            return None
        share.owners[temporary_owner] = 1
        share.leave(owner)
        return self.force_release(share, temporary_owner)

    def _release_to_cache(self, share: ReadGrant, owner: object) -> bool:
        """Cache the lock if ``owner`` is its last reader.

        Return whether it was cached. No request.
        """
        cache = share.grant.cache
        if cache is None or not share.grant.may_be_cached or len(share.owners) > 1 or share.released:
            return False
        if self.cached is not None or self._is_writer_waiting:
            return False
        share.leave(owner)
        share.grant.unsubscribe_all()
        self.shares.remove(share)
        self.cached, cache.idle = share, True
        if cache.wakeup is not None:
            cache.wakeup.fire()
        return True

    async def evict(self, share: ReadGrant | None) -> None:
        """Delete the znode of a cached lock."""
        if share is not None and self.cached is share:
            try:
                self.cached, share.released = None, True
                await self._delete_node(share)
            except BaseException:  # no other reference to the share is left
                await Background(self._delete_node(share))
                raise

    async def make_way(self) -> bool:
        """Evict the cached lock for a call that goes ahead afterwards.

        Return False at its deadline.
        """
        share = self.cached
        if share is None:
            return True
        entry = share.grant.entry
        try:
            self.cached, share.released = None, True
            share.grant.end()
            await StopHolding(share.grant.loss)
            return await try_delete_own(entry.path, entry.session_id)
        except BaseException:
            await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            raise

    def _remove_reader(self, share: ReadGrant, owner: object) -> bool:
        """Release the lock for ``owner``. Return whether it was the last reader."""
        share.leave(owner)
        if share.owners or share.released:
            return False
        share.released = True
        self.shares.remove(share)
        return True

    async def _delete_node(self, share: ReadGrant) -> bool:
        """Delete the znode of a contender that was released (unlock protocol of the recipe).

        The znode of a writer, or of a downgrade in progress, is left to be deleted by that. Return
        False if the lock was lost.
        """
        entry, not_ours = share.grant.entry, share.inside or share.downgrading
        try:
            share.grant.end()
            await StopHolding(share.grant.loss)
            if not_ours:
                return not share.grant.loss.fired
            return await delete_own(entry.path, entry.session_id)
        except BaseException:
            if not not_ours:
                await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            raise

    def detach(self, owner: object) -> object:
        """Let ``owner`` stop reading now. Return the owner that its last release is to be made for."""
        share = self.share_of(owner)
        if share is None:
            return owner
        detached = object()
        share.owners[detached] = share.owners[owner]
        share.leave(owner)
        return detached

    # ---- the reads of a writer that waits for a notification

    async def suspend_reads(self, owner: object) -> None:
        """Release all reads of ``owner``, which also writes. No request.

        A loss stays unreported until ``owner`` releases the reader.
        """
        self._apply_losses()
        share = self.share_of(owner)
        try:
            if share is not None and self._remove_reader(share, owner):
                await self._delete_node(share)
        except BaseException:
            if share is not None:
                await Background(self._leave(share, owner))
            raise

    async def resume_reads(self, owner: object, contender_data: bytes, depth: int) -> None:
        """Let ``owner``, which writes again, read ``depth`` levels deep. No request.

        If it has lost the writer by then, it has lost the reader too.
        """
        self._apply_losses()
        if self.writer.owner is owner and self.writer.grant is not None:
            await self._read_under_writer(owner, contender_data, self.writer.grant, depth)
        else:
            self.unreported_losses.update(entry for entry in self.writer.unreported_losses if entry[0] is owner)

    # ---- downgrade

    async def downgrade(self, share: ReadGrant) -> bool:
        """Downgrade atomically from writer to reader. Return False if the lock was lost.

        This continues in the background if the call is interrupted.
        """
        share.downgrading = True
        done = Signal()
        await Background(self._run_downgrade(share, done))
        await Wait(done)
        return not share.grant.loss.fired

    async def _run_downgrade(self, share: ReadGrant, finished: Signal) -> None:
        if not share.inside:  # begun already: an interrupted call is repeated
            finished.fire()
            return
        share.inside = False  # only now: an interrupted call may not have got as far as this
        try:
            await into_reader(share, self.name_suffixes.read)
        finally:
            share.downgrading = False
            finished.fire()
            self._notify()


class WriterCore(LockCore):
    """In-process state of the writers: a Lock whose holder may also read."""

    def __init__(self, shared: SharedCore) -> None:
        super().__init__(shared.path, shared.name_suffixes.write)
        self.shared = shared

    async def acquire(
        self,
        owner: object,
        contender_data: bytes,
        blocking: bool = True,
        *,
        linger: float = 0.0,
        is_short_wait: bool = False,
    ) -> bool:
        """Acquire the writer.

        Raise UpgradeError if ``owner`` reads, as it would wait for itself.
        """
        if self.shared.reads(owner):
            raise UpgradeError(self.path)
        if not await self.shared.make_way():
            return False
        return await super().acquire(owner, contender_data, blocking, linger=linger, is_short_wait=is_short_wait)

    async def locked(self) -> bool:
        """Return whether any process writes."""
        return await self.shared.is_held(wait_queue.is_writer)

    async def suspend(self, owner: object) -> None:
        """Release both sides, however often ``owner`` holds them.

        Another acquire and `resume_reads` restore them.
        """
        grant, reads = self.grant, self.shared.depth(owner)
        await self.shared.suspend_reads(owner)
        try:
            await self.release(owner, linger=False)
        except LockLostError:
            if reads and grant is not None:
                self.shared.unreported_losses.setdefault(owner, grant)
            raise

    def detach(self, owner: object) -> object:
        """Let ``owner`` stop writing now. Return the owner that its last release is to be made for."""
        if self.owner is not owner or self.grant is None:
            return owner
        self.owner = detached = object()
        return detached

    def release_to_cache(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super().release_to_cache()

    def _hand_to_local_waiter(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super()._hand_to_local_waiter()

    async def _delete_node(self, grant: Grant) -> bool:
        share = self.shared.reads_under(grant)
        if share is None:
            return await super()._delete_node(grant)
        if not share.inside:  # downgraded already: an interrupted call is repeated
            return True
        grant.end()
        try:
            await StopHolding(grant.loss)
        except BaseException:
            await Background(self.shared.downgrade(share))
            raise
        return await self.shared.downgrade(share)
