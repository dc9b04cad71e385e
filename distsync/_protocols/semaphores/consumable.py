"""Semaphore(0), a signal: a permit is a znode, and one that is taken is used up for good.

Source: recipes.txt, "Queues", with empty items.

Rules for this file: pure.

Picture: ``<path>/permits/p_<guid>-<sequence>``          persistent, one a permit
         ``<path>/takers/_c_<guid>-lock-<sequence>``     ephemeral, one a waiter
"""

from __future__ import annotations

from distsync._protocols.queues.blocking_get import LocalTurnQueue, take
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import ensure, read
from distsync._protocols.steps import Children, Create, Delete, Guid, Watch
from distsync._protocols.wait_queue import in_order
from distsync.errors import NoNodeError, OverReleaseError


class SignalCore:
    """What the threads of one process know together about one signal."""

    initial = 0

    poll_interval: float | None = None

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.permits = f"{path}/permits"
        self.takers = f"{path}/takers"
        self.receipts = receipts
        self.turns = LocalTurnQueue()

    @property
    def idle(self) -> bool:
        """Nobody waits."""
        return not self.turns.taken

    async def acquire(
        self, contender_data: bytes, blocking: bool = True, owner: object = None, max_permits: int | None = None
    ) -> bool:
        """A permit is used up. False: not at once if we do not ``blocking``, or not before the deadline."""
        return await take(self, self.turns, self.takers, contender_data, blocking) is not None

    async def attempt(self) -> str | None:
        while names := await self._names():  # where others took all of these, more may have come
            for name in names:
                try:
                    await self.receipts.commit(Delete(f"{self.permits}/{name}"), on_unknown_outcome=self._undo)
                    return name
                except NoNodeError:
                    continue
        return None

    async def _undo(self, committed: bool | None) -> None:
        """A permit was used up by a call that had ended: it comes back."""
        if committed:
            await self.release()

    async def _names(self, watch: Watch | None = None) -> list[str]:
        while True:
            try:
                listing = await read(Children(self.permits, watch))
                return [contender.name for contender in in_order(listing.names)]
            except NoNodeError:
                await ensure(self.permits)

    async def arm(self, watch: Watch) -> bool:
        return not await self._names(watch)

    async def release(
        self, count: int = 1, max_permits: int | None = None, started: list[bool] | None = None, owner: object = None
    ) -> None:
        """``count`` more permits. Raises OverReleaseError if then more than ``max_permits`` would be there."""
        if started is not None:
            started[0] = True
        if max_permits is not None and await self.value() + count > max_permits:
            raise OverReleaseError("Semaphore released too many times")
        permits = [Create(f"{self.permits}/p_{await Guid()}-", sequence=True) for _ in range(count)]
        while True:
            try:
                await self.receipts.commit(*permits)
                return
            except NoNodeError:
                await ensure(self.permits)

    async def value(self) -> int:
        """How many permits are there now."""
        return len(await self._names())
