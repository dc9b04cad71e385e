"""Counter: a number that is added to by who knows its version, exactly once.

Source: ZooKeeper's conditional setData; recipes.txt, "Important Note About Error Handling".

Rules for this file: pure; the state of a CounterCore is shared by the threads of one process, which change the number
one after the other. What the process remembers is a guess: only the version decides.

Picture: ``<path>``  data = the number in decimal digits, as kazoo's Counter has it
"""

from __future__ import annotations

from typing import NamedTuple

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.receipts import Receipts
from distsync._protocols.state.versioned_value import ValueCore
from distsync._protocols.steps import Node
from distsync.errors import CorruptNodeError


class Known(NamedTuple):
    """What the number was at a version of the znode."""

    number: int
    version: int


class CounterCore:
    """What the threads of one process know together about one counter."""

    def __init__(self, path: str, initial: int, receipts: Receipts) -> None:
        self.path = path
        self.value = ValueCore(path, b"%d" % initial, receipts)
        self.turns = LocalTurnQueue()
        self.known: Known | None = None

    @property
    def idle(self) -> bool:
        """Nobody changes it."""
        return not self.turns.taken

    def known_from(self, node: Node) -> Known:
        """What this znode says. Raises CorruptNodeError."""
        try:
            return Known(int(node.data or b"0"), node.stat.version)
        except ValueError:
            raise CorruptNodeError(self.path, node.data) from None

    async def get(self, sync: bool = False) -> int:
        """The number; ``sync``: no older than this call."""
        node = await (self.value.read_synced() if sync else self.value.read())
        return self.known_from(node).number

    async def add(self, amount: int) -> int:
        """The number is so much greater. Returns it; raises OutcomeUnknownError."""
        await self.turns.wait()
        try:
            while True:
                known = self.known or self.known_from(await self.value.read())
                if await self._replace(known, known.number + amount):
                    return known.number + amount
        finally:
            self.turns.pass_on()

    async def compare_and_set(self, expected: int, number: int) -> bool:
        """The number is this, if it was ``expected``. Raises OutcomeUnknownError."""
        await self.turns.wait()
        try:
            known = self.known
            while True:
                if known is None or known.number != expected:
                    known = self.known = self.known_from(await self.value.read_synced())
                if known.number != expected:
                    return False
                if await self._replace(known, number):
                    return True
                known = None
        finally:
            self.turns.pass_on()

    async def set(self, number: int) -> None:
        """The number is this, whatever it was. Raises OutcomeUnknownError."""
        await self.turns.wait()
        try:
            self.known = None
            version = await self.value.set(encoded(number))
            self.known = None if version is None else Known(number, version)
        finally:
            self.turns.pass_on()

    async def _replace(self, known: Known, number: int) -> bool:
        self.known = None
        version = await self.value.replace(known.version, encoded(number))
        if version is not None:
            self.known = Known(number, version)
        return version is not None


def encoded(number: int) -> bytes:
    """The znode's data."""
    return str(number).encode()
