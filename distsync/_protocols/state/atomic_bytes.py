"""Cell: the data of one znode, changed by a function. No concurrent change is lost.

Source: ZooKeeper's conditional setData.

What a process remembers of its last write is a guess: the version decides. A function that makes no
change, or raises, is called again with the data as the leader of the ensemble has them.

Znodes:
  ``<path>``  data: defined by the caller
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._protocols.receipts import Basis, Operation, Receipts
from distsync._protocols.retries import call_user_function, ensure, read_all
from distsync._protocols.state.versioned_value import Remembered, ValueCore, setting
from distsync._protocols.steps import Call, Connected, Create, GetData, Node, Sync, Watch

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

Change = Callable[[bytes], "bytes | None"]
"""A function from the current data to the new data; None for no change. It may be called several
times, without the mutex.
"""


class CellCore:
    """In-process state of a cell, shared by all its threads.

    If ``initial`` is None, a cell that does not exist is an error; otherwise it is created with
    these bytes.
    """

    def __init__(self, path: str, initial: bytes | None, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.value = ValueCore(path, initial or b"", receipts)
        self.known: Remembered[Node] = Remembered()
        #: Size in bytes at the last read.
        self.size: int | None = None
        #: Number of writes that this process has started or ended. A copy from before a write may
        #: be old, even if its watch has not fired.
        self.writes = 0

    async def make(self, data: bytes) -> None:
        """Create the cell with ``data`` if it does not exist."""
        await ensure(self.path, data)

    async def read(self, watch: Watch | None = None) -> Node:
        """Return the current data. Raises NoNodeError if there is neither a cell nor an initial value."""
        while True:
            basis = self.value.receipts.known_basis(await Connected())
            _, node = await read_all(Sync(self.path), GetData(self.path, watch))
            if isinstance(node, Node):
                if basis is not None:
                    self.known.set(node, basis)
                self.size = len(node.data)
                return node
            await self._make_or_raise(node)

    async def _make_or_raise(self, missing: BaseException) -> None:
        if self.initial is None:
            raise missing
        await ensure(self.path, self.initial)

    async def set(self, data: bytes) -> None:
        """Set the data unconditionally; only for cells with an initial value. Raises
        OutcomeUnknownError.
        """
        self.writes += 1
        try:
            await self.value.set(data)
        finally:
            self.known = Remembered()
            self.writes += 1

    async def change(self, change: Change) -> None:
        """Replace the data with the result of ``change``. Raises its exceptions, and
        OutcomeUnknownError.
        """
        basis = await self.value.receipts.basis()
        node = self.known.get(basis)
        while True:
            fresh = node is None
            if node is None:
                node = await self.read()
            data, error = await Call(partial(call_user_function, change, node.data))
            try:
                if error is not None and fresh:
                    raise error
            finally:
                del error  # its traceback refers to this frame
            if data is not None and await self._replace(node, data, basis):
                return
            if data is None and fresh:
                return
            node, basis = None, await self.value.receipts.basis()

    async def _replace(self, node: Node, data: bytes, basis: Basis) -> bool:
        """Set the data if they are still those of ``node``. Return whether they were."""
        self.known = Remembered()
        self.writes += 1
        try:
            version = await self.value.replace(node.stat.version, data, basis)
        finally:
            self.writes += 1
        if version is not None:
            self.known.set(Node(data, node.stat._replace(version=version)), basis)
        return version is not None


SIZE = "size in bytes"


class SizedCellCore(CellCore):
    """In-process state of a cell whose data has a fixed size."""

    def __init__(self, path: str, initial: bytes, receipts: Receipts) -> None:
        super().__init__(path, initial, receipts)
        self.parameters = {SIZE: len(initial)}
        self.wanted = self.parameters
        self.user: ParameterUser | None = None

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the size of the data."""
        return {SIZE: len(node.data)}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that replace the data with the initial one."""
        initial = self.initial or b""
        return (Create(self.path, initial),) if node is None else setting(self.path, initial, node.stat.version)
