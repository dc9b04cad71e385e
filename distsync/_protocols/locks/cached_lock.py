"""State of a cached lock, and of the threads of this process that wait for it.

No recipe has this. cache_revocation.py detects other clients that want a cached lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from distsync._protocols.locks.grant import Grant
from distsync._protocols.retries import delete_until_session_ends
from distsync._protocols.steps import Background, Proven, Signal, StopHolding

#: How many times in a row an arriving thread may acquire a cached lock ahead of the waiting threads
#: of its process. Waking a waiter costs more than acquiring the lock. At the limit, the first
#: waiter is granted it.
MAX_BARGING = 32


@dataclass(eq=False)
class LocalWaiter:
    """Thread that waits for another thread of its process.

    It is woken with the lock, or with its turn to enqueue.
    """

    owner: object
    signal: Signal = field(default_factory=Signal)
    grant: Grant | None = None
    turn: bool = False

    @property
    def is_granted(self) -> bool:
        return self.turn or self.grant is not None


class CachedLockCore:
    """In-process state of a lock that can be cached.

    Attributes:
        grant: The grant while a thread holds the lock, otherwise None.
        cached: The grant while the lock is cached, otherwise None.
        owner: The holder.
        depth: How many times the holder has acquired the lock without releasing it.
        taken: How many times the lock was acquired in this process.
        barged: How many times in a row it was acquired ahead of waiting threads.
        local_waiters: Waiting threads, in FIFO order.
        unreported_losses: Owner and grant of each loss that its owner was not yet notified of.
    """

    def __init__(self) -> None:
        self.grant: Grant | None = None
        self.cached: Grant | None = None
        self.owner: object = None
        self.depth = 0
        self.taken = 0
        self.barged = 0
        self.local_waiters: deque[LocalWaiter] = deque()
        self.unreported_losses: list[tuple[object, Grant]] = []

    def _next_local_waiter(self) -> LocalWaiter | None:
        """Return the first waiter that was granted nothing yet.

        It stays in the queue until it wakes, so that an interrupt before its grant loses no waiter.
        """
        return next((waiter for waiter in self.local_waiters if not waiter.is_granted), None)

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
        self.taken += 1
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
        proven = await Proven(grant.place.session_id)
        if self.cached is grant and not (proven and self.acquire_from_cache(owner)):
            await self.evict(grant)
        return self.grant is grant and self.owner is owner

    async def evict(self, grant: Grant | None) -> None:
        """Delete the znode of a cached lock.

        Raise DeadlineError if that continues in the background.
        """
        if grant is not None and self.cached is grant and self.grant is None:
            try:
                self.cached = None
                self._start_next_contender()
                grant.end()
                await StopHolding(grant.loss)
                await delete_until_session_ends(grant.place.path, grant.place.session_id)
            except BaseException:  # no other reference to the grant is left
                await Background(self._delete_node(grant))
                raise

    # ---- implemented by LockCore

    def _hand_to_local_waiter(self) -> bool:
        """Hand the lock to the next local waiter.

        Return False if that is impossible or not allowed.
        """
        raise NotImplementedError

    def _start_next_contender(self) -> None:
        """Let the next local waiter enqueue, unless a thread of this process already does."""
        raise NotImplementedError

    async def _delete_node(self, grant: Grant) -> bool:
        """Delete the znode. Return False if it did not exist."""
        raise NotImplementedError
