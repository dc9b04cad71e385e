"""Semaphore and BoundedSemaphore of ``distsync.asyncio``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._objects import semaphores
from distsync._objects.aio.base import AsyncOwnable, done_at_end, mine, raise_or_note
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int
from distsync._protocols.locks.grant import of_owner
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync.errors import LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Semaphore(AsyncOwnable):
    """A counting semaphore shared by tasks, processes and hosts, like ``asyncio.Semaphore``.

    Permits held by a process that exits are released.

    ``Semaphore(0)`` is a signal: a permit that was acquired is consumed, and does not come back
    when its process exits.

    If a permit is lost, because the session can no longer be proven alive or the permit's znode was
    deleted, ``held`` becomes False. Another process may have the permit by then, and ``release()``
    or the end of ``async with`` raises LockLostError.

    Args:
        value: Initial number of permits, the same for all processes that use the name at the same
            time; 0 makes a signal.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, or both a name and a path are given.
        ConfigurationError: ``on_mismatch`` is not valid, or given with a ``value`` of 0.

    Note:
        Acquiring and releasing a free permit costs 4 requests.

        Permits are granted in FIFO order.

        Znodes: those of ``distsync.threading.Semaphore``.

        Source: ZooKeeper recipes, "Locks", with a limit; ``asyncio.Semaphore``.

    Example:
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
        on_mismatch: str = "error",
    ) -> None:
        if validate_int("value", value, or_name=True) < 0:
            raise ValueError(
                f"{'BoundedS' if self._kind is semaphores.BoundedSemaphore else 'S'}emaphore initial value must be >= 0"
            )
        self._init_sync(value, name=name, client=client, path=path, on_mismatch=on_mismatch)

    async def acquire(self) -> Literal[True]:
        """Acquire a permit, waiting in FIFO order if none is free.

        Returns:
            True.

        Raises:
            MismatchError: Other processes use another initial value.

        Note:
            Costs 3 requests in 1 round trip if a permit is free. The first call of a process, or of
            a session, costs 2 more in 1 round trip if the semaphore has a name.

            Waiters are served in FIFO order. If the session ends during the wait, the task enqueues
            again. If cancelled, no permit is taken and no znode is left behind.

            Source: ZooKeeper recipes, "Locks".
        """
        await self._ready()
        twin = self._sync
        core, data, me = twin._core, describe(), mine()
        await self._await(twin._using(core, lambda: core.acquire(data, True, me, twin._bound(core))))
        return True

    @done_at_end
    def release(self) -> None:
        """Release a permit: first one of this task, then one of this process, then a new one.

        A new permit is one that this process does not hold. It increases the number of permits for
        good.

        Raises:
            LockLostError: The permit was lost while it was held, as far as is known without a
                request.
            OverReleaseError: A BoundedSemaphore would have more free permits than its initial
                value. Subclass of ValueError.

        Note:
            Costs 1 request for a permit that is held, for which the event loop does not wait. Costs
            3 for a new one, for which it does.
        """
        twin, core, me = self._sync, self._sync._core, mine()
        grants = of_owner(core.grants, me, 1) if isinstance(core, SemaphoreCore) else []
        if not grants:
            self._run_blocking(twin._using(core, lambda: core.release(1, twin._bound(core), [False], me)))
            return
        sure = self._surely(grants[0])
        self._run_in_background(core.release(1, twin._bound(core), [False], me))
        if not sure:
            raise self._lost(grants[0])

    def locked(self) -> bool:
        """Return whether no permit is free.

        Returns:
            True if no permit is free.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs 2 requests in 1 round trip, for which the event loop waits.
        """
        core = self._sync._core
        return bool(self._run_blocking(self._sync._using(core, core.value)) <= 0)

    async def __aenter__(self) -> None:
        blocks, me = self._sync._blocks, mine()
        depth = blocks.depth(me)
        await self.acquire()
        blocks.set_depth(me, depth + 1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        twin, client, me = self._sync, self.client, mine()
        depth = twin._blocks.depth(me)
        try:
            if not twin._blocks.was_entered_here(depth):
                twin._refuse_release()
            twin._blocks.set_depth(me, depth - 1)
            core = twin._core
            await self._await(core.release(1, twin._bound(core), [False], me), client.settings.session_timeout)
        except (LockLostError, NotHeldError) as lost:
            raise_or_note(lost, error)

    def __repr__(self) -> str:
        value = repr_state(self._sync, lambda: self._sync._core.value(), self._sync._initial)
        return self._repr_state("locked" if value == 0 else f"unlocked, value:{value}")


class BoundedSemaphore(Semaphore):
    """A semaphore with a maximum, like ``asyncio.BoundedSemaphore``.

    A release that would make more than ``value`` permits free raises OverReleaseError.

    Args:
        value: Initial and maximum number of free permits, the same for all processes that use the
            name at the same time; 0 makes a signal, which can then never be released.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, or both a name and a path are given.
        ConfigurationError: ``on_mismatch`` is not valid, or given with a ``value`` of 0.

    Note:
        Costs, losses, fairness and znodes are those of Semaphore.

        Source: ZooKeeper recipes, "Locks", with a limit; ``asyncio.BoundedSemaphore``.

    Example:
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
        self,
        value: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_mismatch: str = "error",
    ) -> None:
        super().__init__(value, name=name, client=client, path=path, on_mismatch=on_mismatch)
