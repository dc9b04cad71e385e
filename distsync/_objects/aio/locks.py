"""Lock of ``distsync.asyncio``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from distsync._client.contender_info import describe
from distsync._objects import locks
from distsync._objects.aio.base import AsyncOwnable, done_at_end, mine, raise_or_note, shown_waiters
from distsync._objects.validation import refuse_positional
from distsync._protocols.locks.lock import LockCore
from distsync.errors import LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Lock(AsyncOwnable):
    """A lock shared by tasks, processes and hosts, like ``asyncio.Lock``.

    At most one task holds the lock at a time, among all processes that use its name. Any task of
    the process that holds it may release it. A ``distsync.threading.Lock`` of the same name is the
    same lock.

    The lock is lost if the session can no longer be proven alive, or if its znode is deleted. Then
    ``held`` becomes False, and ``release()`` or the end of the ``async with`` block raises
    LockLostError. Another process may hold the lock by then, so stop the work that it protects.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``linger`` is not valid.

    Note:
        Costs and fairness are those of ``distsync.threading.Lock``, with tasks in place of threads.

        Znodes: ``<namespace>/lock/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one for each
        process that holds the lock or waits for it.

        Source: ZooKeeper recipes, "Locks"; ``asyncio.Lock``.

    Example:
        >>> async def main():
        ...     lock = Lock(name="orders")
        ...     async with lock:
        ...         print(lock.held)
        >>> asyncio.run(main())
        True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = locks.Lock

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        linger: float | None = None,
    ) -> None:
        refuse_positional(self, _)
        self._init_sync(name=name, client=client, path=path, linger=linger)

    async def acquire(self) -> Literal[True]:
        """Acquire the lock, waiting in FIFO order if it is held.

        Returns:
            True.

        Raises:
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs no request if the lock is cached, and 2 requests in 1 round trip if it is free.

            If the session ends during the wait, the task enqueues again. If cancelled, no znode is
            left behind.

            Source: ZooKeeper recipes, "Locks", steps 1 to 5.
        """
        await self._ready()
        linger = self._sync.linger
        await self._await(self._core.acquire(mine(), describe(linger), linger=linger))
        return True

    @done_at_end
    def release(self) -> None:
        """Release the lock, without waiting for the deletion of its znode.

        Raises:
            NotHeldError: This process does not hold the lock. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held, as far as is known without a
                request.

        Note:
            Costs no request if the lock stays cached or is handed to another task of this process,
            otherwise 1. The event loop does not wait for it.
        """
        core, me = self._core, mine()
        grant = core.grant
        if grant is None and not core.unreported_losses:
            raise NotHeldError("Lock is not acquired.")
        sure = self._surely(grant)
        self._run_in_background(core.release(me, self._may_linger()))
        if not sure:
            raise self._lost(grant)

    def locked(self) -> bool:
        """Return whether any process holds the lock or waits for it.

        Returns:
            True if the lock is held or waited for. False if it is free or cached.

        Note:
            Costs no request if this process holds the lock. Otherwise it costs 1 if the queue is
            empty and 2 if it is not, for which the event loop waits.
        """
        return self.held or bool(self._run_blocking(self._core.locked()))

    @property
    def _core(self) -> LockCore:
        core: LockCore = self._sync._core
        return core

    async def _leave(self, linger: bool = True) -> None:
        """Release the lock and wait until the release is known."""
        client = self.client
        await self._await(self._core.release(mine(), linger and self._may_linger()), client.settings.session_timeout)

    def _is_owned(self) -> bool:
        """Return whether the task may wait for a notification: any one, if the process holds the lock."""
        return self._core.grant is not None

    def _held(self) -> Any:
        """Return what the task holds, for `_resume`."""

    async def _suspend(self) -> None:
        """Release all that the task holds. A wait for a notification depends on others acquiring the lock."""
        await self._leave(linger=False)

    async def _resume(self, held: Any) -> None:
        """Acquire what the task held before `_suspend`. After a cancellation it may be called again."""
        await self.acquire()

    def _may_linger(self) -> bool:
        """Return whether to cache the lock: not while a task waits, as asyncio's locks are FIFO."""
        return self._sync.linger > 0 and not self._core.local_waiters

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._leave()
        except (LockLostError, NotHeldError) as lost:
            raise_or_note(lost, error)

    def __repr__(self) -> str:
        used = self._sync._may_have_state
        state = "locked" if used and self._core.grant is not None else "unlocked"
        return self._repr_state(f"{state}{shown_waiters(len(self._core.local_waiters) if used else 0)}")
