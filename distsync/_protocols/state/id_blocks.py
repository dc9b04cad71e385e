"""IdGenerator: ids are taken in blocks; the version of a znode is the number of the next block.

Source: the version in a znode's Stat, which each setData increments and returns.

A block whose number was lost is used by no process: its ids are skipped, as are the remaining ids
of a process that exits. After a lost connection, the servers may have been restored from a backup,
and another process may have taken the same block: the remaining ids are only used if no block was
taken since. Because a version is a 32-bit number, there are eras: the next one begins
before one is used up.

A generator that was destroyed begins again. Another process notices it when it takes a block: the
znode has another czxid, or none, and the basis (receipts.py) has changed, though the connection was
not lost, so that the servers were neither wiped nor restored.

Znodes:
  ``<path>``        data: ``{"block": n, "start": first id}``; after a change of the parameters
                    ``{"block": n, "start": origin, "requested": start}``
  ``<path>/<era>``  version: the number of blocks taken
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.receipts import Basis, Operation, Receipts
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, read, read_all
from distsync._protocols.steps import (
    Children,
    Connected,
    Create,
    Delete,
    GetData,
    Listing,
    Node,
    SessionInfo,
    SetData,
    Signal,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError, DeadlineError, MismatchError, NoNodeError

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

#: Number of blocks of an era: the versions greater than 0.
ERA_SIZE = 2**31
#: Version from which a process moves on to the next era; the blocks left give other processes time
#: to notice.
LAST = ERA_SIZE - 2**20


class IdsCore:
    """In-process state of a generator, shared by all its threads."""

    def __init__(self, path: str, block: int, start: int, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.block = block
        self.start = start
        self.wanted = self.parameters
        self.user: ParameterUser | None = None
        #: The id at which the number 0 would begin; ``start``, unless the parameters were changed.
        self.origin = start
        self.era: int | None = None
        self.used = False
        self.next = self.end = 0
        #: The connection over which the block was taken or proven, and the write that took it: its zxid and time.
        self.connection: SessionInfo | None = None
        self.written = (0, 0)
        self.last_block = -1
        #: The basis over which the last block was taken.
        self.basis: Basis | None = None
        #: The czxid of the era's znode; 0 if unknown.
        self.czxid = 0
        self.turns = LocalTurnQueue()

    @property
    def idle(self) -> bool:
        """Whether there are no ids left over, and no caller is waiting."""
        return self.next == self.end and not self.turns.is_held

    def begin_again(self) -> None:
        """Skip the ids that are left: the generator was destroyed."""
        self.era, self.used, self.last_block, self.czxid = None, False, -1, 0
        self.next = self.end

    @property
    def parameters(self) -> dict[str, Any]:
        """Block and start; see parameter_users.py."""
        return {"block": self.block, "start": self.start}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.block, self.start = parameters["block"], parameters["start"]
        self.era = None  # it may have been changed, and back

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return block and start in the record."""
        block, start, _ = parameters_in(self.path, node)
        return {"block": block, "start": start}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that record another block and start, in an era of their own.

        The first id is at least the next one so far. The former era is deleted, so that a process that
        still knows it takes no block of it.
        """
        block, start = parameters["block"], parameters["start"]
        if node is None:
            return Create(self.path, record_of(block, start, start)), Create(self._path(0))
        old_block, _, origin = parameters_in(self.path, node)
        listing = await read(Children(self.path))
        eras = sorted(int(name) for name in listing.names if name.isdigit())
        era, taken = eras[-1] if eras else -1, 0
        if eras:
            stat = (await read(GetData(self._path(era)))).stat
            taken = stat.version if stat.version >= 0 else ERA_SIZE
        first = max(start, origin + (max(era, 0) * ERA_SIZE + taken) * old_block)
        record = record_of(block, start, first - (era + 1) * ERA_SIZE * block)
        deletions = [Delete(self._path(each), taken if each == era else -1) for each in eras]
        return SetData(self.path, record, node.stat.version), *deletions, Create(self._path(era + 1))

    async def take(self, count: int = 1) -> list[int]:
        """Return ``count`` ids that are unique among all processes."""
        taken: list[int] = []
        while True:
            session = await Connected()
            if session != self.connection and self.next < self.end:
                await self._prove_block(session)
            few = min(count - len(taken), self.end - self.next)
            taken += range(self.next, self.next + few)
            self.next += few
            if len(taken) == count:
                return taken
            await self._refill()

    async def _refill(self) -> None:
        """Take a block if no ids are left. Only one thread does so at a time."""
        turn = Signal()
        try:
            if not await self.turns.wait(turn):
                raise DeadlineError(f"taking ids of {self.path}")
            if self.next == self.end:
                number = await self._take_block()
                self.next = self.origin + number * self.block
                self.end = self.next + self.block
        finally:
            self.turns.pass_on(turn)

    async def _prove_block(self, session: SessionInfo) -> None:
        """Skip the ids left after a lost connection, unless the znode still is as we wrote it."""
        written = self.written
        (node,) = await read_all(GetData(self._path(await self._present())))
        if self.written == written:  # no other thread has taken a block since
            self.connection = session
            if not isinstance(node, Node) or (node.stat.mzxid, node.stat.mtime) != written:
                self.next = self.end

    async def _take_block(self) -> int:
        """Take a block and return its number."""
        while True:
            basis = await self.receipts.basis()
            era = await self._present()
            session = await Connected()
            try:
                stat = await SetData(self._path(era))
            except INTERRUPTED:
                await Connected()
                continue
            except NoNodeError:
                if self.used and not await self._is_destroyed(basis):
                    # other processes would start again, with the same ids
                    raise CorruptNodeError(self.path, "nothing") from None
                self.begin_again()
                continue
            if self.czxid not in (0, stat.czxid) and await self._is_destroyed(basis):
                self.begin_again()  # this block is skipped: another block and start may hold now
                continue
            self.used, self.czxid, version = True, stat.czxid, stat.version
            if not 0 < version < LAST:
                await ensure(self._path(era + 1))
                self.era, self.czxid = era + 1, 0
            if version > 0:
                number = era * ERA_SIZE + version - 1
                if number <= self.last_block:  # the servers were restored from a backup, or wiped and used again
                    raise CorruptNodeError(self.path, f"block {number}, though block {self.last_block} was taken")
                self.last_block, self.connection, self.written = number, session, (stat.mzxid, stat.mtime)
                self.basis = basis
                return number

    async def _is_destroyed(self, basis: Basis) -> bool:
        """Return whether the generator was destroyed since the last block was taken."""
        before = self.basis
        if before is None or before.session != basis.session:
            return False
        return before != basis or await self.receipts.is_destroyed_since(basis)

    def _path(self, era: int) -> str:
        return f"{self.path}/{era:010d}"

    async def _present(self) -> int:
        """Return the current era, as far as known."""
        while self.era is None:
            node, listing = await read_all(GetData(self.path), Children(self.path))
            if isinstance(node, Node):
                self._check(node)
            eras = [int(name) for name in listing.names if name.isdigit()] if isinstance(listing, Listing) else []
            if eras:
                self.era = max(eras)
            else:
                await ensure(self.path, record_of(self.block, self.start, self.start))
                await ensure(self._path(0))
        return self.era

    def _check(self, node: Node) -> None:
        block, start, self.origin = parameters_in(self.path, node)
        if block != self.block:
            raise MismatchError("the block", self.path, block, self.block)
        if start != self.start:
            raise MismatchError("the start", self.path, start, self.start)


def record_of(block: int, start: int, origin: int) -> bytes:
    """Return the record. An earlier version of distsync refuses one whose origin is another one than its start."""
    fields = {"block": block, "start": origin}
    return json.dumps(fields if origin == start else {**fields, "requested": start}).encode()


def parameters_in(path: str, node: Node) -> tuple[int, int, int]:
    """Return block, start and origin in the record. Raises CorruptNodeError."""
    try:
        fields = json.loads(node.data)
        block, origin = int(fields["block"]), int(fields["start"])
        return block, int(fields.get("requested", origin)), origin
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, node.data) from None
