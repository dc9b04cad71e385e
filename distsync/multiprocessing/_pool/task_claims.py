"""The tasks of others that a caller of a pool claims for its own local workers.

It claims while its workers have nothing else to do. A claim ends in one of three ways: the task has a
result; no local worker has begun the task, so that it is given back; or its local worker has exited,
so that it becomes available again, and this delivery counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from distsync._log import OwnLogger
from distsync._protocols.pool.callers import find_initializer
from distsync._protocols.pool.tasks import DONE, REFUSED, PoolCore, task_of
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.steps import Background, StopHolding
from distsync.errors import CorruptNodeError, DistsyncError, NoNodeError
from distsync.multiprocessing._pool.pipe_codec import TASK, shared_task_prefix
from distsync.multiprocessing._pool.pipe_feed import PipeTask
from distsync.multiprocessing._pool.pool_worker import MAX_ACCEPTED, FinishedTask, put_results

logger = OwnLogger("distsync.multiprocessing")


class TaskClaims:
    """The claims of one caller. The caller's lock guards the attributes.

    Args:
        core: State of the pool.
        initializer: Description of the initializer of the local workers; None if there are no workers.
    """

    def __init__(self, core: PoolCore, initializer: str | None) -> None:
        self._core, self._initializer = core, initializer
        #: Callers whose tasks the local workers may run.
        self._accepted: set[str] = set()
        #: Number of claims that have not ended.
        self.count = 0
        #: Claims to end, by how they end.
        self.finished: deque[FinishedTask] = deque()
        self.unused: deque[ClaimedItem] = deque()
        self.broken: deque[ClaimedItem] = deque()

    @property
    def has_ended_some(self) -> bool:
        """Whether there are claims to end."""
        return bool(self.finished or self.unused or self.broken)

    def taken(self) -> tuple[list[FinishedTask], list[ClaimedItem], list[ClaimedItem]]:
        """Remove the claims to end, and return them."""
        finished, unused, broken = [*self.finished], [*self.unused], [*self.broken]
        for each in (self.finished, self.unused, self.broken):
            each.clear()
        self.count -= len(finished) + len(unused) + len(broken)
        return finished, unused, broken

    async def read(self, claimed: Sequence[ClaimedItem], caller: str) -> tuple[list[PipeTask], list[FinishedTask]]:
        """Read claimed tasks.

        Args:
            claimed: The items of the queue.
            caller: The GUID of this caller.

        Returns:
            The tasks to run, and those that end at once, because they are refused or their caller is gone.
        """
        tasks: list[PipeTask] = []
        ended: list[FinishedTask] = []
        exists: dict[str, bool] = {}
        for each in claimed:
            try:
                task = task_of(each.path)
            except CorruptNodeError:  # no pool has put this item, so there is no caller to reply to
                ended.append(FinishedTask(each, "", b""))
                continue
            if task.caller not in exists:
                exists[task.caller] = await self._core.is_there(task.caller)
            refusal = await self._refusal(task.caller) if exists[task.caller] else None
            if refusal is not None:
                ended.append(FinishedTask(each, REFUSED, refusal.encode()))
                continue
            payload = None
            if exists[task.caller]:
                try:
                    payload = await self._core.payload(each)
                except NoNodeError:  # its caller was removed
                    pass
                except CorruptNodeError as error:
                    ended.append(FinishedTask(each, REFUSED, str(error).encode()))
                    continue
            if payload is None:
                ended.append(FinishedTask(each, DONE, b""))
                continue
            place = f"{self._core.znodes.caller_path(task.caller)}/{task.job}.{task.part}"
            body = shared_task_prefix(place, task.caller == caller) + payload
            frame = TASK.pack(task.job, task.part, len(body)) + body
            tasks.append(PipeTask(task.job, task.part, frame, "", 0, len(frame), task.caller, each))
        return tasks, ended

    async def _refusal(self, caller: str) -> str | None:
        """Return why the local workers cannot run tasks of a caller; None if they can."""
        if caller in self._accepted:
            return None
        found = await find_initializer(self._core, caller)
        if found is not None and found[0] != self._initializer:
            return f"its pool's initializer is {found[0]}, but this worker has called {self._initializer}"
        if len(self._accepted) >= MAX_ACCEPTED:
            self._accepted.clear()
        self._accepted.add(caller)
        return None

    async def end(
        self, finished: Sequence[FinishedTask], unused: Sequence[ClaimedItem], broken: Sequence[ClaimedItem]
    ) -> None:
        """End claims: put results, give back what no worker has begun, and release what a worker has broken off."""
        try:
            await self._put_results(finished)
        except (DistsyncError, OSError) as error:
            logger.warning("%d results of the pool %s are lost: %s", len(finished), self._core.znodes.path, error)
            for each in finished:
                await Background(self._core.release(each.delivery))
        for item in unused:
            with suppress(DistsyncError):  # the session ended, and the claim with it
                await self._core.give_back(item)
        for item in broken:
            with suppress(DistsyncError):
                await StopHolding(item.loss)
                await self._core.release(item)

    async def _put_results(self, finished: Sequence[FinishedTask]) -> None:
        for each in finished:
            if not each.kind:
                with suppress(DistsyncError):  # another worker has discarded it
                    await self._core.done(each.delivery)
        await put_results(self._core, [each for each in finished if each.kind])
