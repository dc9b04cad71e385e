"""Shared locks: many readers or one writer; the readers of one process share a contender.

Source: recipes.txt, "Shared Locks". Reentrance, the sharing and the downgrade (downgrade.py) are ours.

Rules for this file: pure; the state of a SharedCore is shared by the threads of one process, and changes only between
two awaits. The writer is a Lock (lock.py) with another mark; what is here is what readers and writers have to do with
each other. That the last reader of a process keeps its znode for a while is cache_revocation.py's.

Picture: ``<path>/_c_<guid>-__READ__<sequence>``  ephemeral, the readers of a process that came while it stood
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
from distsync._protocols.locks.grant import CacheState
from distsync._protocols.locks.lock import MAX_LOCAL_HANDOVERS, Grant, LockCore, hold
from distsync._protocols.retries import delete_own, delete_until_session_ends, try_delete_own
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Proven,
    Signal,
    StopHolding,
    Wait,
    WakeReason,
)
from distsync.errors import (
    DeadlineError,
    LockLostError,
    NotHeldError,
    UpgradeError,
)


class NodeNames(NamedTuple):
    """How a layout names readers and writers."""

    read: str = wait_queue.READ
    write: str = wait_queue.WRITE


class ReadSnapshot(NamedTuple):
    """How deep a thread reads between two of its lines; ``unreported_losses``: a loss that it has to be told of."""

    depth: int
    unreported_losses: Grant | None = None


class SharedCore:
    """What the threads of one process know together about one shared lock. ``cached``: by what nobody reads, and
    anybody may again."""

    def __init__(self, path: str, name_suffixes: NodeNames | None = None) -> None:
        self.path = path
        self.name_suffixes = name_suffixes or NodeNames()
        self.writer = WriterCore(self)
        self.shares: list[ReadGrant] = []
        self.cached: ReadGrant | None = None
        self.unreported_losses: dict[object, Grant] = {}
        self.contending = False
        self.changed = Signal()
        #: Who is in the line, as the watch kept it.
        self.names: WatchCache[tuple[str, ...]] = WatchCache(path, partial(holder_names, path))

    @property
    def idle(self) -> bool:
        """Nothing is held or waited for, and nobody has to be told of a loss."""
        cached = self.cached is not None and not self.cached.grant.loss.fired
        return not (self.shares or cached or self.contending or self.unreported_losses) and self.writer.idle

    # ---- who reads

    def share_of(self, owner: object) -> ReadGrant | None:
        """By what ``owner`` reads."""
        return next((share for share in tuple(self.shares) if owner in share.owners), None)

    def reads(self, owner: object) -> bool:
        """Whether ``owner`` does, and it was not lost."""
        share = self.share_of(owner)
        return share is not None and not share.grant.loss.fired

    def depth(self, owner: object) -> int:
        share = self.share_of(owner)
        return 0 if share is None else share.owners.get(owner, 0)

    def reading(self, owner: object) -> ReadSnapshot:
        """How ``owner`` does."""
        return ReadSnapshot(self.depth(owner), self.unreported_losses.get(owner))

    def deepen(self, owner: object) -> bool:
        """He reads once more, if he does already; no request."""
        return self.reads(owner) and self._reenter(owner)

    def reads_under(self, grant: Grant | None) -> ReadGrant | None:
        """What is read, or was first read, under the writer's ``grant``."""
        return next((share for share in tuple(self.shares) if grant is not None and share.writing is grant), None)

    # ---- reading

    async def acquire(
        self,
        owner: object,
        contender_data: bytes,
        blocking: bool = True,
        is_short_wait: bool = False,
        *,
        linger: float = 0.0,
    ) -> bool:
        """``owner`` reads. False: not at once if he does not ``blocking``, or not before the deadline, which is near
        with ``is_short_wait``. It is kept for ``linger`` seconds after the release of the last one, as
        ``contender_data`` then says."""
        while True:
            self._apply_losses()
            try:
                await self.writer.evict(self.writer.cached)
            except DeadlineError:
                return False
            if self._reenter(owner):
                return True
            if self.writer.owner is owner and self.writer.grant is not None:
                await self._read_inside(owner, without_cache_flag(contender_data), self.writer.grant)
                return True
            share = self._open_share()
            if share is not None and await Proven(share.grant.place.session_id) and share is self._open_share():
                self._join(share, owner)
                return True
            if self.cached is not None:
                if not await self.make_way():
                    return False
                continue
            if not self.contending:
                break
            if not blocking or await Wait(self.changed) is WakeReason.DEADLINE:
                return False
        self.contending = True
        try:
            if (is_short_wait or not blocking) and await self._kept_out() and not blocking:
                return False
            return await self._contend(owner, contender_data, linger)
        except DeadlineError:
            return False
        finally:
            self.contending = False
            self._change()

    def _reenter(self, owner: object) -> bool:
        """Who reads already reads once more, whoever waits: he would wait for himself."""
        share = self.share_of(owner)
        if share is not None:
            share.owners[owner] += 1
        return share is not None

    def _join(self, share: ReadGrant, owner: object) -> None:
        """No request. Who is interrupted in this reads by it, and lets it go, or it is still kept."""
        if share is self.cached:
            share.owners = {owner: 1}
            self.shares.append(share)
            cache, self.cached = share.grant.cache, None
            if cache is not None:
                cache.idle, cache.uses = False, cache.uses + 1
        else:
            share.owners[owner] = 1
        if not share.grant.may_be_kept:  # a writer waits, as far as we know
            share.joined += 1
        self.unreported_losses.pop(owner, None)

    def _open_share(self) -> ReadGrant | None:
        """What one more thread may read by. A writer of this process that waits comes first; of one in another process
        nobody here may know, so only so many may join."""
        if self._is_writer_waiting:
            return None
        cached = (
            self.cached if self.cached is not None and self.cached.grant.may_be_kept and not self.cached.over else None
        )
        return next((share for share in self.shares if self._is_open(share)), cached)

    @property
    def _is_writer_waiting(self) -> bool:
        """One of this process."""
        return self.writer.contending or bool(self.writer.local_waiters)

    def _is_open(self, share: ReadGrant) -> bool:
        grant = share.grant
        closed = share.inside or share.turning or grant.loss.fired or grant.revoke_requested.fired
        return not closed and share.joined < MAX_LOCAL_HANDOVERS

    async def _kept_out(self) -> bool:
        """One read instead of a create and a delete."""
        return await is_occupied(self.path, lambda order: any(map(wait_queue.shared, order)))

    async def _contend(self, owner: object, contender_data: bytes, linger: float) -> bool:
        """Obtaining a read lock, steps 1 to 6."""
        place = await wait_queue.acquire(self.path, self.name_suffixes.read, contender_data, wait_queue.shared)
        if place is None:
            return False
        try:
            grant = await hold(place, owner)
            share = ReadGrant(grant, {owner: 1}, contender_data)
            if linger:
                grant.cache = CacheState(linger)
                await Background(watch_for_contenders(grant, grant.cache, lambda: self.evict(share), reads=True))
        except BaseException:
            await Background(delete_until_session_ends(place.path, place.session_id))
            raise
        self._begin(share)
        return True

    async def _read_inside(self, owner: object, contender_data: bytes, writing: Grant) -> None:
        """The writer reads too: his znode keeps everybody out. A loss is told to both."""
        grant = await hold(writing.place, owner)
        self._begin(ReadGrant(grant, {owner: 1}, contender_data, writing, inside=True))

    def _begin(self, share: ReadGrant) -> None:
        self.shares.append(share)
        for owner in share.owners:
            self.unreported_losses.pop(owner, None)

    def _change(self) -> None:
        """Whoever waits inside the process looks again."""
        changed, self.changed = self.changed, Signal()
        changed.fire()

    def _apply_losses(self) -> None:
        """What was lost is held no more; its owners learn of it at their releases."""
        self.writer._apply_losses()
        for share in tuple(self.shares):
            if share.grant.loss.fired:
                self.shares.remove(share)
                share.over = True
                self.unreported_losses.update(dict.fromkeys(share.owners, share.grant))
        if self.cached is not None and self.cached.grant.loss.fired:
            self.cached = None

    async def is_held(self, matches: wait_queue.Rule) -> bool:
        """Whether anybody who is meant holds: what the watch kept, or a look. What this process has done counts: the
        event of a write comes before its answer."""
        return any(map(matches, wait_queue.current_holders(wait_queue.in_order(await self.names.get()))))

    # ---- no longer reading

    async def release(self, owner: object, linger: bool = True) -> None:
        """``owner`` reads once less; what nobody reads by is kept, if no writer wants it. Raises LockLostError if it
        was lost meanwhile, NotHeldError if he does not."""
        share = self._claim(owner)
        if share.owners[owner] > 1:
            share.owners[owner] -= 1
            return
        try:
            proven = await Proven(share.grant.place.session_id)
        except BaseException:
            await Background(self._leave(share, owner))
            raise
        share = self._claim(owner)
        try:
            if linger and proven and self._release_to_cache(share, owner):
                return
            there = not self._depart(share, owner) or await self._delete_node(share)
        except BaseException:
            await Background(self._leave(share, owner))
            raise
        if not there or not proven:
            raise LockLostError(self.path, share.grant.loss.reason or (ZNODE_DELETED if proven else "lease ran out"))

    def _claim(self, owner: object) -> ReadGrant:
        """By what he reads. Who lost it is told so, once."""
        self._apply_losses()
        share = self.share_of(owner)
        if share is not None:
            return share
        grant = self.unreported_losses.pop(owner, None)
        if grant is not None:
            raise LockLostError(self.path, grant.loss.reason or "session expired")
        raise NotHeldError(f"release of the reader of {self.path}, which this thread does not hold")

    async def force_release(self, share: ReadGrant, owner: object) -> None:
        """A call of ``owner``'s was interrupted anywhere: he reads no more."""
        if self.unreported_losses.get(owner) is share.grant:
            del self.unreported_losses[owner]
        share.owners.pop(owner, None)
        if not share.owners:
            share.over = True
            self.shares = [each for each in self.shares if each is not share]
            self.cached = None if self.cached is share else self.cached
            await self._delete_node(share)

    def _leave(self, share: ReadGrant, owner: object) -> Coroutine[Any, Any, None]:
        """``owner`` reads no more, from now on, and may read anew; what is returned ends it for a stranger."""
        stranger = object()
        if self.unreported_losses.get(owner) is share.grant:
            del self.unreported_losses[owner]
        if owner in share.owners:
            share.owners[stranger] = 1
            share.owners.pop(owner, None)
        return self.force_release(share, stranger)

    def undo_acquire(
        self, owner: object, before: ReadSnapshot, temporary_owner: object
    ) -> Coroutine[Any, Any, None] | None:
        """``owner`` reads as ``before``, at most. What is returned, if anything, ends it. May be done twice, with the
        same ``temporary_owner``: who reads until then, so that ``owner`` does not find himself among the readers."""
        share = self.share_of(owner) or self.share_of(temporary_owner)
        if not before.depth and self.unreported_losses.get(owner) is not before.unreported_losses:
            self.unreported_losses.pop(owner, None)
        if share is None:
            return None
        if before.depth > 0:
            share.owners[owner] = min(before.depth, share.owners[owner])
            return None
        share.owners[temporary_owner] = 1
        share.owners.pop(owner, None)
        return self.force_release(share, temporary_owner)

    def _release_to_cache(self, share: ReadGrant, owner: object) -> bool:
        """Whether he was the last one, and it is kept. No request."""
        cache = share.grant.cache
        if cache is None or not share.grant.may_be_kept or len(share.owners) > 1 or share.over:
            return False
        if self.cached is not None or self._is_writer_waiting:
            return False
        share.owners.pop(owner, None)
        self.shares.remove(share)
        self.cached, cache.idle = share, True
        if cache.wakeup is not None:
            cache.wakeup.fire()
        return True

    async def evict(self, share: ReadGrant | None) -> None:
        """This is kept no more."""
        if share is not None and self.cached is share:
            try:
                self.cached, share.over = None, True
                await self._delete_node(share)
            except BaseException:  # nobody else knows of it any more
                await Background(self._delete_node(share))
                raise

    async def make_way(self) -> bool:
        """The same, for a call that goes on then; False at its deadline."""
        share = self.cached
        if share is None:
            return True
        place = share.grant.place
        try:
            self.cached, share.over = None, True
            share.grant.end()
            await StopHolding(share.grant.loss)
            return await try_delete_own(place.path, place.session_id)
        except BaseException:
            await Background(delete_until_session_ends(place.path, place.session_id))
            raise

    def _depart(self, share: ReadGrant, owner: object) -> bool:
        """Whether he was the last one."""
        share.owners.pop(owner, None)
        if share.owners or share.over:
            return False
        share.over = True
        self.shares.remove(share)
        return True

    async def _delete_node(self, share: ReadGrant) -> bool:
        """The unlock protocol, begun in the moment in which it is over. Of a writer's znode, and of one that becomes
        ours just then, others take care."""
        place, not_ours = share.grant.place, share.inside or share.turning
        try:
            share.grant.end()
            await StopHolding(share.grant.loss)
            if not_ours:
                return not share.grant.loss.fired
            return await delete_own(place.path, place.session_id)
        except BaseException:
            if not not_ours:
                await Background(delete_until_session_ends(place.path, place.session_id))
            raise

    # ---- from writer to reader

    async def downgrade(self, share: ReadGrant) -> bool:
        """Who wrote and reads too reads on, and nobody comes in between. It is done apart from the call, which may be
        interrupted."""
        share.inside, share.turning = False, True
        done = Signal()
        await Background(self._turn(share, done))
        await Wait(done)
        return not share.grant.loss.fired

    async def _turn(self, share: ReadGrant, finished: Signal) -> None:
        try:
            await into_reader(share, self.name_suffixes.read)
        finally:
            share.turning = False
            finished.fire()
            self._change()


class WriterCore(LockCore):
    """The writers: a Lock whose holder may be a reader too."""

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
        """``owner`` writes. Raises UpgradeError if he reads: he would wait for himself."""
        if self.shared.reads(owner):
            raise UpgradeError(self.path)
        if not await self.shared.make_way():
            return False
        return await super().acquire(owner, contender_data, blocking, linger=linger, is_short_wait=is_short_wait)

    def release_to_cache(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super().release_to_cache()

    def _hand_to_local_waiter(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super()._hand_to_local_waiter()

    async def _delete_node(self, grant: Grant) -> bool:
        share = self.shared.reads_under(grant)
        if share is None:
            return await super()._delete_node(grant)
        if not share.inside:  # done before: this call was interrupted, and is made again
            return True
        grant.end()
        try:
            await StopHolding(grant.loss)
        except BaseException:
            await Background(self.shared.downgrade(share))
            raise
        return await self.shared.downgrade(share)
