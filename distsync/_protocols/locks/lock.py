"""Lock and RLock: the first in the line holds; the threads of one process share one contender.

Source: recipes.txt, "Locks". The hand-over inside a process is ours, and so is that a lock is kept
(cache_revocation.py).

Rules for this file: pure; who calls is an opaque ``owner`` (any object that compares by identity); the state of a
LockCore is shared by the threads of one process, and changes only between two awaits.

Picture: ``<path>/_c_<guid>-lock-<sequence>``, ephemeral, one for each process that holds or waits.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import is_occupied, watch_for_contenders
from distsync._protocols.locks.cached_lock import CachedLockCore, LocalWaiter
from distsync._protocols.locks.grant import CacheState, Grant, hold
from distsync._protocols.retries import delete_own, delete_until_session_ends
from distsync._protocols.steps import ZNODE_DELETED, Background, Proven, Signal, StopHolding, Wait, WakeReason
from distsync.errors import DeadlineError, LockLostError, NotHeldError

__all__ = ["MAX_LOCAL_HANDOVERS", "Grant", "LockSnapshot", "LockCore", "LocalWaiter", "hold"]

#: So many times in a row threads of one process hand the lock to each other before it goes back to the line:
#: a waiter in another process waits for at most so many critical sections per process ahead of it.
MAX_LOCAL_HANDOVERS = 32


class LockSnapshot(NamedTuple):
    """The state of a lock between two lines of its owner; ``unreported_losses``: who has to be told of which loss;
    ``taken``: how often the lock had been taken before, and with this."""

    grant: Grant | None
    owner: object
    depth: int
    unreported_losses: tuple[tuple[object, Grant], ...] = ()
    taken: int = 0


class LockCore(CachedLockCore):
    """What the threads of one process know together about one lock."""

    def __init__(
        self, path: str, name_suffix: str = wait_queue.LOCK, rule: wait_queue.Rule = wait_queue.exclusive
    ) -> None:
        super().__init__()
        self.path = path
        self.name_suffix = name_suffix
        self.rule = rule
        self.contending = False
        self.local_handovers = 0

    @property
    def busy(self) -> bool:
        """Somebody of this process holds the lock or stands in the line for it."""
        self._apply_losses()
        return self.contending or self.grant is not None

    @property
    def idle(self) -> bool:
        """Nothing is held or waited for, and nobody has to be told of a loss."""
        cached = self.cached is not None and not self.cached.loss.fired
        return not (self.grant or cached or self.contending or self.local_waiters or self.unreported_losses)

    async def acquire(
        self,
        owner: object,
        contender_data: bytes,
        blocking: bool = True,
        *,
        linger: float = 0.0,
        is_short_wait: bool = False,
    ) -> bool:
        """``owner`` holds the lock. False: not at once if he does not ``blocking``, or not before the deadline, which
        is near with ``is_short_wait``. What is free is kept for ``linger`` seconds after its release, as
        ``contender_data`` then says."""
        try:
            while self.busy or self.cached is not None or self._next_local_waiter():
                if self.cached is not None:
                    if await self._acquire_from_cache_checked(owner):
                        return True
                    continue
                if not blocking:
                    return False
                waiter = await self._wait_locally(owner)
                if not waiter.is_granted:
                    return False
                if waiter.grant is None:
                    break
                if self._still_held(waiter):
                    self._take(waiter.grant, owner)
                    return True
        except DeadlineError:
            return False
        self.contending = True
        try:
            if (is_short_wait or not blocking) and await self.occupied() and not blocking:
                return False
            return await self._contend(owner, contender_data, linger)
        except DeadlineError:
            return False
        finally:
            self.contending = False
            if self.grant is None:
                self._start_next_contender()

    async def occupied(self) -> bool:
        """Reads instead of a create and a delete: who only tries does not stand in the way of others."""
        return await is_occupied(self.path)

    def has_lost(self, owner: object) -> bool:
        """Whether ``owner`` held the lock when it was lost, and was not told yet. Changes nothing."""
        grant = self.grant
        is_losing = grant is not None and grant.loss.fired and self.owner is owner
        return is_losing or any(entry[0] is owner for entry in tuple(self.unreported_losses))

    async def locked(self) -> bool:
        """Whether anybody holds it. What we keep nobody does, as long as our session is proven to live: a process that
        stood still does not know yet that it keeps nothing."""
        if self.busy:
            return True
        cached = self.cached
        if cached is not None and cached.may_be_kept and await Proven(cached.place.session_id):
            return False
        return await self.occupied()

    async def _contend(self, owner: object, contender_data: bytes, linger: float = 0.0) -> bool:
        place = await wait_queue.acquire(self.path, self.name_suffix, contender_data, self.rule)
        if place is None:
            return False
        try:
            grant = await hold(place)
            if linger and place.is_sole_contender:
                grant.cache = CacheState(linger)
                await Background(watch_for_contenders(grant, grant.cache, lambda: self.evict(grant)))
        except BaseException:
            await Background(delete_until_session_ends(place.path, place.session_id))
            raise
        self.local_handovers = 0
        grant.loss.subscribe(self._hint)
        self._take(grant, owner)
        return True

    async def _wait_locally(self, owner: object) -> LocalWaiter:
        """Waits inside the process: FIFO."""
        waiter = LocalWaiter(owner)
        self.local_waiters.append(waiter)
        try:
            while not waiter.is_granted:
                waiter.signal = Signal()
                self._apply_losses()
                if self.cached is not None and await self._acquire_from_cache_checked(owner):
                    waiter.grant = self.grant
                if self.grant is None and self.cached is None:
                    self._start_next_contender()
                if waiter.is_granted or await Wait(waiter.signal) is WakeReason.DEADLINE:
                    break
        except BaseException:
            await self._forward(waiter)
            raise
        finally:
            if waiter in self.local_waiters:
                self.local_waiters.remove(waiter)
            if self.cached is not None:
                self._wake_local_waiter()
        return waiter

    async def _forward(self, waiter: LocalWaiter) -> None:
        """Who was served and cannot use it gives it to the next one."""
        if waiter.grant is not None:
            if self._still_held(waiter) and not self._hand_to_local_waiter():
                await self._release_in_background(waiter.grant)
        elif waiter.turn:
            self.contending = False
            self._start_next_contender()

    def _still_held(self, waiter: LocalWaiter) -> bool:
        """Whether what was handed to ``waiter`` is still his: somebody may have released it again before he woke. If
        it was lost, nobody needs to be told."""
        self._apply_losses()
        self.unreported_losses = [
            entry for entry in self.unreported_losses if entry[1] is not waiter.grant or entry[0] is not waiter.owner
        ]
        return self.grant is waiter.grant and self.owner is waiter.owner

    def _take(self, grant: Grant, owner: object) -> None:
        self.taken += 1
        self.owner, self.depth, self.grant = owner, 1, grant
        self.unreported_losses = [entry for entry in self.unreported_losses if entry[0] is not owner]

    def _hint(self) -> None:
        """The keeper says that the grant is lost: whoever waits inside the process looks again."""
        for waiter in tuple(self.local_waiters):
            waiter.signal.fire()

    def _apply_losses(self) -> None:
        """A grant that was lost makes way; its owner learns of it at his release."""
        if self.grant is not None and self.grant.loss.fired:
            self.unreported_losses.append((self.owner, self.grant))
            self.grant, self.owner, self.depth = None, None, 0
            self._start_next_contender()
        if self.cached is not None and self.cached.loss.fired:
            self.cached = None
            self._start_next_contender()

    def _start_next_contender(self) -> None:
        """The next one inside the process stands in the line, if nobody of it does."""
        waiter = None if self.contending else self._next_local_waiter()
        if waiter is not None:
            waiter.turn = self.contending = True
            waiter.signal.fire()

    def _hand_to_local_waiter(self) -> bool:
        """The next one inside the process holds the lock; False if there is none, or others have waited enough."""
        waiter = self._next_local_waiter()
        if (
            waiter is None
            or self.grant is None
            or self.local_handovers >= MAX_LOCAL_HANDOVERS
            or self.grant.revoke_requested.fired
        ):
            return False
        if not self.grant.may_be_kept:  # others wait, as far as we know
            self.local_handovers += 1
        self.barged = 0
        waiter.grant = self.grant
        self.grant.handed_over = True
        self.owner = waiter.owner
        waiter.signal.fire()
        return True

    async def release(self, owner: object, linger: bool = True) -> None:
        """The lock goes to the next one, or, if nobody wants it, is kept. Raises LockLostError if it was lost,
        NotHeldError if free."""
        self._apply_losses()
        self._raise_if_lost(owner)
        grant = self.grant
        if grant is None:
            raise NotHeldError(f"release of {self.path}, which this process does not hold")
        try:
            proven = await Proven(grant.place.session_id)
        except BaseException:
            await self._release_in_background(grant)
            raise
        self._apply_losses()
        self._raise_if_lost(owner)
        if proven and self.grant is grant and ((linger and self.release_to_cache()) or self._hand_to_local_waiter()):
            return
        if not await self._release_node(grant) or not proven:
            raise LockLostError(self.path, grant.loss.reason or (ZNODE_DELETED if proven else "lease ran out"))

    async def force_release(self, grant: Grant | None, owner: object) -> None:
        """A call of ``owner``'s was interrupted anywhere: what it was to let go is let go, to the end."""
        self.unreported_losses = [entry for entry in self.unreported_losses if entry[1] is not grant]
        if grant is not None and self.grant is grant and self.owner is owner:
            await self._release_node(grant)
        elif grant is not None and self.grant is not grant and not (grant.handed_over and grant.ended):
            self.cached = None if self.cached is grant else self.cached
            await self._delete_node(grant)
        if self.grant is None:
            self._start_next_contender()
        self._hint()  # who was served, and was not told

    def undo_acquire(self, owner: object, before: LockSnapshot, temporary_owner: object) -> Coroutine[Any, Any, None]:
        """What ``owner`` acquired since ``before`` is not his any more, and what is returned lets go of it. May be done
        twice, with the same ``temporary_owner``: who has it until then, so that ``owner`` does not find himself the
        owner."""
        grant, mine = self.grant, before.grant if before.owner is owner else None
        old = (*before.unreported_losses, (owner, mine))
        self.unreported_losses = [each for each in self.unreported_losses if each[0] is not owner or each in old]
        if grant is None or not (self.owner is owner or self.owner is temporary_owner):
            return self.force_release(None, owner)
        if grant is mine:
            self.depth = before.depth
            return self.force_release(None, owner)
        self.owner = temporary_owner
        return self.force_release(grant, temporary_owner)

    def finish_release(self, was: LockSnapshot, caller: object) -> Coroutine[Any, Any, None]:
        """The release that ``caller`` began when the lock was held so is over, however far it came; what is returned
        ends it. Who had lost it before has been told, and others may hold it. May be done twice."""
        owner = was.owner
        if self.grant is was.grant and self.taken != was.taken:  # kept, and taken again since
            return self.force_release(None, owner)
        if owner is not caller and any(entry[0] is caller for entry in was.unreported_losses):
            self.unreported_losses = [
                entry
                for entry in self.unreported_losses
                if entry[0] is not caller or entry not in was.unreported_losses
            ]
            return self.force_release(None, caller)
        if self.grant is was.grant is not None and self.owner is owner:
            self.depth = was.depth - 1
            if was.depth <= 1:
                self.owner = owner = object()  # nobody's, so that who held does not find himself the owner
        elif self.grant is was.grant:  # it was handed over: the thread that holds it now deletes its znode
            return self.force_release(None, object())
        else:
            owner = object()  # it was let go of already: who has taken it since, he himself perhaps, has it rightly
        return self.force_release(was.grant if was.depth <= 1 else None, owner)

    @property
    def holding(self) -> LockSnapshot:
        """What is held now, by whom, how deep."""
        return LockSnapshot(self.grant, self.owner, self.depth, tuple(self.unreported_losses), self.taken)

    async def _release_node(self, grant: Grant) -> bool:
        """Locks, the unlock protocol: delete our znode. The next one inside the process stands in line meanwhile."""
        self._clear_state(grant)
        return await self._delete_node(grant)

    async def _release_in_background(self, grant: Grant) -> None:
        """It is not held any more from now on; its znode goes apart from this call."""
        self._clear_state(grant)
        await Background(self._delete_node(grant))

    def _clear_state(self, grant: Grant) -> None:
        self.cached = None if self.cached is grant else self.cached
        if self.grant is grant:
            self.grant, self.owner, self.depth = None, None, 0
            self._start_next_contender()

    async def _delete_node(self, grant: Grant) -> bool:
        try:
            grant.end()
            await StopHolding(grant.loss)
            return await delete_own(grant.place.path, grant.place.session_id)
        except BaseException:
            await Background(delete_until_session_ends(grant.place.path, grant.place.session_id))
            raise

    def _raise_if_lost(self, owner: object) -> None:
        """Who held a lock that was lost is told so, once, and does not release what somebody else holds now."""
        if not self.unreported_losses or (self.grant is not None and self.owner is owner):
            return
        mine = [entry for entry in self.unreported_losses if entry[0] is owner] or (
            [] if self.grant else self.unreported_losses[:1]
        )
        if not mine:
            return
        self.unreported_losses.remove(mine[0])
        raise LockLostError(self.path, mine[0][1].loss.reason or "session expired")
