"""Semaphore(0), used as a signal: a permit is a znode, and acquiring it deletes it.

Source: ZooKeeper recipes, "Queues", with empty items.

The server deletes the containers when there is no permit and no waiter. Looking for permits does not
create them.

Znodes:
``<path>``                                   container
``<path>/permits``                           container
``<path>/permits/p_<guid>-<sequence>``       persistent, one for each permit
``<path>/takers``                            container
``<path>/takers/_c_<guid>-lock-<sequence>``  ephemeral, one for each waiter
"""

from __future__ import annotations

from typing import ClassVar

from distsync._protocols.queues.blocking_get import LocalTurnQueue, take
from distsync._protocols.receipts import Receipts, Unsettled
from distsync._protocols.retries import ensure, read
from distsync._protocols.steps import Children, Create, Delete, Exists, Guid, Watch
from distsync._protocols.wait_queue import in_order
from distsync.errors import NoNodeError, OverReleaseError


class SignalCore:
    """In-process state of a signal, shared by all its threads."""

    initial = 0
    wanted: ClassVar[dict[str, int]] = {"initial value": 0}
    user = None

    poll_interval: float | None = None

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.permits = f"{path}/permits"
        self.takers = f"{path}/takers"
        self.receipts = receipts
        self.turns = LocalTurnQueue()
        #: Acquisitions that were interrupted, whose permits are being restored. Another call waits for them.
        self.unsettled = Unsettled()

    @property
    def idle(self) -> bool:
        """Whether no thread waits."""
        return not self.turns.is_held

    async def acquire(
        self, contender_data: bytes, blocking: bool = True, owner: object = None, max_permits: int | None = None
    ) -> bool:
        """Consume a permit.

        Return False at the deadline, or if not ``blocking`` and there is none.
        """
        return await take(self, self.turns, self.takers, contender_data, blocking, self._ensure) is not None

    async def _ensure(self, folder: str) -> None:
        await ensure(folder, container=True, container_parents=1)

    async def try_take(self) -> str | None:
        while names := await self._names():  # if others took all of these, there may be new ones
            for name in names:
                try:
                    permit = Delete(f"{self.permits}/{name}")
                    await self.receipts.commit(permit, on_unknown_outcome=self._undo, unsettled=self.unsettled)
                    return name
                except NoNodeError:
                    continue
        return None

    async def _undo(self, committed: bool | None) -> None:
        """Add a permit again that was consumed by a call that had already ended."""
        if committed:
            await self.release()

    async def _names(self, watch: Watch | None = None) -> list[str]:
        await self.unsettled.wait_until_settled()
        while True:
            try:
                listing = await read(Children(self.permits, watch))
                return [contender.name for contender in in_order(listing.names)]
            except NoNodeError:
                if watch is None or await read(Exists(self.permits, watch)) is None:
                    return []

    async def set_watch(self, watch: Watch) -> bool:
        return not await self._names(watch)

    async def watch_arrivals(self, watch: Watch) -> str | None:
        return next(iter(await self._names(watch)), None)

    async def release(
        self, count: int = 1, max_permits: int | None = None, started: list[bool] | None = None, owner: object = None
    ) -> None:
        """Add ``count`` permits.

        Raise OverReleaseError if there would be more than ``max_permits``.
        """
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
                await self._ensure(self.permits)

    async def value(self) -> int:
        """Return the number of permits."""
        return len(await self._names())
