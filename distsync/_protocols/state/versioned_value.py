"""Value: the data of one znode, written conditionally on its version or unconditionally.

Source: ZooKeeper's conditional setData; recipes.txt, "Important Note About Error Handling".

The version is the znode's own, a 32-bit number that wraps. It does not identify the data once the
servers have been wiped, or restored from a backup, which may contain the session, or once the znode
was destroyed. A remembered version is therefore forgotten with its `Basis` (`Remembered`), and a
write that depends on it requires the same one.

Znodes:
  ``<path>``  data: the value
"""

from __future__ import annotations

from typing import Generic, TypeVar

from distsync._protocols.receipts import Abandoned, Basis, Receipts
from distsync._protocols.retries import ensure, read, read_all
from distsync._protocols.steps import (
    GetData,
    Node,
    SetData,
    Stat,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import sequence_distance
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import BadVersionError, DeadlineError, NoNodeError

#: The version that means "any" in a request. A znode must not stay at it, or a conditional write
#: would be unconditional.
ANY = -1
#: The limits of a version: 32 bits in a request.
MIN_VERSION, MAX_VERSION = -(2**31), 2**31 - 1

T = TypeVar("T")


class Remembered(Generic[T]):
    """What a process has read or written, with its version.

    Its basis is that of the start of the call: what was read after a later one is merely read again.
    """

    def __init__(self) -> None:
        self._value: T | None = None
        self._basis: Basis | None = None

    def get(self, basis: Basis) -> T | None:
        """Return the value, or None if there is none of this basis."""
        return self._value if self._basis == basis else None

    def set(self, value: T | None, basis: Basis) -> None:
        self._value, self._basis = value, basis


def setting(path: str, data: bytes, version: int) -> tuple[SetData, ...]:
    """Return the operations that set the data if the znode has this version. A second write skips the
    version ANY.
    """
    if version == ANY - 1:
        return (SetData(path, data, version), SetData(path, data))
    return (SetData(path, data, version),)


class ValueCore:
    """In-process state of a value, shared by all its threads."""

    def __init__(self, path: str, initial: bytes, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.receipts = receipts

    async def read(self, watch: Watch | None = None) -> Node:
        """Return the value as our server has it. Creates it with its initial data if necessary."""
        while True:
            try:
                return await read(GetData(self.path, watch))
            except NoNodeError:
                await ensure(self.path, self.initial)

    async def read_synced(self) -> Node:
        """Return the value, no older than this call."""
        while True:
            _, node = await read_all(Sync(self.path), GetData(self.path))
            if isinstance(node, Node):
                return node
            await ensure(self.path, self.initial)

    async def read_for_update(self, *, sync: bool) -> tuple[Node, Basis]:
        """Return the value, and its basis, for `replace`."""
        basis = await self.receipts.basis()
        return await (self.read_synced() if sync else self.read()), basis

    async def set(self, data: bytes) -> int | None:
        """Set the value unconditionally.

        Returns its version; None if the reply was lost, so that it may have changed since. Raises
        OutcomeUnknownError.
        """
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

    async def replace(self, version: int, data: bytes, basis: Basis | None = None) -> int | None:
        """Set the value if it has this version. Return the new version; None if it had another. Raises
        OutcomeUnknownError.

        ``basis`` is what the version depends on. None is also returned if it has changed: the
        version may belong to another value now.
        """
        operations = setting(self.path, data, version)
        try:
            outcome = await self.receipts.commit(*operations, basis=basis)
        except (BadVersionError, NoNodeError, Abandoned):
            return None
        if outcome.results is not None:
            stat: Stat = outcome.results[-1]
            return stat.version
        return sequence_distance(version + len(operations), 0)

    async def changed(self, version: int | None) -> Node | None:
        """Wait for a version later than ``version``, or than the current one if None. Return None at
        the deadline.

        A change that was reverted is a change.
        """
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
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None
