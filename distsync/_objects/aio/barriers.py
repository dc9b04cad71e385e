"""Barrier of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from distsync._client.contender_info import describe
from distsync._objects import barriers
from distsync._objects.aio.base import AsyncObject
from distsync._objects.ownership import repr_state

if TYPE_CHECKING:
    from distsync._client.client import Client

#: That of asyncio, which has one since Python 3.11.
BrokenBarrierError: type[RuntimeError] = getattr(asyncio, "BrokenBarrierError", threading.BrokenBarrierError)


class Barrier(AsyncObject):
    """A place where ``parties`` tasks, of any processes, wait for each other; again and again.

    On loss: of the session while waiting: the barrier breaks, for it and for the others.
    On cancel: who is cancelled leaves as if he had not come, as with ``asyncio``; where there is no connection for a
        second to say so, the barrier breaks. Who dies breaks it, and so does an interrupted thread.
    Cost: before the wait 3 requests, 1 round trip, 1 watch; the last one to arrive sends 1 more.
    Source: recipes.txt, Double Barriers; ``asyncio.Barrier``, here on every Python.

    Znodes: as ``distsync.threading.Barrier``.

    >>> async def main():
    ...     print(await Barrier(1, name="start").wait())
    >>> asyncio.run(main())
    0
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = barriers.Barrier

    def __init__(
        self, parties: int, *, name: str | None = None, client: Client | None = None, path: str | None = None
    ) -> None:
        if parties < 1:
            raise ValueError("parties must be > 0")
        self._init_sync(parties, name=name, client=client, path=path)

    async def wait(self) -> int:
        """All parties have arrived.

        Returns: 0 to parties - 1, another number for each.
        Raises: BrokenBarrierError (asyncio's) if the barrier is or becomes broken, or is reset.
        On loss: BrokenBarrierError, for all.
        On cancel: the others wait on for another one; no znode is left.
        Cost: as ``distsync.threading.Barrier.wait``. Who leaves sends 4, and those who wait look again.
        Source: recipes.txt, Double Barriers, Enter.
        """
        await self._ready()
        try:
            return int(await self._await(self._sync._core.wait(describe(), on_cancel_leave=True)))
        except threading.BrokenBarrierError as error:
            if BrokenBarrierError is threading.BrokenBarrierError:
                raise
            raise BrokenBarrierError(*(error.args or ("Barrier aborted",))) from None

    async def reset(self) -> None:
        """The barrier is empty and whole; who waits gets BrokenBarrierError.

        Cost: 3 requests, 2 round trips; 3 more in the background.
        """
        await self._ready()
        await self._await(self._sync._core.reset())

    async def abort(self) -> None:
        """The barrier is broken; who waits, and who comes, gets BrokenBarrierError.

        Cost: 2 requests.
        """
        await self._ready()
        await self._await(self._sync._core.abort())

    @property
    def parties(self) -> int:
        """How many it takes."""
        return int(self._sync.parties)

    @property
    def n_waiting(self) -> int:
        """How many wait now. Cost: 2 requests, 1 round trip, for which the loop waits."""
        return int(self._run_blocking(self._sync._core.state())[0])

    @property
    def broken(self) -> bool:
        """Whether it is broken. Cost: 2 requests, 1 round trip, for which the loop waits."""
        return bool(self._run_blocking(self._sync._core.state())[1])

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __repr__(self) -> str:
        state = repr_state(self._sync, lambda: self._sync._core.state())
        if state[1] is True:
            return self._repr_state("broken")
        return self._repr_state(f"filling, waiters:{state[0]}/{self.parties}")
