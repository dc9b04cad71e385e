"""Counter: a number that conditional writes change exactly once.

Source: ZooKeeper's conditional setData; recipes.txt, "Important Note About Error Handling".

The threads of one process change the number one at a time. What the process remembers of it
is a guess: the version decides.

Znodes:
  ``<path>``  data: the number in decimal digits, as in kazoo's Counter
"""

from __future__ import annotations

from typing import NamedTuple

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.receipts import Basis, Receipts
from distsync._protocols.state.versioned_value import Remembered, ValueCore
from distsync._protocols.steps import Node, Signal
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError, DeadlineError


class Known(NamedTuple):
    """The number at a version of the znode."""

    number: int
    version: int


class CounterCore:
    """In-process state of a counter, shared by all its threads."""

    def __init__(self, path: str, initial: int, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.value = ValueCore(path, b"%d" % initial, receipts)
        self.turns = LocalTurnQueue()
        self.known: Remembered[Known] = Remembered()

    @property
    def idle(self) -> bool:
        """Whether no thread is changing it."""
        return not self.turns.is_held

    def known_from(self, node: Node) -> Known:
        """Parse the znode. Raises CorruptNodeError."""
        try:
            return Known(int(node.data or b"0"), node.stat.version)
        except ValueError as error:
            raise_if_from_handler(error)
            raise CorruptNodeError(self.path, node.data) from None

    async def get(self, sync: bool = False) -> int:
        """Return the number; with ``sync``, no older than this call."""
        node = await (self.value.read_synced() if sync else self.value.read())
        return self.known_from(node).number

    async def add(self, amount: int) -> int:
        """Add ``amount``. Return the new number. Raises OutcomeUnknownError."""
        turn = Signal()
        try:
            await self._wait_for_turn(turn)
            while True:
                basis = await self.receipts.basis()
                known = self.known.get(basis) or self.known_from(await self.value.read())
                if await self._replace(known, known.number + amount, basis):
                    return known.number + amount
        finally:
            self.turns.pass_on(turn)

    async def compare_and_set(self, expected: int, number: int) -> bool:
        """Set the number if it is ``expected``. Return whether it was. Raises OutcomeUnknownError."""
        turn = Signal()
        try:
            await self._wait_for_turn(turn)
            while True:
                basis = await self.receipts.basis()
                known = self.known.get(basis)
                if known is None or known.number != expected:
                    known = self.known_from(await self.value.read_synced())
                    self.known.set(known, basis)
                if known.number != expected:
                    return False
                if await self._replace(known, number, basis):
                    return True
        finally:
            self.turns.pass_on(turn)

    async def set(self, number: int) -> None:
        """Set the number unconditionally. Raises OutcomeUnknownError."""
        turn = Signal()
        try:
            await self._wait_for_turn(turn)
            basis = await self.receipts.basis()
            self.known.set(None, basis)
            version = await self.value.set(encoded(number))
            self.known.set(None if version is None else Known(number, version), basis)
        finally:
            self.turns.pass_on(turn)

    async def _wait_for_turn(self, turn: Signal) -> None:
        """Wait until no other thread of this process changes the number. Raises DeadlineError."""
        if not await self.turns.wait(turn):
            raise DeadlineError(f"another change of {self.path} by this process")

    async def _replace(self, known: Known, number: int, basis: Basis) -> bool:
        self.known.set(None, basis)
        version = await self.value.replace(known.version, encoded(number), basis)
        if version is not None:
            self.known.set(Known(number, version), basis)
        return version is not None


def encoded(number: int) -> bytes:
    """Return the znode's data."""
    return str(number).encode()
