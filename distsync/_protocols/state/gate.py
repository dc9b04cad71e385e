"""Gate: closed as long as its znode is there.

Source: recipes.txt, "Barriers" (steps 1 to 4).

Rules for this file: pure; a wake is a hint, what counts is which znode is there: each closing makes one with a new
czxid, so that an opening is not missed by who looks late.

All who wait watch one znode: of all objects only this kind may wake everybody at once.

Picture: ``<path>``  is there: the gate is closed
"""

from __future__ import annotations

from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import ensure, parent_of, read
from distsync._protocols.steps import Create, Delete, Exists, GetData, Wait, WakeReason, Watch
from distsync.errors import DeadlineError, NodeExistsError, NoNodeError


class GateCore:
    """What the threads of one process know together about one gate."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts

    async def is_open(self) -> bool:
        """Whether the gate is open."""
        return await read(Exists(self.path)) is None

    async def close(self) -> bool:
        """The gate is closed. False: it was before."""
        while True:
            try:
                await self.receipts.commit(Create(self.path))
                return True
            except NodeExistsError:
                return False
            except NoNodeError:
                await ensure(parent_of(self.path))

    async def open(self) -> bool:
        """The gate is open. False: it was before."""
        try:
            await self.receipts.commit(Delete(self.path))
            return True
        except NoNodeError:
            return False

    async def wait(self) -> bool:
        """True once the gate is open, or was since the call began; False at the deadline."""
        begun: int | None = None
        try:
            while True:
                watch = Watch()
                try:  # steps 1 and 2, by getData: it leaves no watch behind on a znode that is not there
                    node = await read(GetData(self.path, watch))
                except NoNodeError:
                    return True
                if begun is not None and node.stat.czxid != begun:
                    return True
                begun = node.stat.czxid
                if await Wait(watch) is WakeReason.DEADLINE:  # step 3; step 4 is the loop
                    return False
        except DeadlineError:
            return False
