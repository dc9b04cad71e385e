"""A lock that is kept: taken again, and put by, without a request; and the threads that wait for it inside the process.

Source: none of the recipes; ours. How it is known that others want it stands in cache_revocation.py.

Rules for this file: pure; it changes the state of a LockCore, between two awaits, and asks for nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from distsync._protocols.locks.grant import Grant
from distsync._protocols.retries import delete_until_session_ends
from distsync._protocols.steps import Background, Proven, Signal, StopHolding

#: So many times in a row a thread that comes just then may take a kept lock before those of its process that wait for
#: it: to wake one costs more than the lock. Then the first of them has it.
MAX_BARGING = 32


@dataclass(eq=False)
class LocalWaiter:
    """A thread that waits inside the process. It is woken with the lock, or with the turn to stand in the line."""

    owner: object
    signal: Signal = field(default_factory=Signal)
    grant: Grant | None = None
    turn: bool = False

    @property
    def is_granted(self) -> bool:
        return self.turn or self.grant is not None


class CachedLockCore:
    """The state of a lock in one process. ``grant`` while somebody of it holds, ``cached`` while nobody does and its
    znode stays; ``taken`` counts its holders."""

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
        """The first who was not served. It stays in the queue until it wakes: whoever is interrupted between choosing
        it and telling it has taken nobody out of the queue."""
        return next((waiter for waiter in self.local_waiters if not waiter.is_granted), None)

    def acquire_from_cache(self, owner: object) -> bool:
        """Who comes while the lock is kept, and its lease is proven, holds it. No request."""
        grant = self.cached
        cache = None if grant is None else grant.cache
        if grant is None or cache is None or self.grant is not None:
            return False
        if cache.contended or grant.revoke_requested.fired or grant.loss.fired:
            return False
        self.owner, self.depth, self.grant = owner, 1, grant
        cache.idle, self.cached = False, None  # last: whoever is interrupted has it, and lets it go
        self.taken += 1
        cache.uses += 1
        if self.unreported_losses:
            self.unreported_losses = [entry for entry in self.unreported_losses if entry[0] is not owner]
        return True

    def release_to_cache(self) -> bool:
        """What is held, and proven, is kept, or the next one inside the process holds it; False if it has to go. No
        request."""
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
        """The first who waits inside the process looks whether the lock is kept."""
        waiter = self._next_local_waiter()
        if waiter is not None and not waiter.signal.fired:
            waiter.signal.fire()

    async def _acquire_from_cache_checked(self, owner: object) -> bool:
        """As acquire_from_cache, where nobody knows whether it is proven. What can be kept no more goes."""
        grant = self.cached
        if grant is None:
            return False
        proven = await Proven(grant.place.session_id)
        if self.cached is grant and not (proven and self.acquire_from_cache(owner)):
            await self.evict(grant)
        return self.grant is grant and self.owner is owner

    async def evict(self, grant: Grant | None) -> None:
        """This is kept no more. Raises DeadlineError where its znode goes only later."""
        if grant is not None and self.cached is grant and self.grant is None:
            try:
                self.cached = None
                self._start_next_contender()
                grant.end()
                await StopHolding(grant.loss)
                await delete_until_session_ends(grant.place.path, grant.place.session_id)
            except BaseException:  # nobody else knows of it any more
                await Background(self._delete_node(grant))
                raise

    # ---- what the lock does

    def _hand_to_local_waiter(self) -> bool:
        """The next one inside the process holds the lock; False if he may not."""
        raise NotImplementedError

    def _start_next_contender(self) -> None:
        """The next one inside the process stands in the line, if nobody of it does."""
        raise NotImplementedError

    async def _delete_node(self, grant: Grant) -> bool:
        """Its znode goes. False: it was gone before."""
        raise NotImplementedError
