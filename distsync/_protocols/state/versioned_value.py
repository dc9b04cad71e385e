"""Value: one znode's data, which is changed only by who knows its version, or by who says so.

Source: ZooKeeper's conditional setData; recipes.txt, "Important Note About Error Handling".

Rules for this file: pure; data are bytes here. A version is the znode's own, a 32-bit number that wraps.

Picture: ``<path>``  data = the value
"""

from __future__ import annotations

from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import ensure, read, read_all
from distsync._protocols.steps import GetData, Node, SetData, Stat, Sync, Wait, WakeReason, Watch
from distsync._protocols.wait_queue import sequence_distance
from distsync.errors import BadVersionError, DeadlineError, NoNodeError

#: The version that stands for "any" in a request: a znode must not rest there, or a conditional write is none.
ANY = -1


def setting(path: str, data: bytes, version: int) -> tuple[SetData, ...]:
    """Sets the data if the znode has this version; where the next one would be ANY, it goes one further."""
    if version == ANY - 1:
        return (SetData(path, data, version), SetData(path, data))
    return (SetData(path, data, version),)


class ValueCore:
    """What the threads of one process know together about one value."""

    def __init__(self, path: str, initial: bytes, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.receipts = receipts

    async def read(self, watch: Watch | None = None) -> Node:
        """The value, as our server knows it; made with its initial data if it was not there."""
        while True:
            try:
                return await read(GetData(self.path, watch))
            except NoNodeError:
                await ensure(self.path, self.initial)

    async def read_synced(self) -> Node:
        """The value, no older than this call."""
        while True:
            _, node = await read_all(Sync(self.path), GetData(self.path))
            if isinstance(node, Node):
                return node
            await ensure(self.path, self.initial)

    async def set(self, data: bytes) -> int | None:
        """The value is this, whatever it was. Returns its version; None if the answer was lost, and others may have
        changed it since. Raises OutcomeUnknownError."""
        while True:
            try:
                outcome = await self.receipts.commit(SetData(self.path, data))
            except NoNodeError:
                await ensure(self.path, self.initial)
                continue
            if outcome.results is None:
                return None
            stat: Stat = outcome.results[0]
            return stat.version

    async def replace(self, version: int, data: bytes) -> int | None:
        """The value is this, if it had this version. Returns the new one; None: it had another, and nothing is
        changed. Raises OutcomeUnknownError."""
        operations = setting(self.path, data, version)
        try:
            outcome = await self.receipts.commit(*operations)
        except (BadVersionError, NoNodeError):
            return None
        if outcome.results is not None:
            stat: Stat = outcome.results[-1]
            return stat.version
        return sequence_distance(version + len(operations), 0)

    async def changed(self, version: int | None) -> Node | None:
        """The value once it has a later version than ``version`` (None: than when the call began); None at the
        deadline. A change that was undone is a change."""
        made: int | None = None
        try:
            while True:
                watch = Watch()
                node = await self.read(watch)
                version = node.stat.version if version is None else version
                made = made or node.stat.czxid
                if sequence_distance(node.stat.version, version) > 0 or node.stat.czxid != made:
                    return node
                if await Wait(watch) is WakeReason.DEADLINE:
                    return None
        except DeadlineError:
            return None
