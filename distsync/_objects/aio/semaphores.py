"""Semaphore and BoundedSemaphore of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._objects import semaphores
from distsync._objects.aio.base import AsyncOwnable, mine, raise_or_note
from distsync._objects.ownership import repr_state
from distsync._protocols.locks.grant import of_owner
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync.errors import LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Semaphore(AsyncOwnable):
    """A number of permits. A permit whose holder's process dies comes back.

    ``Semaphore(0)`` is a signal: a permit taken is used up for good, whoever dies.
    On loss: ``held`` turns False, ``release`` or the end of ``async with`` raises LockLostError: the permit came back.
    Cost: acquire and release, 4 requests.
    Fair: first come, first served.
    Source: recipes.txt, Locks, with a limit; ``asyncio.Semaphore``.

    Znodes: as ``distsync.threading.Semaphore``.

    >>> async def main():
    ...     async with Semaphore(3, name="slots"):
    ...         print("inside")
    >>> asyncio.run(main())
    inside
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = semaphores.Semaphore

    def __init__(
        self,
        value: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        if value < 0:
            raise ValueError(
                f"{'BoundedS' if self._kind is semaphores.BoundedSemaphore else 'S'}emaphore initial value must be >= 0"
            )
        self._init_sync(value, name=name, client=client, path=path)

    async def acquire(self) -> Literal[True]:
        """A permit is taken.

        Returns: True.
        Raises: MismatchError when others made it with another value.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left, no permit is taken.
        Cost: 3 requests, 1 round trip, if one is free.
        Fair: first come, first served.
        Source: recipes.txt, Locks.
        """
        await self._ready()
        twin = self._sync
        await self._await(twin._core.acquire(describe(), True, mine(), twin._bound))
        return True

    def release(self) -> None:
        """A permit is free again: one that this task acquired, else one of this process, else a new one.

        Raises: LockLostError if the permit had been lost while held, as far as is known without asking; ValueError if
            a BoundedSemaphore is released more often than acquired.
        Cost: 1 request for a permit held, and the loop does not wait for it; 3 for a new one, for which it does.
        """
        core, me, bound = self._sync._core, mine(), self._sync._bound
        grants = of_owner(core.grants, me, 1) if isinstance(core, SemaphoreCore) else []
        if not grants:
            self._run_blocking(core.release(1, bound, [False], me))
            return
        sure = self._surely(grants[0])
        self._run_in_background(core.release(1, bound, [False], me))
        if not sure:
            raise self._lost(grants[0])

    def locked(self) -> bool:
        """Whether no permit is free. Cost: 2 requests, 1 round trip, for which the loop waits."""
        return bool(self._run_blocking(self._sync._core.value()) <= 0)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        twin, client = self._sync, self.client
        try:
            await self._await(twin._core.release(1, twin._bound, [False], mine()), client.settings.session_timeout)
        except (LockLostError, NotHeldError) as lost:
            raise_or_note(lost, error)

    def __repr__(self) -> str:
        value = repr_state(self._sync, lambda: self._sync._core.value())
        return self._repr_state("locked" if value == 0 else f"unlocked, value:{value}")


class BoundedSemaphore(Semaphore):
    """A semaphore that is never released more often than acquired.

    On loss, Cost, Fair, Znodes: as Semaphore.
    Source: recipes.txt, Locks, with a limit; ``asyncio.BoundedSemaphore``.

    >>> async def main():
    ...     slots = BoundedSemaphore(2, name="bounded slots")
    ...     print(await slots.acquire())
    ...     slots.release()
    >>> asyncio.run(main())
    True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = semaphores.BoundedSemaphore

    def __init__(
        self, value: int = 1, *, name: str | None = None, client: Client | None = None, path: str | None = None
    ) -> None:
        super().__init__(value, name=name, client=client, path=path)
