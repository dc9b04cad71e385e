"""Barrier of ``distsync.asyncio``."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from distsync._client.contender_info import describe
from distsync._objects import barriers
from distsync._objects.aio.base import AsyncObject
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int

if TYPE_CHECKING:
    from distsync._client.client import Client

#: asyncio's class, which exists since Python 3.11; threading's before that.
BrokenBarrierError: type[RuntimeError] = getattr(asyncio, "BrokenBarrierError", threading.BrokenBarrierError)


class Barrier(AsyncObject):
    """A cyclic barrier shared by tasks, processes and hosts, like ``asyncio.Barrier``.

    ``parties`` tasks of any processes wait for each other, again and again.

    Args:
        parties: Number of tasks to wait for, 1 or more. It must be the same in all processes that
            use the name at the same time.
        name: Name of the barrier, shared by all processes that use it. Without a name, a barrier
            assigned at module or class level is named after its variable; any other barrier gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the barrier's znode, instead of a name.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``parties`` is taken over in each case.

    Raises:
        ValueError: ``parties`` is less than 1.
        TypeError: ``parties`` is not an integer, or both a name and a path are given.
        ConfigurationError: ``on_mismatch`` is not valid.

    Note:
        Costs 3 requests in 1 round trip and 1 watch before the wait. The last task to arrive costs
        1 request more.

        If the session of a waiting task ends, the barrier is broken, for this task and for all
        others. A cancelled task leaves the barrier as if it had not arrived, as with ``asyncio``.
        If it cannot leave within a second, for lack of a connection, the barrier is broken. The
        exit of a waiting process breaks the barrier, and so does the interrupt of a waiting thread.

        Znodes: those of ``distsync.threading.Barrier``.

        Source: ZooKeeper recipes, "Double Barriers"; ``asyncio.Barrier``, available here on every
        Python.

    Example:
        >>> async def main():
        ...     print(await Barrier(1, name="start").wait())
        >>> asyncio.run(main())
        0
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = barriers.Barrier

    def __init__(
        self,
        parties: int,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_mismatch: str = "error",
    ) -> None:
        if validate_int("parties", parties, or_name=True) < 1:
            raise ValueError("parties must be > 0")
        self._init_sync(parties, name=name, client=client, path=path, on_mismatch=on_mismatch)

    async def wait(self) -> int:
        """Wait until all parties have arrived.

        Returns:
            A number from 0 to ``parties - 1``, which is different for each task.

        Raises:
            BrokenBarrierError: The barrier is or becomes broken, or is reset. The class is
                asyncio's.
            MismatchError: Other processes use another number of parties.

        Note:
            Costs as many requests as ``distsync.threading.Barrier.wait``. A cancelled task sends 4 more, and
            the other waiters look again.

            If the session ends, all waiters get BrokenBarrierError. If cancelled, no znode is left
            behind, and the others wait for another task.

            Source: ZooKeeper recipes, "Double Barriers", Enter.
        """
        await self._ready()
        try:
            core, data = self._sync._core, describe()
            return int(await self._await(self._sync._using(core, lambda: core.wait(data, on_cancel_leave=True))))
        except threading.BrokenBarrierError as error:
            if BrokenBarrierError is threading.BrokenBarrierError:
                raise
            raise BrokenBarrierError(*(error.args or ("Barrier aborted",))) from None

    async def reset(self) -> None:
        """Reset the barrier; waiting tasks get BrokenBarrierError.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the barrier
                may or may not be reset. Subclass of TimeoutError.

        Note:
            Costs 3 requests in 2 round trips, and 3 more in the background.
        """
        await self._ready()
        core = self._sync._core
        await self._ask(self._sync._using(core, core.reset))

    async def abort(self) -> None:
        """Break the barrier; waiting and arriving tasks get BrokenBarrierError.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the barrier
                may or may not be broken. Subclass of TimeoutError.

        Note:
            Costs 2 requests.
        """
        await self._ready()
        core = self._sync._core
        await self._ask(self._sync._using(core, core.abort))

    @property
    def parties(self) -> int:
        """The number of tasks that the barrier waits for."""
        return int(self._sync.parties)

    @property
    def n_waiting(self) -> int:
        """The number of tasks that are waiting now.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs 2 requests in 1 round trip, for which the event loop waits.
        """
        core = self._sync._core
        return int(self._run_blocking(self._sync._using(core, core.state))[0])

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or the session
                timeout if it is shorter. Subclass of TimeoutError.

        Note:
            Costs 2 requests in 1 round trip, for which the event loop waits.
        """
        core = self._sync._core
        return bool(self._run_blocking(self._sync._using(core, core.state))[1])

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __repr__(self) -> str:
        state = repr_state(self._sync, lambda: self._sync._core.state(), (0, False))
        if state[1] is True:
            return self._repr_state("broken")
        return self._repr_state(f"filling, waiters:{state[0]}/{self.parties}")
