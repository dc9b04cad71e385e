"""Pool: workers claim tasks, and end each task in one transaction with the put of its answer.

Source: recipes.txt, "Queues"; stdlib ``multiprocessing.pool``. Callers, answers and parts are ours;
see callers.py.

Because of that transaction, an answer arrives once, however often the task was delivered. A task
that was delivered before is claimed alone, so that a task that kills its workers affects no other.
A task that was delivered ``max_deliveries`` times is ended with the answer ``worn``. A task whose
caller was removed is deleted, with its parts.

Znodes: as in queues/claim_layout.py, with items named ``i_<caller>.<job>.<part>_<guid>-<number>``, and
``<path>/callers`` and ``<path>/workers``, described in callers.py and workers.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from distsync._protocols import payload_chunks
from distsync._protocols.queues.bulk import Progress, put_many
from distsync._protocols.queues.claim_layout import SEGMENT, ClaimedItem, ClaimQueueLayout, ItemHeader
from distsync._protocols.queues.claim_queue import (
    CONFLICT_ERRORS,
    JoinableCore,
    fit_request,
    if_unclaimed,
    never_delivered,
)
from distsync._protocols.queues.segments import BATCH_BYTES, ITEM_BYTES
from distsync._protocols.receipts import Operation, Receipts, Unsettled
from distsync._protocols.retries import ensure, parent_of, read, read_all
from distsync._protocols.steps import (
    Background,
    Children,
    Create,
    Delete,
    Exists,
    GetData,
    Guid,
    Node,
    SetData,
    StopHolding,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import BadVersionError, CorruptNodeError, NodeExistsError, NoNodeError

#: Maximum number of tasks that a worker claims at once: a quarter of a segment, so that four
#: workers find some.
MAX_CLAIMED = SEGMENT // 4
#: Number of tasks withdrawn with one request.
OUT_AT_ONCE = 25

DONE, REFUSED, WORN = "done", "refused", "worn"
"""Kinds of answers: the function's result or exception; the reason, as text, for which the worker
could not read the task; the number of deliveries of a task that no worker finished.
"""


class Task(NamedTuple):
    """The identity of a task."""

    caller: str
    job: int
    part: int

    @property
    def key(self) -> str:
        """The part of the item's name that identifies the task."""
        return f"{self.caller}.{self.job}.{self.part}_"

    @property
    def group(self) -> str:
        """The name of the task's parts."""
        return f"t{self.job}.{self.part}"


def task_of(path: str) -> Task:
    """Return the task of the item at ``path``. Raises CorruptNodeError."""
    try:
        caller, job, part = path.rpartition("/")[2].removeprefix("i_").split("_")[0].split(".")
        return Task(caller, int(job), int(part))
    except ValueError as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, path.rpartition("/")[2].encode()) from None


