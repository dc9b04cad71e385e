"""Gate: closed while its znode exists.

Source: recipes.txt, "Barriers" (steps 1 to 4).

Each closing creates a znode with a new czxid, so that a late waiter does not miss an opening. All
waiters watch one znode: only this kind of object may wake all of them at once.

Znodes:
  ``<path>``  exists while the gate is closed
"""

from __future__ import annotations

from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import ensure, parent_of, read
from distsync._protocols.steps import Create, Delete, Exists, GetData, Wait, WakeReason, Watch
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError, NodeExistsError, NoNodeError


class GateCore:
    """In-process state of a gate, shared by all its threads."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts

    async def is_open(self) -> bool:
        """Return whether the gate is open."""
        return await read(Exists(self.path)) is None

    async def close(self) -> bool:
        """Close the gate. Return False if it was closed."""
        while True:
            try:
                await self.receipts.commit(Create(self.path))
                return True
            except NodeExistsError:
                return False
            except NoNodeError:
                await ensure(parent_of(self.path))

    async def open(self) -> bool:
        """Open the gate. Return False if it was open."""
        try:
            await self.receipts.commit(Delete(self.path))
            return True
        except NoNodeError:
            return False

    async def wait(self) -> bool:
        """Wait until the gate is open, or was open since the call began. Return False at the deadline."""
        begun: int | None = None
        try:
            while True:
                watch = Watch()
                try:  # steps 1 and 2, with getData: it leaves no watch on a znode that does not exist
                    node = await read(GetData(self.path, watch))
                except NoNodeError:
                    return True
                if begun is not None and node.stat.czxid != begun:
                    return True
                begun = node.stat.czxid
                if await Wait(watch) is WakeReason.DEADLINE:  # step 3; step 4 is the loop
                    return False
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
