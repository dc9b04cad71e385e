"""Lock protocol: the first contender in the queue holds the lock.

Source: ZooKeeper recipes, "Locks". Two parts are not from the recipe: all threads of a process
share one contender and hand the lock to each other, and a released lock can stay cached (see
cache_revocation.py).

Znodes: ``<path>/_c_<guid>-lock-<sequence>``, ephemeral, one for each process that holds the
lock or waits for it.

An ``owner`` is an opaque object that is compared by identity. All threads of a process share one
LockCore, without a mutex of its own: its state changes only between two awaits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import is_occupied, watch_for_contenders
from distsync._protocols.locks.grant import CacheState, Grant, TemporaryOwner, hold
from distsync._protocols.retries import delete_own, delete_until_session_ends
from distsync._protocols.steps import ZNODE_DELETED, Background, SessionAlive, Signal, StopHolding, Wait, WakeReason
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import DeadlineError, LockLostError, NotHeldError

__all__ = ["MAX_LOCAL_HANDOVERS", "Grant", "LockSnapshot", "LockCore", "LocalWaiter", "hold"]

#: How many times in a row the threads of a process may hand the lock to each other while another
#: process waits. It bounds how many critical sections a waiter waits for, for each process ahead of
#: it.
MAX_LOCAL_HANDOVERS = 32

#: How many times in a row an arriving thread may acquire a cached lock ahead of the waiting threads
#: of its process. Waking a waiter costs more than acquiring the lock. At the limit, the lock is
#: handed to the first waiter.
MAX_BARGING = 32


@dataclass(eq=False)
class LocalWaiter:
    """Thread that waits for another thread of its process.

    It is woken with the lock, or with its turn to enqueue.
    """

    owner: object
    signal: Signal = field(default_factory=Signal)
    grant: Grant | None = None
    may_enqueue: bool = False

    @property
    def may_proceed(self) -> bool:
        return self.may_enqueue or self.grant is not None


class LockSnapshot(NamedTuple):
    """State of a lock before a call, from which an interrupted call is undone or completed.

    Attributes:
        grant: The grant, or None if no thread of this process held the lock.
        owner: The holder.
        depth: How many times the holder had acquired the lock without releasing it.
        unreported_losses: Owner and grant of each loss that its owner was not yet notified of.
        acquire_count: How many times the lock had been acquired in this process so far.
    """

    grant: Grant | None
    owner: object
    depth: int
    unreported_losses: tuple[tuple[object, Grant], ...] = ()
    acquire_count: int = 0


class LockCore:
    """In-process state of a lock, shared by all its threads.

    Attributes:
        name_suffix: Part of a contender's name that denotes its kind.
        rule: Which contenders ahead block ours.
        contending: Whether a thread of this process is enqueued, or about to be.
        local_handovers: How many times in a row threads of this process handed the lock to each
            other while another process waited.
        grant: The grant while a thread holds the lock, otherwise None.
        cached: The grant while the lock is cached, otherwise None.
        owner: The holder.
        depth: How many times the holder has acquired the lock without releasing it.
        acquire_count: How many times the lock was acquired in this process.
        barged: How many times in a row it was acquired ahead of waiting threads.
        local_waiters: Waiting threads, in FIFO order.
        unreported_losses: Owner and grant of each loss that its owner was not yet notified of.
    """

    def __init__(
        self, path: str, name_suffix: str = wait_queue.LOCK, rule: wait_queue.Rule = wait_queue.any_contender
    ) -> None:
        self.path = path
        self.name_suffix = name_suffix
        self.rule = rule
        #: Creates the directory if it does not exist.
        self.ensure_directory = wait_queue.ensure_container
        self.contending = False
        self.local_handovers = 0
        self.grant: Grant | None = None
        self.cached: Grant | None = None
        self.owner: object = None
        self.depth = 0
        self.acquire_count = 0
        self.barged = 0
        self.local_waiters: deque[LocalWaiter] = deque()
        self.unreported_losses: list[tuple[object, Grant]] = []

    @property
    def busy(self) -> bool:
        """Whether a thread of this process holds the lock or is enqueued for it."""
        self._apply_losses()
        return self.contending or self.grant is not None

    @property
    def held_grant(self) -> Grant | None:
        """The grant if a thread of this process holds the lock, otherwise None.

        A grant that an interrupted call has left to its clean-up is held by no thread.
        """
        return None if isinstance(self.owner, TemporaryOwner) else self.grant

    @property
    def idle(self) -> bool:
        """Whether this state can be discarded: nothing is held, cached, awaited or unreported."""
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
        """Acquire the lock for ``owner``.

        Args:
            owner: The thread or task that will hold the lock.
            contender_data: Data of the contender's znode. It must have been made with ``linger`` (`describe`).
            blocking: Whether to wait if the lock is held.
            linger: Seconds for which the lock stays cached after its release, if no other
                process is waiting when it is acquired; 0 disables caching.
            is_short_wait: Whether the deadline is too close to wait for a cached lock to be
                evicted. The process that caches it is then queried before this one enqueues.

        Returns:
            True if the lock was acquired. False at the deadline, or if ``blocking`` is False
            and the lock is held.
        """
        waiter: LocalWaiter | None = None
        try:
            # Until this thread may enqueue: a thread of this process holds or caches the lock, or waits for it.
            while self.busy or self.cached is not None or self._next_local_waiter():
                if self.cached is not None:
                    if await self._acquire_from_cache_checked(owner):
                        return True
                    continue
                if not blocking:
                    return False
                waiter = LocalWaiter(owner)
                await self._wait_locally(waiter)
                if not waiter.may_proceed:
                    return False
                if waiter.grant is None:
                    break
                if self._still_held(waiter):
                    self._set_holder(waiter.grant, owner)
                    return True
        except BaseException as error:
            if waiter is not None:  # perhaps interrupted after it has waited, when it had its turn already
                self._pass_on_turn(waiter)
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return False
            raise
        self.contending = True
        try:
            # The query also evicts another process's cached lock. Its answer matters only if not blocking.
            if (is_short_wait or not blocking) and await self.occupied() and not blocking:
                return False
            return await self._contend(owner, contender_data, linger)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
        finally:
            self.contending = False
            if self.grant is None:
                self._let_next_waiter_enqueue()

    async def occupied(self) -> bool:
        """Return whether any process holds the lock or waits for it, according to the servers.

        Unlike `locked`, this asks the servers even if this process knows the answer. It does not
        enqueue, so that a non-blocking attempt does not delay other waiters.
        """
        return await is_occupied(self.path)

    def is_held_by(self, owner: object) -> bool:
        """Return whether ``owner`` holds the lock, and has not lost it."""
        grant = self.grant
        return self.owner is owner and grant is not None and not grant.loss.fired

    def loss_of(self, owner: object) -> Grant | None:
        """Return the grant that ``owner`` has lost without being notified yet, or None.

        This does not change any state.
        """
        grant = self.grant
        if grant is not None and grant.loss.fired and self.owner is owner:
            return grant
        return next((entry[1] for entry in tuple(self.unreported_losses) if entry[0] is owner), None)

    async def locked(self) -> bool:
        """Return whether any process holds the lock or waits for it. Costs no request if this process
        knows.
        """
        if self.busy:
            return True
        cached = self.cached
        # A lock cached here is free, but only a proven session shows that it is still cached here:
        # a process that was suspended may have lost it without knowing.
        if cached is not None and cached.may_be_cached and await SessionAlive(cached.entry.session_id):
            return False
        return await self.occupied()

    async def _contend(self, owner: object, contender_data: bytes, linger: float = 0.0) -> bool:
        entry = await wait_queue.acquire(
            self.path, self.name_suffix, contender_data, self.rule, ensure_directory=self.ensure_directory
        )
        if entry is None:
            return False
        try:
            grant = await hold(entry)
            if linger and entry.is_sole_contender:
                grant.cache = CacheState(linger)
                await Background(watch_for_contenders(grant, grant.cache, lambda: self.evict(grant)))
        except BaseException:
            await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            raise
        self._begin_holding(grant, owner)
        return True

    def _begin_holding(self, grant: Grant, owner: object) -> None:
        """Let ``owner`` hold what our contender was granted."""
        self.local_handovers = 0
        grant.loss.subscribe(self._wake_all_local_waiters)
        self._set_holder(grant, owner)

    # ---- the cache; cache_revocation.py detects other clients that want a cached lock

    def _next_local_waiter(self) -> LocalWaiter | None:
        """Return the first waiter that was granted nothing yet.

        It stays in the queue until it wakes, so that an interrupt before its grant loses no waiter.
        """
        return next((waiter for waiter in self.local_waiters if not waiter.may_proceed), None)

    def acquire_from_cache(self, owner: object) -> bool:
        """Acquire the lock if it is cached. Costs no request.

        The caller must check that the lease is valid.
        """
        grant = self.cached
        cache = None if grant is None else grant.cache
        if grant is None or cache is None or self.grant is not None:
            return False
        if cache.contended or grant.revoke_requested.fired or grant.loss.fired:
            return False
        self.owner, self.depth, self.grant = owner, 1, grant
        # Last: if interrupted before this, the caller counts as the holder, and its undo releases the lock.
        cache.idle, self.cached = False, None
        self.acquire_count += 1
        cache.uses += 1
        if self.unreported_losses:
            self.unreported_losses = [entry for entry in self.unreported_losses if entry[0] is not owner]
        return True

    def release_to_cache(self) -> bool:
        """Cache the held lock, or hand it to a local waiter. Costs no request.

        The caller must check that the lease is valid. Return False if the lock must be released.
        """
        grant = self.grant
        cache = None if grant is None else grant.cache
        if grant is None or cache is None or cache.contended or grant.revoke_requested.fired or grant.loss.fired:
            return False
        if self.local_waiters and self._next_local_waiter() is not None:
            if self.barged >= MAX_BARGING:
                return self._hand_to_local_waiter()
            self.barged += 1
        if grant.subscribers:
            grant.subscribers.clear()
        self.cached, cache.idle = grant, True
        self.grant, self.owner, self.depth = None, None, 0
        if self.local_waiters:
            self._wake_local_waiter()
        if cache.wakeup is not None:
            cache.wakeup.fire()
        return True

    def _wake_local_waiter(self) -> None:
        """Wake the first waiter, so that it tries to acquire the lock from the cache."""
        waiter = self._next_local_waiter()
        if waiter is not None and not waiter.signal.fired:
            waiter.signal.fire()

    async def _acquire_from_cache_checked(self, owner: object) -> bool:
        """Acquire the lock from the cache if the lease is valid. Otherwise evict it."""
        grant = self.cached
        if grant is None:
            return False
        session_alive = await SessionAlive(grant.entry.session_id)
        if self.cached is grant and not (session_alive and self.acquire_from_cache(owner)):
            await self.evict(grant)
        return self.grant is grant and self.owner is owner

    async def evict(self, grant: Grant | None) -> None:
        """Delete the znode of a cached lock.

        Raise DeadlineError if that continues in the background.
        """
        if grant is not None and self.cached is grant and self.grant is None:
            try:
                self.cached = None
                self._let_next_waiter_enqueue()
                grant.end()
                await StopHolding(grant.loss)
                await delete_until_session_ends(grant.entry.path, grant.entry.session_id)
            except BaseException:  # no other reference to the grant is left
                await Background(self._delete_node(grant))
                raise

    # ---- waiters of this process

    async def _wait_locally(self, waiter: LocalWaiter) -> None:
        """Wait, in FIFO order, until the waiter is granted the lock or the turn to enqueue.

        At the deadline it may have been granted neither.
        """
        self.local_waiters.append(waiter)
        try:
            while not waiter.may_proceed:
                waiter.signal = Signal()
                self._apply_losses()
                if self.cached is not None and await self._acquire_from_cache_checked(waiter.owner):
                    waiter.grant = self.grant
                if self.grant is None and self.cached is None:
                    self._let_next_waiter_enqueue()
                if waiter.may_proceed or await Wait(waiter.signal) is WakeReason.DEADLINE:
                    break
        except BaseException:
            await self._pass_on_grant(waiter)
            raise
        finally:
            if waiter in self.local_waiters:
                self.local_waiters.remove(waiter)
            if self.cached is not None:
                self._wake_local_waiter()

    async def _pass_on_grant(self, waiter: LocalWaiter) -> None:
        """Pass on what an interrupted waiter was granted: the lock, or the turn to enqueue."""
        if waiter.grant is not None:
            if self._still_held(waiter) and not self._hand_to_local_waiter():
                await self._release_in_background(waiter.grant)
        else:
            self._pass_on_turn(waiter)

    def _pass_on_turn(self, waiter: LocalWaiter) -> None:
        """Remove an interrupted waiter, and pass on its turn to enqueue if it had it. Idempotent."""
        if waiter in self.local_waiters:
            self.local_waiters.remove(waiter)
        if waiter.may_enqueue:
            waiter.may_enqueue = self.contending = False
            self._let_next_waiter_enqueue()

    def _still_held(self, waiter: LocalWaiter) -> bool:
        """Return whether ``waiter`` still holds the grant that it was handed.

        Another thread may have released the lock before the waiter woke up. If the grant was lost
        instead, its loss need not be reported: no call has returned it yet.
        """
        self._apply_losses()
        self.unreported_losses = [
            entry for entry in self.unreported_losses if entry[1] is not waiter.grant or entry[0] is not waiter.owner
        ]
        return self.grant is waiter.grant and self.owner is waiter.owner

    def _set_holder(self, grant: Grant, owner: object) -> None:
        self.acquire_count += 1
        self.owner, self.depth, self.grant = owner, 1, grant
        self.unreported_losses = [entry for entry in self.unreported_losses if entry[0] is not owner]

    def _wake_all_local_waiters(self) -> None:
        """Wake all local waiters, so that they check the state again."""
        for waiter in tuple(self.local_waiters):
            waiter.signal.fire()

    def _apply_losses(self) -> None:
        """Clear lost grants. The owner of a lost lock is notified when it releases the lock."""
        if self.grant is not None and self.grant.loss.fired:
            self.unreported_losses.append((self.owner, self.grant))
            self.grant, self.owner, self.depth = None, None, 0
            self._let_next_waiter_enqueue()
        if self.cached is not None and self.cached.loss.fired:
            self.cached = None
            self._let_next_waiter_enqueue()

    def _let_next_waiter_enqueue(self) -> None:
        """Let the next local waiter enqueue, unless a thread of this process already does."""
        waiter = None if self.contending else self._next_local_waiter()
        if waiter is not None:
            waiter.may_enqueue = self.contending = True
            waiter.signal.fire()

    def _hand_to_local_waiter(self) -> bool:
        """Hand the lock to the next local waiter.

        Return False if there is none, if the limit of handovers is reached, or if another process
        has requested revocation.
        """
        waiter = self._next_local_waiter()
        if (
            waiter is None
            or self.grant is None
            or self.local_handovers >= MAX_LOCAL_HANDOVERS
            or self.grant.revoke_requested.fired
        ):
            return False
        if not self.grant.may_be_cached:  # another process may be waiting
            self.local_handovers += 1
        self.barged = 0
        self.grant.unsubscribe_all()
        waiter.grant = self.grant
        self.grant.handed_over = True
        self.owner = waiter.owner
        waiter.signal.fire()
        return True

    async def release(self, owner: object, linger: bool = True) -> None:
        """Cache the lock, hand it to a local waiter, or delete its znode.

        Args:
            owner: The thread or task that releases the lock.
            linger: Whether the lock may be cached.

        Raises:
            LockLostError: The lock was lost while it was held.
            NotHeldError: No thread of this process holds the lock.
        """
        self._apply_losses()
        self._raise_if_lost(owner)
        grant = self.held_grant
        if grant is None:
            raise NotHeldError(f"cannot release {self.path}: it is not held by this process")
        try:
            session_alive = await SessionAlive(grant.entry.session_id)
        except BaseException:
            await self._release_in_background(grant)
            raise
        self._apply_losses()
        self._raise_if_lost(owner)
        if (
            session_alive
            and self.grant is grant
            and ((linger and self.release_to_cache()) or self._hand_to_local_waiter())
        ):
            return
        subscribers = tuple(grant.subscribers)
        if not await self._release_node(grant) or not session_alive:
            grant.lose(ZNODE_DELETED if session_alive else "lease expired", subscribers)
            raise LockLostError(self.path, grant.loss.reason)

    async def force_release(self, grant: Grant | None, owner: object) -> None:
        """Release ``grant`` after a call of ``owner`` was interrupted at an unknown point."""
        self.unreported_losses = [entry for entry in self.unreported_losses if entry[1] is not grant]
        if grant is not None and self.grant is grant and self.owner is owner:
            await self._release_node(grant)
        elif grant is not None and self.grant is not grant and not (grant.handed_over and grant.ended):
            self.cached = None if self.cached is grant else self.cached
            await self._delete_node(grant)
        if self.grant is None:
            self._let_next_waiter_enqueue()
        self._wake_all_local_waiters()  # the interrupt may have come between granting a waiter and waking it

    def undo_acquire(
        self, owner: object, before: LockSnapshot, temporary_owner: TemporaryOwner
    ) -> Coroutine[Any, Any, None]:
        """Undo acquisitions by ``owner`` made after the snapshot ``before``.

        Return a coroutine that releases the lock. Until then ``temporary_owner`` owns it, and no
        thread holds it. Idempotent if called again with the same ``temporary_owner``.
        """
        grant, mine = self.grant, before.grant if before.owner is owner else None
        old = (*before.unreported_losses, (owner, mine))
        self.unreported_losses = [each for each in self.unreported_losses if each[0] is not owner or each in old]
        if grant is None or not (self.owner is owner or self.owner is temporary_owner):
            return self.force_release(None, owner)
        if grant is mine:
            self.reduce_depth(before.depth)
            return self.force_release(None, owner)
        grant.unsubscribe_all()
        self._set_temporary_owner(grant, temporary_owner)
        return self.force_release(grant, temporary_owner)

    def finish_release(self, before: LockSnapshot, caller: object) -> Coroutine[Any, Any, None]:
        """Complete the interrupted release that ``caller`` began in the state ``before``.

        Return a coroutine that completes the release, however far it got. A loss that the release
        would have raised counts as reported. Idempotent.
        """
        owner = before.owner
        if self.grant is before.grant and self.acquire_count != before.acquire_count:
            # cached, and acquired again since
            return self.force_release(None, owner)
        if owner is not caller and any(entry[0] is caller for entry in before.unreported_losses):
            self.unreported_losses = [
                entry
                for entry in self.unreported_losses
                if entry[0] is not caller or entry not in before.unreported_losses
            ]
            return self.force_release(None, caller)
        if self.grant is before.grant is not None and self.owner is owner:
            self.reduce_depth(before.depth - 1)
            if before.depth <= 1:
                owner = TemporaryOwner()
                self._set_temporary_owner(before.grant, owner)
        elif self.grant is before.grant:  # handed to another thread, which deletes the znode
            return self.force_release(None, object())
        else:
            owner = object()  # already released: a later holder, even the same thread, keeps the lock
        return self.force_release(before.grant if before.depth <= 1 else None, owner)

    def reduce_depth(self, depth: int) -> None:
        """Set the recursion level of the held lock to a smaller one."""
        if self.grant is not None and self.grant.subscribers:
            self.grant.unsubscribe(depth)
        self.depth = depth

    def _set_temporary_owner(self, grant: Grant, temporary_owner: TemporaryOwner) -> None:
        """Take the lock from all threads; the clean-up then releases it."""
        self.owner = temporary_owner
        if grant.cache is not None:
            grant.cache.contended = True  # the fast path does not release it into the cache

    @property
    def snapshot(self) -> LockSnapshot:
        """A snapshot of the current state."""
        return LockSnapshot(self.grant, self.owner, self.depth, tuple(self.unreported_losses), self.acquire_count)

    async def _release_node(self, grant: Grant) -> bool:
        """Delete our znode while the next local waiter enqueues (unlock protocol of the recipe).

        Return False if the znode was already gone.
        """
        self._clear_state(grant)
        return await self._delete_node(grant)

    async def _release_in_background(self, grant: Grant) -> None:
        """Stop holding the lock now, and delete its znode in the background."""
        self._clear_state(grant)
        await Background(self._delete_node(grant))

    def _clear_state(self, grant: Grant) -> None:
        self.cached = None if self.cached is grant else self.cached
        if self.grant is grant:
            self.grant, self.owner, self.depth = None, None, 0
            self._let_next_waiter_enqueue()

    async def _delete_node(self, grant: Grant) -> bool:
        try:
            grant.end()
            await StopHolding(grant.loss)
            return await delete_own(grant.entry.path, grant.entry.session_id)
        except BaseException:
            await Background(partial(delete_until_session_ends, grant.entry.path, grant.entry.session_id))
            raise

    def _raise_if_lost(self, owner: object) -> None:
        """Raise LockLostError, once, if ``owner`` lost the lock.

        This also keeps it from releasing the lock of a later holder.
        """
        if not self.unreported_losses or (self.grant is not None and self.owner is owner):
            return
        # Any thread may release a Lock: while no thread holds it, report any thread's loss.
        mine = [entry for entry in self.unreported_losses if entry[0] is owner] or (
            [] if self.grant else self.unreported_losses[:1]
        )
        if not mine:
            return
        self.unreported_losses.remove(mine[0])
        raise LockLostError(self.path, mine[0][1].loss.reason or "session expired")