class PoolSegments(ClaimQueueLayout):
    """Znodes of one pool.

    A private pool is created by its caller only: its worker never creates what it does not find.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.callers = f"{path}/callers"
        self.workers = f"{path}/workers"
        self.may_make = True

    async def make(self) -> None:
        if not self.may_make:
            raise NoNodeError(self.path)
        await super().make()
        await ensure(self.callers)

    def caller_path(self, caller: str) -> str:
        return f"{self.callers}/{caller}"

    def parts_path(self, caller: str) -> str:
        return f"{self.callers}/{caller}/parts"

    def initializer(self, caller: str) -> str:
        return f"{self.callers}/{caller}/initializer"

    def answers(self, caller: str) -> str:
        return f"{self.callers}/{caller}/answers"

    def answer(self, task: Task, kind: str) -> str:
        return f"{self.answers(task.caller)}/{task.job}.{task.part}.{kind}"


class TaskCompletion:
    """The end of a claimed task: operations some of which may turn out to be unnecessary."""

    def __init__(self, core: PoolCore, delivery: ClaimedItem, kind: str, data: bytes) -> None:
        znodes = core.znodes
        self.delivery, self.task = delivery, task_of(delivery.path)
        parts_path = znodes.parts_path(self.task.caller)
        self.mine = Delete(delivery.path, delivery.version)
        self.put = Create(znodes.answer(self.task, kind), data)
        self.made_parts = payload_chunks.parts_of(parts_path, data) if kind == DONE else []
        used = [Delete(path) for path in _parts_of_task(parts_path, delivery.payload)]
        #: The remaining operations; none if another worker has the task.
        self.operations: list[Operation] = [
            self.mine, Delete(delivery.claim), SetData(znodes.dones), *used, self.put
        ]  # fmt: skip

    @property
    def size(self) -> int:
        """Approximate size in bytes of its request."""
        return len(self.put.data) + (len(self.operations) + 1) * ITEM_BYTES

    def is_taken(self) -> bool:
        """Return whether the answer was accepted: the task was ours, and its caller exists."""
        return self.put in self.operations

    def without(self, refused: Operation) -> None:
        """Remove ``refused``, because its znode does not exist; remove all operations if the task
        itself has changed.
        """
        if refused is self.mine or isinstance(refused, SetData):
            self.operations.clear()
        else:
            self.operations.remove(refused)


def _parts_of_task(parts_path: str, payload: bytes) -> list[str]:
    try:
        return payload_chunks.parts_of(parts_path, payload)
    except CorruptNodeError:  # the worker will refuse the task
        return []


class PoolCore(JoinableCore):
    """In-process state of a pool, shared by all its threads."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        super().__init__(path, receipts)
        self.znodes: PoolSegments = PoolSegments(path)
        #: Withdrawals that ended before the reply, of which it is not known whether they took effect.
        self.withdrawals = Unsettled()

    # What callers do

    async def put_tasks(self, tasks: Sequence[tuple[Task, bytes]], progress: Progress) -> None:
        """Put tasks with their payloads; ``progress`` has the number that were put."""
        items = [
            (task.key, ItemHeader().before(await self._split(task.caller, task.group, payload)))
            for task, payload in tasks
        ]
        await put_many(self, items, True, progress)

    async def put_initializer(self, caller: str, payload: bytes) -> None:
        """Create the znode with the encoded call of a caller's initializer."""
        await ensure(self.znodes.initializer(caller), await self._split(caller, "i", payload))

    async def _split(self, caller: str, group: str, payload: bytes) -> bytes:
        if not payload_chunks.is_large(payload):
            return payload_chunks.unsplit(payload)
        return await payload_chunks.split(self.znodes.parts_path(caller), group, payload)

    async def withdraw_tasks(
        self, caller: str, job: int | None = None, on_late: Callable[[Task], object] | None = None
    ) -> list[Task]:
        """Withdraw the unclaimed tasks of a caller, or of one of its jobs. Return those withdrawn.

        If the deadline passes before the reply, and a task was withdrawn all the same, ``on_late`` is called with it
        later. Another call waits for that.
        """
        await self.withdrawals.wait_until_settled()
        prefix = f"i_{caller}." if job is None else f"i_{caller}.{job}."
        withdrawn: list[Task] = []
        (listing,) = await read_all(Children(self.znodes.items))
        for segment in () if isinstance(listing, NoNodeError) else sorted(listing.names):
            (items,) = await read_all(Children(f"{self.znodes.items}/{segment}"))
            names = [] if isinstance(items, NoNodeError) else [one for one in items.names if one.startswith(prefix)]
            paths = [f"{self.znodes.items}/{segment}/{name}" for name in names]
            for start in range(0, len(paths), OUT_AT_ONCE):
                withdrawn += await self._take_out(paths[start : start + OUT_AT_ONCE], on_late)
        for task in withdrawn if job is not None else ():  # otherwise they are deleted with the caller's znode
            await payload_chunks.delete_groups(self.znodes.parts_path(caller), task.group + ".")
        return withdrawn

    async def is_claimed(self, caller: str, job: int) -> bool:
        """Return whether a worker has claimed a task of a job, and has not finished it."""
        (listing,) = await read_all(Children(self.znodes.claims))
        mark = f"~i_{caller}.{job}."
        return not isinstance(listing, NoNodeError) and any(mark in name for name in listing.names)

    async def _take_out(self, paths: Sequence[str], on_late: Callable[[Task], object] | None = None) -> list[Task]:
        try:
            operations = [
                operation
                for path in paths
                for operation in (*if_unclaimed(self.znodes.claim(path)), Delete(path), SetData(self.znodes.dones))
            ]
            await self.receipts.commit(
                *operations,
                on_unknown_outcome=None if on_late is None else partial(self._tell_withdrawn, paths, on_late),
                unsettled=None if on_late is None else self.withdrawals,
            )
            return [task_of(path) for path in paths]
        except CONFLICT_ERRORS:
            if len(paths) == 1:
                return []
            return [task for path in paths for task in await self._take_out([path], on_late)]

    async def _tell_withdrawn(
        self, paths: Sequence[str], on_late: Callable[[Task], object], committed: bool | None
    ) -> None:
        """Call ``on_late`` with each of the tasks at ``paths`` if they were withdrawn."""
        for path in paths if committed is not False else ():
            task = task_of(path)
            if committed is None:  # no worker has it or has replied
                item, replies = await read_all(Exists(path), Children(self.znodes.answers(task.caller)))
                ended = () if isinstance(replies, NoNodeError) else replies.names
                if item is not None or any(name.startswith(f"{task.job}.{task.part}.") for name in ended):
                    continue
            on_late(task)

    # What workers do

    async def candidates(self, paths: list[str], max_items: int) -> list[str]:
        """Start at a random place if claiming several, so that workers do not all try to claim the
        same tasks.
        """
        places = -(-len(paths) // max_items)
        start = int((await Guid())[:8], 16) % places * max_items if max_items > 1 else 0
        return paths[start:] + paths[:start]

    def claimable(self, claims: list[ClaimedItem]) -> list[ClaimedItem]:
        """Claim a task that was delivered before alone."""
        return fit_request(never_delivered(claims))

    async def payload(self, delivery: ClaimedItem) -> bytes:
        """Return the payload of a task. Raises NoNodeError if the task has ended already, and
        CorruptNodeError.
        """
        return await payload_chunks.join(self.znodes.parts_path(task_of(delivery.path).caller), delivery.payload)

    async def initializer_call(self, caller: str) -> bytes | None:
        """Return the encoded call of a caller's initializer; None if there is none."""
        (node,) = await read_all(GetData(self.znodes.initializer(caller)))
        if not isinstance(node, Node):
            return None
        try:
            return await payload_chunks.join(self.znodes.parts_path(caller), node.data)
        except (CorruptNodeError, NoNodeError):
            return None

    async def is_there(self, caller: str) -> bool:
        """Return whether the caller still waits for answers."""
        return await read(Exists(self.znodes.answers(caller))) is not None

    async def answer(self, delivery: ClaimedItem, kind: str, payload: bytes) -> TaskCompletion:
        """Prepare an answer to be put with others. The parts of a large answer are created here."""
        if kind != DONE or not payload_chunks.is_large(payload):
            return TaskCompletion(self, delivery, kind, payload if kind != DONE else payload_chunks.unsplit(payload))
        task, deliveries = task_of(delivery.path), delivery.label.deliveries
        parts_path, group = self.znodes.parts_path(task.caller), f"a{task.job}.{task.part}."
        try:
            if deliveries > 1:  # parts of a worker that exited before it could put its answer
                await payload_chunks.delete_groups(parts_path, group)
            return TaskCompletion(
                self, delivery, kind, await payload_chunks.split(parts_path, f"{group}{deliveries}", payload)
            )
        except NoNodeError:
            return TaskCompletion(self, delivery, kind, b"=")  # the caller was removed

    async def finish(self, answers: Sequence[TaskCompletion]) -> None:
        """End tasks and put their answers, except those whose task another worker has or whose caller
        was removed.
        """
        for answer in answers:
            await StopHolding(answer.delivery.loss)
        todo = list(answers)
        while todo:
            batch = list(_fitting(todo))
            plan = [(answer, operation) for answer in batch for operation in answer.operations]
            try:
                if plan:
                    await self.receipts.commit(*(operation for _, operation in plan))
            except (NoNodeError, BadVersionError, NodeExistsError) as error:
                answer, refused = plan[getattr(error, "index", 0)]
                answer.without(refused)
                continue
            del todo[: len(batch)]
        for answer in answers:
            if not answer.is_taken():
                await Background(payload_chunks.delete_all(answer.made_parts))

    async def _dead_letter(self, item: ClaimedItem, version: int, deliveries: int, *claim: Operation) -> bool:
        """Answer a task that was delivered too often; only delete it if its caller was removed."""
        task = task_of(item.path)
        answer = Create(self.znodes.answer(task, WORN), json.dumps(deliveries).encode())
        used = [Delete(path) for path in _parts_of_task(self.znodes.parts_path(task.caller), item.payload)]
        ended = (Delete(item.path, version), *claim, SetData(self.znodes.dones), *used)
        if await self._commit_mine(*ended, answer) is not None:
            return True
        if await read(Exists(parent_of(answer.path))) is not None:
            return False
        return await self._commit_mine(*ended) is not None


def _fitting(answers: Sequence[TaskCompletion]) -> Iterator[TaskCompletion]:
    """Yield the first answers that fit into one request."""
    size = 0
    for number, answer in enumerate(answers):
        size += answer.size
        if number and size > BATCH_BYTES:
            return
        yield answer
