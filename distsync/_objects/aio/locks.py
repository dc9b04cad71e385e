"""Lock of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._objects import locks
from distsync._objects.aio.base import AsyncOwnable, mine, raise_or_note, shown_waiters
from distsync._protocols.locks.lock import LockCore
from distsync.errors import LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Lock(AsyncOwnable):
    """A lock that one task, of any loop, process and host, holds at a time; any task of the process may release it.

    On loss: ``held`` turns False, and ``release`` or the end of ``async with`` raises LockLostError. Somebody else may
        hold the lock then: what it protects must stop.
    Cost: as ``distsync.threading.Lock``, with which it stands in one line.
    Fair: as ``distsync.threading.Lock``, tasks in the place of threads.
    Source: recipes.txt, Locks; ``asyncio.Lock``.

    Znodes: ``<namespace>/lock/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one a process that holds or waits.

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
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        linger: float | None = None,
    ) -> None:
        self._init_sync(name=name, client=client, path=path, linger=linger)

    async def acquire(self) -> Literal[True]:
        """The lock is held.

        Returns: True.
        Raises: UnreachableError when no server can be reached at all.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: none while kept; 2 requests, 1 round trip, if free.
        Source: recipes.txt, Locks, steps 1 to 5.
        """
        await self._ready()
        linger = self._sync.linger
        await self._await(self._core.acquire(mine(), describe(linger), linger=linger))
        return True

    def release(self) -> None:
        """The lock goes to the next one; its znode goes at once, and the loop does not wait for that.

        Raises: NotHeldError (a RuntimeError) if this process does not hold it; LockLostError if it was lost while
            held, as far as is known without asking.
        Cost: none if it is kept, or another task of this process is next; else 1 request.
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
        """Whether anybody holds it.

        Cost: none if this process does; else it asks, and the loop waits: 1 request if nobody stands there, 2 if
            somebody does.
        """
        return self.held or bool(self._run_blocking(self._core.locked()))

    @property
    def _core(self) -> LockCore:
        core: LockCore = self._sync._core
        return core

    async def _leave(self, linger: bool = True) -> None:
        """Released, and that is known."""
        client = self.client
        await self._await(self._core.release(mine(), linger and self._may_linger()), client.settings.session_timeout)

    def _may_linger(self) -> bool:
        """Not while a task waits: asyncio's next holder is who waits longest, and never one who has just come."""
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
        used = self._sync._is_used
        state = "locked" if used and self._core.grant is not None else "unlocked"
        return self._repr_state(f"{state}{shown_waiters(len(self._core.local_waiters) if used else 0)}")
