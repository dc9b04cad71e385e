"""Shared locks: many readers or one writer; the readers of one process share a contender.

Source: recipes.txt, "Shared Locks". Reentrance, the sharing and the downgrade (downgrade.py) are ours.

Rules for this file: pure; the state of a SharedCore is shared by the threads of one process, and changes only between
two awaits. The writer is a Lock (lock.py) with another mark; what is here is what readers and writers have to do with
each other. That the last reader of a process keeps its znode for a while is keep.py's.

Picture: ``<path>/_c_<guid>-__READ__<sequence>``  ephemeral, the readers of a process that came while it stood
         ``<path>/_c_<guid>-__WRIT__<sequence>``  ephemeral, a writer
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from distsync.errors import (
    DeadlineError,
    LockLostError,
    NotHeldError,
    UpgradeError,
)
from distsync.protocols import line
from distsync.protocols.downgrade import Share, into_reader
from distsync.protocols.grant import Keeping
from distsync.protocols.guard import leave, make_way, remove
from distsync.protocols.keep import is_taken, names_taken, tend, unkept
from distsync.protocols.lock import LOCAL_TURNS, Grant, LockCore, hold
from distsync.protocols.watched import Watched
from distsync.session.steps import (
    Background,
    Proven,
    Signal,
    Unhold,
    Wait,
    Woke,
)


class Marks(NamedTuple):
    """How a layout names readers and writers."""

    read: str = line.READ
    write: str = line.WRITE


class Reading(NamedTuple):
    """How deep a thread reads between two of its lines; ``untold``: a loss that it has to be told of."""

    depth: int
    untold: Grant | None = None


class SharedCore:
    """What the threads of one process know together about one shared lock. ``kept``: by what nobody reads, and anybody
    may again."""

    def __init__(self, path: str, marks: Marks | None = None) -> None:
        self.path = path
        self.marks = marks or Marks()
        self.writer = WriterCore(self)
        self.shares: list[Share] = []
        self.kept: Share | None = None
        self.lost: dict[object, Grant] = {}
        self.contending = False
        self.changed = Signal()
        #: Who is in the line, as the watch kept it.
        self.names: Watched[tuple[str, ...]] = Watched(path, partial(names_taken, path))

    @property
    def idle(self) -> bool:
        """Nothing is held or waited for, and nobody has to be told of a loss."""
        kept = self.kept is not None and not self.kept.grant.loss.fired
        return not (self.shares or kept or self.contending or self.lost) and self.writer.idle

    # ---- who reads

    def share_of(self, owner: object) -> Share | None:
        """By what ``owner`` reads."""
        return next((share for share in tuple(self.shares) if owner in share.owners), None)

    def reads(self, owner: object) -> bool:
        """Whether ``owner`` does, and it was not lost."""
        share = self.share_of(owner)
        return share is not None and not share.grant.loss.fired

    def depth(self, owner: object) -> int:
        share = self.share_of(owner)
        return 0 if share is None else share.owners.get(owner, 0)

    def reading(self, owner: object) -> Reading:
        """How ``owner`` does."""
        return Reading(self.depth(owner), self.lost.get(owner))

    def deepen(self, owner: object) -> bool:
        """He reads once more, if he does already; no request."""
        return self.reads(owner) and self._reenter(owner)

    def reads_under(self, grant: Grant | None) -> Share | None:
        """What is read, or was first read, under the writer's ``grant``."""
        return next((share for share in tuple(self.shares) if grant is not None and share.writing is grant), None)

    # ---- reading

    async def acquire(
        self, owner: object, data: bytes, wait: bool = True, brief: bool = False, *, keep: float = 0.0
    ) -> bool:
        """``owner`` reads. False: not at once if he does not ``wait``, or not before the deadline, which is near if it
        is ``brief``. It is kept for ``keep`` seconds after the release of the last one, as ``data`` then says."""
        while True:
            self._settle()
            try:
                await self.writer.let_kept_go(self.writer.kept)
            except DeadlineError:
                return False
            if self._reenter(owner):
                return True
            if self.writer.owner is owner and self.writer.grant is not None:
                await self._read_inside(owner, unkept(data), self.writer.grant)
                return True
            share = self._open_share()
            if share is not None and await Proven(share.grant.place.session_id) and share is self._open_share():
                self._join(share, owner)
                return True
            if self.kept is not None:
                if not await self.make_way():
                    return False
                continue
            if not self.contending:
                break
            if not wait or await Wait(self.changed) is Woke.DEADLINE:
                return False
        self.contending = True
        try:
            if (brief or not wait) and await self._kept_out() and not wait:
                return False
            return await self._contend(owner, data, keep)
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

    def _join(self, share: Share, owner: object) -> None:
        """No request. Who is interrupted in this reads by it, and lets it go, or it is still kept."""
        if share is self.kept:
            share.owners = {owner: 1}
            self.shares.append(share)
            keeping, self.kept = share.grant.keeping, None
            if keeping is not None:
                keeping.idle, keeping.uses = False, keeping.uses + 1
        else:
            share.owners[owner] = 1
        if not share.grant.may_be_kept:  # a writer waits, as far as we know
            share.joined += 1
        self.lost.pop(owner, None)

    def _open_share(self) -> Share | None:
        """What one more thread may read by. A writer of this process that waits comes first; of one in another process
        nobody here may know, so only so many may join."""
        if self._is_writer_waiting:
            return None
        kept = self.kept if self.kept is not None and self.kept.grant.may_be_kept and not self.kept.over else None
        return next((share for share in self.shares if self._is_open(share)), kept)

    @property
    def _is_writer_waiting(self) -> bool:
        """One of this process."""
        return self.writer.contending or bool(self.writer.tickets)

    def _is_open(self, share: Share) -> bool:
        grant = share.grant
        closed = share.inside or share.turning or grant.loss.fired or grant.plea.fired
        return not closed and share.joined < LOCAL_TURNS

    async def _kept_out(self) -> bool:
        """One read instead of a create and a delete."""
        return await is_taken(self.path, lambda order: any(map(line.shared, order)))

    async def _contend(self, owner: object, data: bytes, keep: float) -> bool:
        """Obtaining a read lock, steps 1 to 6."""
        place = await line.acquire(self.path, self.marks.read, data, line.shared)
        if place is None:
            return False
        try:
            grant = await hold(place, owner)
            share = Share(grant, {owner: 1}, data)
            if keep:
                grant.keeping = Keeping(keep)
                await Background(tend(grant, grant.keeping, lambda: self.let_kept_go(share), reads=True))
        except BaseException:
            await Background(remove(place.path, place.session_id))
            raise
        self._begin(share)
        return True

    async def _read_inside(self, owner: object, data: bytes, writing: Grant) -> None:
        """The writer reads too: his znode keeps everybody out. A loss is told to both."""
        grant = await hold(writing.place, owner)
        self._begin(Share(grant, {owner: 1}, data, writing, inside=True))

    def _begin(self, share: Share) -> None:
        self.shares.append(share)
        for owner in share.owners:
            self.lost.pop(owner, None)

    def _change(self) -> None:
        """Whoever waits inside the process looks again."""
        changed, self.changed = self.changed, Signal()
        changed.fire()

    def _settle(self) -> None:
        """What was lost is held no more; its owners learn of it at their releases."""
        self.writer._settle()
        for share in tuple(self.shares):
            if share.grant.loss.fired:
                self.shares.remove(share)
                share.over = True
                self.lost.update(dict.fromkeys(share.owners, share.grant))
        if self.kept is not None and self.kept.grant.loss.fired:
            self.kept = None

    async def is_held(self, is_meant: line.Rule) -> bool:
        """Whether anybody who is meant holds: what the watch kept, or a look. What this process has done counts: the
        event of a write comes before its answer."""
        return any(map(is_meant, line.front(line.in_order(await self.names.get()))))

    # ---- no longer reading

    async def release(self, owner: object, keep: bool = True) -> None:
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
            if keep and proven and self._put_by(share, owner):
                return
            there = not self._depart(share, owner) or await self._erase(share)
        except BaseException:
            await Background(self._leave(share, owner))
            raise
        if not there or not proven:
            raise LockLostError(self.path, share.grant.loss.reason or ("znode deleted" if proven else "lease ran out"))

    def _claim(self, owner: object) -> Share:
        """By what he reads. Who lost it is told so, once."""
        self._settle()
        share = self.share_of(owner)
        if share is not None:
            return share
        grant = self.lost.pop(owner, None)
        if grant is not None:
            raise LockLostError(self.path, grant.loss.reason or "session expired")
        raise NotHeldError(f"release of the reader of {self.path}, which this thread does not hold")

    async def drop(self, share: Share, owner: object) -> None:
        """A call of ``owner``'s was interrupted anywhere: he reads no more."""
        if self.lost.get(owner) is share.grant:
            del self.lost[owner]
        share.owners.pop(owner, None)
        if not share.owners:
            share.over = True
            self.shares = [each for each in self.shares if each is not share]
            self.kept = None if self.kept is share else self.kept
            await self._erase(share)

    def _leave(self, share: Share, owner: object) -> Coroutine[Any, Any, None]:
        """``owner`` reads no more, from now on, and may read anew; what is returned ends it for a stranger."""
        stranger = object()
        if self.lost.get(owner) is share.grant:
            del self.lost[owner]
        if owner in share.owners:
            share.owners[stranger] = 1
            share.owners.pop(owner, None)
        return self.drop(share, stranger)

    def revert(self, owner: object, before: Reading, stranger: object) -> Coroutine[Any, Any, None] | None:
        """``owner`` reads as ``before``, at most. What is returned, if anything, ends it. May be done twice, with the
        same ``stranger``: who reads until then, so that ``owner`` does not find himself among the readers."""
        share = self.share_of(owner) or self.share_of(stranger)
        if not before.depth and self.lost.get(owner) is not before.untold:
            self.lost.pop(owner, None)
        if share is None:
            return None
        if before.depth > 0:
            share.owners[owner] = min(before.depth, share.owners[owner])
            return None
        share.owners[stranger] = 1
        share.owners.pop(owner, None)
        return self.drop(share, stranger)

    def _put_by(self, share: Share, owner: object) -> bool:
        """Whether he was the last one, and it is kept. No request."""
        keeping = share.grant.keeping
        if keeping is None or not share.grant.may_be_kept or len(share.owners) > 1 or share.over:
            return False
        if self.kept is not None or self._is_writer_waiting:
            return False
        share.owners.pop(owner, None)
        self.shares.remove(share)
        self.kept, keeping.idle = share, True
        if keeping.doze is not None:
            keeping.doze.fire()
        return True

    async def let_kept_go(self, share: Share | None) -> None:
        """This is kept no more."""
        if share is not None and self.kept is share:
            try:
                self.kept, share.over = None, True
                await self._erase(share)
            except BaseException:  # nobody else knows of it any more
                await Background(self._erase(share))
                raise

    async def make_way(self) -> bool:
        """The same, for a call that goes on then; False at its deadline."""
        share = self.kept
        if share is None:
            return True
        place = share.grant.place
        try:
            self.kept, share.over = None, True
            share.grant.end()
            await Unhold(share.grant.loss)
            return await make_way(place.path, place.session_id)
        except BaseException:
            await Background(remove(place.path, place.session_id))
            raise

    def _depart(self, share: Share, owner: object) -> bool:
        """Whether he was the last one."""
        share.owners.pop(owner, None)
        if share.owners or share.over:
            return False
        share.over = True
        self.shares.remove(share)
        return True

    async def _erase(self, share: Share) -> bool:
        """The unlock protocol, begun in the moment in which it is over. Of a writer's znode, and of one that becomes
        ours just then, others take care."""
        place, not_ours = share.grant.place, share.inside or share.turning
        try:
            share.grant.end()
            await Unhold(share.grant.loss)
            if not_ours:
                return not share.grant.loss.fired
            return await leave(place.path, place.session_id)
        except BaseException:
            if not not_ours:
                await Background(remove(place.path, place.session_id))
            raise

    # ---- from writer to reader

    async def downgrade(self, share: Share) -> bool:
        """Who wrote and reads too reads on, and nobody comes in between. It is done apart from the call, which may be
        interrupted."""
        share.inside, share.turning = False, True
        done = Signal()
        await Background(self._turn(share, done))
        await Wait(done)
        return not share.grant.loss.fired

    async def _turn(self, share: Share, done: Signal) -> None:
        try:
            await into_reader(share, self.marks.read)
        finally:
            share.turning = False
            done.fire()
            self._change()


class WriterCore(LockCore):
    """The writers: a Lock whose holder may be a reader too."""

    def __init__(self, shared: SharedCore) -> None:
        super().__init__(shared.path, shared.marks.write)
        self.shared = shared

    async def acquire(
        self, owner: object, data: bytes, wait: bool = True, *, keep: float = 0.0, brief: bool = False
    ) -> bool:
        """``owner`` writes. Raises UpgradeError if he reads: he would wait for himself."""
        if self.shared.reads(owner):
            raise UpgradeError(self.path)
        if not await self.shared.make_way():
            return False
        return await super().acquire(owner, data, wait, keep=keep, brief=brief)

    def put_by(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super().put_by()

    def _hand_over(self) -> bool:
        return self.shared.reads_under(self.grant) is None and super()._hand_over()

    async def _erase(self, grant: Grant) -> bool:
        share = self.shared.reads_under(grant)
        if share is None:
            return await super()._erase(grant)
        if not share.inside:  # done before: this call was interrupted, and is made again
            return True
        grant.end()
        try:
            await Unhold(grant.loss)
        except BaseException:
            await Background(self.shared.downgrade(share))
            raise
        return await self.shared.downgrade(share)
