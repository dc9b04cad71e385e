"""Condition of ``distsync.asyncio``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._import_gate import importing
from distsync._objects import conditions, locks
from distsync._objects.aio.base import AsyncObject, async_object, mine
from distsync._objects.aio.locks import Lock
from distsync._protocols.wait_queue import QueueEntry
from distsync.errors import NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._objects.aio.shared_lock import SharedReader


class Condition(AsyncObject):
    """A condition variable shared by tasks, processes and hosts, like ``asyncio.Condition``.

    Args:
        lock: A Lock of ``distsync.asyncio``, a SharedLock or one of its sides, which all processes of
            this condition share. None uses a lock that belongs to the condition.
        name: Name of the condition, shared by all processes that use it. Without a name, a
            condition assigned at module or class level is named after its variable; any other
            condition gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the condition's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.
        AttributeError: ``lock`` is no lock.

    Note:
        `wait` costs 6 requests, and those of the lock. `notify` costs 3 requests for any number of
        waiters.

        If the session ends during `wait`, it returns True, because a notification may have been
        missed. Check the awaited state again.

        Waiters are notified in FIFO order.

        Znodes: those of ``distsync.threading.Condition``.

        Source: ``asyncio.Condition``; ZooKeeper recipes, "Queues", for the queue of waiters.

    Example:
        >>> async def main():
        ...     changed = Condition(name="changed")
        ...     async with changed:
        ...         changed.notify_all()
        >>> asyncio.run(main())
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = conditions.Condition
    _lock_made: Lock | SharedReader | None = None

    def __init__(
        self,
        lock: Lock | SharedReader | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._init_sync(None if lock is None else lock._sync, name=name, client=client, path=path)
        self._lock_made = lock

    @property
    def _lock(self) -> Lock | SharedReader:
        if self._lock_made is None:
            twin = self._sync
            if twin._explicit_lock is None:
                twin._condition  # noqa: B018  registers the condition's znode, which contains the lock's
                self._lock_made = Lock(client=twin._explicit_client, path=f"{twin.path}/lock")
                self._lock_made._sync._bind(twin._module)
                self._lock_made._sync._is_in_container = True
            else:
                self._lock_made = _lock_of_twin(twin._explicit_lock)
        return self._lock_made

    async def acquire(self) -> Literal[True]:
        """Acquire the lock, like its own ``acquire``.

        Returns:
            True.

        Raises:
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs as many requests as the lock's own ``acquire``.
        """
        await self._ready()
        return await self._lock.acquire()

    def release(self) -> None:
        """Release the lock, like its own ``release``.

        Raises:
            NotHeldError: This process does not hold the lock. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held, as far as is known without a
                request.

        Note:
            Costs as many requests as the lock's own ``release``.
        """
        self._lock.release()

    def locked(self) -> bool:
        """Return whether any process holds the lock or waits for it, like its own ``locked``.

        Returns:
            True if the lock is held or waited for.

        Note:
            Costs as many requests as the lock's own ``locked``, for which the event loop waits.
        """
        return self._lock.locked()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lock.__aexit__(kind, error, trace)

    def _check_owned(self, doing: str) -> None:
        if not self._lock._sync._may_have_state or not self._lock._is_owned():
            lost = conditions.lock_loss(self._lock._sync, mine())
            raise lost or NotHeldError(f"cannot {doing} on un-acquired lock")

    async def wait(self) -> Literal[True]:
        """Release the lock, wait until notified, and re-acquire it.

        Returns:
            True, also if the session ended during the wait.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            LockLostError: The lock was lost before the wait.

        Note:
            Costs 6 requests and 1 watch, and those of the lock. Each half of a session timeout
            costs 3 more.

            Waiters are notified in FIFO order.

            If the session ends during the wait, this returns True, because a notification may have
            been missed. If cancelled, no znode is left behind, the lock is held again, and a
            received notification is passed to another waiter.

            Source: ``asyncio.Condition``.
        """
        self._check_owned("wait")
        core, lock = self._sync._condition, self._lock
        resume = partial(lock._resume, lock._held())
        entries: list[QueueEntry] = []
        try:
            await self._await(core.enlist(describe(), entries))
            try:
                await lock._suspend()
            except asyncio.CancelledError:
                await _whatever_cancels(resume)
                raise
            try:
                await self._await(core.wait(entries[0]))
            finally:
                await _whatever_cancels(resume)
            await self._await(core.confirm(entries[0]))
            return True
        except BaseException:
            for entry in entries:
                self.client.background(core.abandon_wait(entry))
            raise

    async def wait_for(self, predicate: Callable[[], Any]) -> Any:
        """Wait until a predicate holds, with the lock held.

        Args:
            predicate: Called without arguments; its result is tested for truth. It is called first,
                and again after each notification.

        Returns:
            The last result of ``predicate``.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            LockLostError: The lock was lost before a wait.

        Note:
            Each wait costs and behaves as `wait`.

            Source: ``asyncio.Condition``.
        """
        result = predicate()
        while not result:
            await self.wait()
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake the first ``n`` waiters soon, in the background, or all if fewer wait.

        Args:
            n: Maximum number of waiters to wake; 0 or less wakes none.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.

        Note:
            Costs 3 requests, and 1 event for each waiter that is woken. The event loop does not
            wait for it.

            Waiters are notified in FIFO order.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._condition.notify(n))

    def notify_all(self) -> None:
        """Wake all waiters soon, in the background.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.

        Note:
            Costs 3 requests for each 1,000 waiters. The event loop does not wait for it.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._condition.notify(None))

    def __repr__(self) -> str:
        used = self._lock._sync._may_have_state
        return self._repr_state("locked" if used and self._lock.held else "unlocked")


def _lock_of_twin(twin: Any) -> Lock | SharedReader:
    """Return the asyncio object around a Lock for threads, or around a SharedLock or one of its sides."""
    if not isinstance(twin, locks.Lock):
        with importing():
            from distsync._objects.aio.shared_lock import of_twin  # deferred: few programs use one
        return of_twin(twin)
    return async_object(Lock, twin)


async def _whatever_cancels(resume: Callable[[], Any]) -> None:
    """Acquire the lock even if cancelled, and then raise the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await resume()
            break
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
