"""IdGenerator: ids by blocks; the version of a znode is the number of the next block.

Source: the counter in a znode's Stat: each setData gets another version, and its answer says which.

Rules for this file: pure; the state of an IdsCore is shared by the threads of one process. A block whose number did
not arrive is nobody's: its ids are skipped, as are those of a process that ends.

Since a version is a 32-bit number, there are eras: before one is used up, the next one begins.

Picture: ``<path>``        data = ``{"block": n, "start": first id}``
         ``<path>/<era>``  its version = blocks taken
"""

from __future__ import annotations

import json

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, read_all
from distsync._protocols.steps import Children, Connected, GetData, Listing, Node, SetData
from distsync.errors import CorruptNodeError, DeadlineError, MismatchError, NoNodeError

#: Blocks of an era: the versions above 0.
ERA_SIZE = 2**31
#: From this version on who takes a block goes on in the next era; the others have so many blocks to notice.
LAST = ERA_SIZE - 2**20


class IdsCore:
    """What the threads of one process know together about one generator."""

    def __init__(self, path: str, block: int, start: int) -> None:
        self.path = path
        self.block = block
        self.start = start
        self.era: int | None = None
        self.used = False
        self.next = self.end = 0
        self.turns = LocalTurnQueue()

    @property
    def idle(self) -> bool:
        """It has no ids left over, and nobody asks for any."""
        return self.next == self.end and not self.turns.taken

    async def take(self, count: int = 1) -> list[int]:
        """So many ids that nobody else has or will have."""
        taken: list[int] = []
        while True:
            few = min(count - len(taken), self.end - self.next)
            taken += range(self.next, self.next + few)
            self.next += few
            if len(taken) == count:
                return taken
            await self._refill()

    async def _refill(self) -> None:
        """There are ids. One thread asks for them."""
        if not await self.turns.wait():
            raise DeadlineError(f"ids of {self.path}")
        try:
            if self.next == self.end:
                number = await self._take_block()
                self.next = self.start + number * self.block
                self.end = self.next + self.block
        finally:
            self.turns.pass_on()

    async def _take_block(self) -> int:
        """The number of a block that is ours."""
        while True:
            era = await self._present()
            try:
                version = (await SetData(self._path(era))).version
            except INTERRUPTED:
                await Connected()
                continue
            except NoNodeError:
                if self.used:  # others would begin anew, with the same ids
                    raise CorruptNodeError(self.path, "nothing") from None
                self.era = None
                continue
            self.used = True
            if not 0 < version < LAST:
                await ensure(self._path(era + 1))
                self.era = era + 1
            if version > 0:
                return era * ERA_SIZE + version - 1

    def _path(self, era: int) -> str:
        return f"{self.path}/{era:010d}"

    async def _present(self) -> int:
        """The era that we are in, as far as we know."""
        while self.era is None:
            node, listing = await read_all(GetData(self.path), Children(self.path))
            if isinstance(node, Node):
                self._check(node)
            eras = [int(name) for name in listing.names if name.isdigit()] if isinstance(listing, Listing) else []
            if eras:
                self.era = max(eras)
            else:
                await ensure(self.path, json.dumps({"block": self.block, "start": self.start}).encode())
                await ensure(self._path(0))
        return self.era

    def _check(self, node: Node) -> None:
        try:
            fields = json.loads(node.data)
            block, start = int(fields["block"]), int(fields["start"])
        except DECODE_ERRORS:
            raise CorruptNodeError(self.path, node.data) from None
        if block != self.block:
            raise MismatchError("the block", self.path, block, self.block)
        if start != self.start:
            raise MismatchError("the start", self.path, start, self.start)
