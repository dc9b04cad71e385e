"""The end of a claim: the item is done, delivered again at once or later, or becomes a dead letter.

Source: stdlib ``multiprocessing.JoinableQueue.task_done``; the rest is ours.

Each end is one transaction, which fails if the item has changed since the worker's claim: no worker
can end the claim of another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from distsync._protocols.group_commit import GroupCommitter
from distsync._protocols.queues.claim_layout import SEGMENT, ClaimedItem, ClaimQueueLayout, ItemHeader
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.queues.segments import BATCH
from distsync._protocols.receipts import CommitOutcome, Operation, Receipts, StillNeeded, always, raise_deadline
from distsync._protocols.retries import read
from distsync._protocols.steps import (
    Background,
    Check,
    Create,
    Created,
    Delete,
    Exists,
    Guid,
    Protocol,
    SetData,
    StopHolding,
)
from distsync.errors import BadVersionError, LockLostError, NoNodeError, OutcomeUnknownError


class AckQueue(QueueCore):
    """A queue with claims, without the part that claims items."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        super().__init__(path, receipts)
        self.znodes: ClaimQueueLayout = ClaimQueueLayout(path)
        self.endings: GroupCommitter[ClaimedItem, bool] = GroupCommitter(
            self._finish, lambda loads: min(len(loads), BATCH)
        )
        #: A lower bound of the current server time (ms).
        self.time = 0

    @property
    def segment_size(self) -> int:
        return min(SEGMENT, super().segment_size)

    async def done(self, delivery: ClaimedItem) -> None:
        """Delete a finished item. Raises LockLostError if another worker has claimed it since."""
        await self._end(delivery, self.endings.send(delivery))

    async def _finish(self, deliveries: Sequence[ClaimedItem], still_needed: StillNeeded) -> Sequence[bool]:
        """Delete finished items; return for each whether it was still ours. Raises Abandoned.

        Several are deleted in one transaction, which fails unless all are ours.
        """
        if len(deliveries) == 1:
            return [await self._move(deliveries[0], *self._counted(deliveries[0]), still_needed=still_needed)]
        gone = [(Delete(each.path, each.version), Delete(each.claim), *self._counted(each)) for each in deliveries]
        await self.receipts.commit(*(operation for each in gone for operation in each), still_needed=still_needed)
        return [True] * len(deliveries)

    def _counted(self, delivery: ClaimedItem) -> tuple[Operation, ...]:
        return (SetData(self.znodes.dones), *self._without_key(delivery.label))

    async def nack(self, delivery: ClaimedItem, delay: float = 0.0, max_deliveries: int = 0) -> None:
        """Make the item available again, after ``delay`` seconds; make it a dead letter if it was
        delivered too often.

        Raises LockLostError if another worker has claimed it since.
        """
        if 0 < max_deliveries <= delivery.label.deliveries:
            await self.dead_letter(delivery)
        elif delay > 0:
            await self._end(delivery, self._postpone(delivery, delay))
        else:
            await self._end(delivery, self.release(delivery))

    async def dead_letter(self, delivery: ClaimedItem) -> None:
        """Make the item a dead letter. Raises LockLostError if another worker has claimed it since."""
        deliveries = delivery.label.deliveries
        await self._end(delivery, self._dead_letter(delivery, delivery.version, deliveries, Delete(delivery.claim)))

    async def _end(self, delivery: ClaimedItem, work: Protocol[bool]) -> None:
        """Await ``work``, which ends our claim and returns whether the item was still ours.

        If ``work`` is interrupted and did not take place, the item becomes available to all.
        """
        try:
            await StopHolding(delivery.loss)
            if await work:
                return
        except BaseException:
            work.close()
            await Background(self.release(delivery))
            raise
        raise LockLostError(delivery.path, delivery.loss.reason or "its claim ended, and another worker got the item")

    async def _move(
        self, delivery: ClaimedItem, *extra_operations: Operation, still_needed: StillNeeded = always
    ) -> bool:
        """Delete the item and its claim, and perform ``extra_operations``. Return whether the item was
        ours.
        """
        mine = Delete(delivery.path, delivery.version)
        return (
            await self._commit_mine(mine, Delete(delivery.claim), *extra_operations, still_needed=still_needed)
            is not None
        )

    async def _postpone(self, delivery: ClaimedItem, delay: float) -> bool:
        return await self._move(delivery, await self._later(delivery.label.before(delivery.payload), delay))

    async def _commit_mine(
        self, mine: Operation, *others: Operation, still_needed: StillNeeded = always
    ) -> CommitOutcome | None:
        """Commit ``mine``, which requires that the item is unchanged, and ``others``.

        A Delete of a znode that no longer exists is left out. Returns None if the item has changed.
        """
        operations = [mine, *others]
        while True:
            try:
                return await self.receipts.commit(*operations, still_needed=still_needed)
            except (NoNodeError, BadVersionError) as error:
                gone = operations[getattr(error, "index", 0)]
                if gone is mine or not isinstance(gone, Delete):
                    if isinstance(gone, SetData):
                        await self.znodes.make()
                    return None
                operations.remove(gone)

    async def release(self, delivery: ClaimedItem) -> bool:
        """Make the item available to all, if it is ours. Return whether it was; the claim may have
        ended already.
        """
        mine = Check(delivery.path, delivery.version)
        return await self._commit_mine(mine, Delete(delivery.claim)) is not None

    async def give_back(self, delivery: ClaimedItem) -> None:
        """Undo the claim on an item that was not processed, including the count of its deliveries."""
        await StopHolding(delivery.loss)
        label = delivery.label._replace(deliveries=delivery.label.deliveries - 1)
        as_before = SetData(delivery.path, label.before(delivery.payload), delivery.version)
        while True:
            try:
                await self._commit_mine(as_before, Delete(delivery.claim))
                return
            except OutcomeUnknownError as unknown:  # giving back twice is refused, by the version of the item
                raise_deadline(unknown)

    async def _dead_letter(self, item: ClaimedItem, version: int, deliveries: int, *claim: Operation) -> bool:
        """Move the item to the dead letters, and count it as done here. Return whether the item was
        unchanged.
        """
        dead = ClaimQueueLayout(f"{self.znodes.path}/dead")
        data = ItemHeader(deliveries).before(item.payload)
        here = (*claim, SetData(self.znodes.dones), *self._without_key(item.label), SetData(dead.puts))
        while True:
            tail = await dead.find_tail()
            letter = Create(f"{tail}/i_{await Guid()}-", data, sequence=True)
            outcome = await self._commit_mine(Delete(item.path, version), *here, Check(tail, 0), letter)
            if outcome is not None:
                await self._seal_dead(dead, tail, outcome)
                return True
            stat = await read(Exists(item.path))
            if stat is None or stat.version != version:
                return False
            dead.tail = None

    async def _seal_dead(self, dead: ClaimQueueLayout, tail: str, outcome: CommitOutcome) -> None:
        created = outcome.results[-1] if outcome.results else None
        if isinstance(created, Created) and int(created.path[-10:]) + 1 >= self.segment_size:
            await Background(dead.seal_segment(tail))

    async def _later(self, data: bytes, delay: float) -> Create:
        """Return the operation that creates a delayed item."""
        due = await self.now() + math.ceil(delay * 1000)
        return Create(f"{self.znodes.delayed}/d_{due:015d}_{await Guid()}-", data, sequence=True)

    async def now(self) -> int:
        """Return the current server time (ms): the time of a write."""
        while True:
            try:
                self._on_event(await read(SetData(self.znodes.clock)))
                return self.time
            except NoNodeError:
                await self.znodes.make()

    def _on_event(self, stat: Any) -> None:
        self.time = max(self.time, stat.mtime)

    def _without_key(self, label: ItemHeader) -> tuple[Operation, ...]:
        return () if label.key is None else (Delete(self.znodes.key(label.key)),)
