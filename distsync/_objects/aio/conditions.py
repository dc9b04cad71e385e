"""Condition of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._objects import conditions
from distsync._objects.aio.base import AsyncObject
from distsync._objects.aio.locks import Lock
from distsync._protocols.wait_queue import QueueEntry
from distsync.errors import NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Condition(AsyncObject):
    """Tasks of any processes wait under a lock until one of them says that something has changed.

    ``lock`` is a Lock of ``distsync.asyncio``; by default one that belongs to the condition.
    On loss: of the session while waiting: ``wait`` returns True, since a notify may have been missed; look again.
    Cost: wait 6 requests, and what the lock costs; notify 3 requests for any number of waiters.
    Fair: the one that waits longest is notified first.
    Source: ``asyncio.Condition``; recipes.txt, Queues, for the line of waiters.

    Znodes: ``<namespace>/condition/<name>/waiters/_c_<guid>-lock-<sequence>``, ephemeral, who waits; ``.../lock``.

    >>> async def main():
    ...     changed = Condition(name="changed")
    ...     async with changed:
    ...         changed.notify_all()
    >>> asyncio.run(main())
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = conditions.Condition
    _lock_made: Lock | None = None

    def __init__(
        self,
        lock: Lock | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._init_sync(None if lock is None else lock._sync, name=name, client=client, path=path)
        self._lock_made = lock

    @property
    def _lock(self) -> Lock:
        if self._lock_made is None:
            twin = self._sync
            if twin._explicit_lock is None:
                twin._core  # noqa: B018  what is below our znode goes with it
                self._lock_made = Lock(client=twin._explicit_client, path=f"{twin.path}/lock")
            else:
                self._lock_made = Lock.__new__(Lock)
                self._lock_made._sync = twin._explicit_lock
        return self._lock_made

    async def acquire(self) -> Literal[True]:
        """The lock is held, as by its own ``acquire``."""
        await self._ready()
        return await self._lock.acquire()

    def release(self) -> None:
        """The lock goes to the next one, as by its own ``release``."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether anybody holds the lock, as its own ``locked``."""
        return self._lock.locked()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lock.__aexit__(kind, error, trace)

    def _check_owned(self, doing: str) -> None:
        if not self._lock._sync._is_used or self._lock._core.grant is None:
            raise NotHeldError(f"cannot {doing} on un-acquired lock")

    async def wait(self) -> Literal[True]:
        """Somebody has notified us, and the lock, released meanwhile, is held again.

        Returns: True.
        Raises: RuntimeError if the lock is not held; LockLostError if it had been lost.
        On loss: of the session while waiting: True, since a notify may have been missed.
        On cancel: no znode is left; the lock is held again; a notify that had come goes to another waiter.
        Cost: 6 requests, 1 watch, and those of the lock; 3 more at half of each session time-out.
        Fair: the one that waits longest is notified first.
        Source: ``asyncio.Condition``.
        """
        self._check_owned("wait")
        core, lock = self._sync._core, self._lock
        places: list[QueueEntry] = []
        try:
            await self._await(core.enlist(describe(), places))
            try:
                await lock._leave(linger=False)  # who waits for a notify wants others to have it
            except asyncio.CancelledError:
                await _whatever_cancels(lock.acquire)
                raise
            try:
                await self._await(core.wait(places[0]))
            finally:
                await _whatever_cancels(lock.acquire)
            await self._await(core.confirm(places[0]))
            return True
        except BaseException:
            for place in places:
                self.client.background(core.abandon_wait(place))
            raise

    async def wait_for(self, predicate: Callable[[], Any]) -> Any:
        """``predicate()`` is true; the lock is held.

        Returns: what ``predicate`` returned last.
        Raises, On loss, On cancel, Cost, Fair, Source: as wait.
        """
        result = predicate()
        while not result:
            await self.wait()
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """The first ``n`` who wait are woken soon, fewer if fewer wait; the loop does not wait for that.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests; 1 event to each who is woken.
        Fair: the one that waits longest is notified first.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._core.notify(n))

    def notify_all(self) -> None:
        """All who wait are woken soon.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests for each 1,000 waiters.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._core.notify(None))

    def __repr__(self) -> str:
        used = self._lock._sync._is_used
        return self._repr_state("locked" if used and self._lock._core.grant is not None else "unlocked")


async def _whatever_cancels(acquire: Callable[[], Any]) -> None:
    """Acquired, and only then cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await acquire()
            break
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
