"""CountDownLatch: opened by the last count-down, in one transaction with it.

Source: recipes.txt, "Barriers" (the waiters); Java's ``CountDownLatch`` and Redisson's
``trySetCount``.

A count-down wakes no waiter: waiters watch a znode that is deleted with the last one. A wakeup is a
hint; the remaining count and the round decide.

Znodes:
  ``<path>``         data: ``{"count": initial count, "left": n, "round": r}``
  ``<path>/closed``  exists while ``left`` is greater than 0
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, parent_of, read, read_all
from distsync._protocols.state.versioned_value import setting
from distsync._protocols.steps import (
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
)

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser


@dataclass(frozen=True)
class LatchRecord:
    """The data of the latch's znode."""

    count: int
    remaining: int
    round: int = 0
    version: int = 0

    def data(self) -> bytes:
        return json.dumps({"count": self.count, "left": self.remaining, "round": self.round}).encode()


def record_in(path: str, node: Node) -> LatchRecord:
    """Parse the data of the latch's znode. Raises CorruptNodeError."""
    try:
        fields = json.loads(node.data)
        return LatchRecord(int(fields["count"]), int(fields["left"]), int(fields["round"]), node.stat.version)
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, node.data) from None


class LatchCore:
    """In-process state of a latch, shared by all its threads."""

    def __init__(self, path: str, count: int, receipts: Receipts) -> None:
        self.path = path
        self.closed = f"{path}/closed"
        self.count = count
        self.wanted = self.parameters
        self.user: ParameterUser | None = None
        self.receipts = receipts

    @property
    def parameters(self) -> dict[str, Any]:
        """The initial count; see parameter_users.py."""
        return {"count": self.count}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.count = parameters["count"]

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the recorded count."""
        return {"count": record_in(self.path, node).count}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that record another count, with which the latch begins again."""
        count = parameters["count"]
        if node is None:
            create = Create(self.path, LatchRecord(count, count).data())
            return (create, Create(self.closed)) if count else (create,)
        record = LatchRecord(count, count, record_in(self.path, node).round + 1)
        change = setting(self.path, record.data(), node.stat.version)
        is_closed = await read(Exists(self.closed)) is not None
        if is_closed == (count > 0):
            return change
        return *change, Create(self.closed) if count else Delete(self.closed)

    async def tally(self) -> LatchRecord:
        """Return the current record."""
        while True:
            try:
                return self._checked(await read(GetData(self.path)))
            except NoNodeError:
                await self._make()

    async def _tally_now(self) -> LatchRecord:
        """Return the record even if our server lags behind: for a call that would otherwise do
        nothing.
        """
        _, node = await read_all(Sync(self.path), GetData(self.path))
        return await self.tally() if isinstance(node, NoNodeError) else self._checked(node)

    def _checked(self, node: Node) -> LatchRecord:
        tally = record_in(self.path, node)
        if tally.count != self.count:
            raise MismatchError("the count", self.path, tally.count, self.count)
        return tally

    async def _make(self) -> None:
        """Create the znodes."""
        await ensure(parent_of(self.path))
        nodes = [Create(self.path, LatchRecord(self.count, self.count).data()), Create(self.closed)]
        try:
            await Multi(tuple(nodes[: 2 if self.count else 1]))
        except (NodeExistsError, NoNodeError):
            return
        except INTERRUPTED:
            await Connected()

    async def count_down(self, steps: int = 1) -> int:
        """Count down by ``steps``, and open the latch at zero. Return the remaining count. Raises
        OutcomeUnknownError.
        """
        while True:
            tally = await self.tally()
            if tally.remaining == 0:
                tally = await self._tally_now()
            remaining = max(0, tally.remaining - steps)
            if tally.remaining == 0 or await self._write(tally, remaining, tally.round):
                return remaining

    async def try_set_count(self, count: int) -> bool:
        """Close an open latch, with this count. Return False if it was not open. Raises
        OutcomeUnknownError.
        """
        while True:
            tally = await self.tally()
            if tally.remaining > 0:
                tally = await self._tally_now()
            if tally.remaining > 0:
                return False
            if await self._write(tally, count, tally.round + 1):
                return True

    async def _write(self, tally: LatchRecord, remaining: int, round_: int) -> bool:
        """Set the remaining count. Return False if another client has changed it."""
        written = LatchRecord(tally.count, remaining, round_)
        operations: list[Operation] = [*setting(self.path, written.data(), tally.version)]
        if remaining == 0:
            operations.append(Delete(self.closed))
        elif tally.remaining == 0:
            operations.append(Create(self.closed))
        try:
            await self.receipts.commit(*operations)
            return True
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            await self._look_for_strangers(tally, error)
            return False

    async def _look_for_strangers(self, tally: LatchRecord, error: Exception) -> None:
        """Raise CorruptNodeError if the version was right: the two znodes contradict each other."""
        if not isinstance(error, BadVersionError) and (await self.tally()).version == tally.version:
            raise CorruptNodeError(self.closed, "there" if isinstance(error, NodeExistsError) else "nothing") from None

    async def wait(self) -> bool:
        """Wait until the count is zero, or was zero since the call began. Return False at the
        deadline.
        """
        begun: int | None = None
        missing: int | None = None
        try:
            while True:
                watch = Watch()
                closed, node = await read_all(GetData(self.closed, watch), GetData(self.path))
                if isinstance(node, NoNodeError):
                    await self._make()
                    continue
                tally = self._checked(node)
                begun = tally.round if begun is None else begun
                if tally.remaining == 0 or tally.round != begun:
                    return True
                if isinstance(closed, NoNodeError):
                    if tally.version == missing:
                        raise CorruptNodeError(self.closed, "nothing")
                    missing = tally.version  # closed again between the two reads, or deleted by another client
                elif await Wait(watch) is WakeReason.DEADLINE:
                    return False
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
