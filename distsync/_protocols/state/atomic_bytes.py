"""Cell: one znode's data, changed by a function of what it is; of two who change it at once neither change is lost.

Source: ZooKeeper's conditional setData.

Rules for this file: pure; data are bytes here. What the process remembers of the last write is a guess: only the
version decides, and a function that wants no change, or refuses one, is shown the data as the leader knows them.

Picture: ``<path>``  data = whatever the face stores
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import attempted, ensure, read_all
from distsync._protocols.state.versioned_value import ValueCore
from distsync._protocols.steps import Call, GetData, Node, Sync, Watch

Change = Callable[[bytes], "bytes | None"]
"""From the data there are to those there shall be; None: no change. May be called several times, with no mutex held."""


class CellCore:
    """In-process state of a cell, shared by all its threads.

    If ``initial`` is None, a cell that does not exist is an error; otherwise it is created with these bytes.
    """

    def __init__(self, path: str, initial: bytes | None, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.value = ValueCore(path, initial or b"", receipts)
        self.known: Node | None = None
        #: How many bytes it had when this process read it last.
        self.size: int | None = None
        #: How often this process has begun or ended a write: a copy from before may be old, whatever its watch says.
        self.writes = 0

    async def make(self, data: bytes) -> None:
        """The cell is there. ``data`` counts only if it is made now."""
        await ensure(self.path, data)

    async def read(self, watch: Watch | None = None) -> Node:
        """The data, no older than this call. Raises NoNodeError where there is no initial value."""
        while True:
            _, node = await read_all(Sync(self.path), GetData(self.path, watch))
            if isinstance(node, Node):
                self.known, self.size = node, len(node.data)
                return node
            await self._make_or_raise(node)

    async def _make_or_raise(self, missing: BaseException) -> None:
        if self.initial is None:
            raise missing
        await ensure(self.path, self.initial)

    async def set(self, data: bytes) -> None:
        """The data are these, whatever they were; only for cells with an initial value. Raises OutcomeUnknownError."""
        self.writes += 1
        try:
            await self.value.set(data)
        finally:
            self.known = None
            self.writes += 1

    async def change(self, change: Change) -> None:
        """The data are what ``change`` makes of them. Raises what it raises, and OutcomeUnknownError."""
        node = self.known
        while True:
            fresh = node is None
            if node is None:
                node = await self.read()
            data, error = await Call(partial(attempted, change, node.data))
            try:
                if error is not None and fresh:
                    raise error
            finally:
                del error  # its traceback leads here
            if data is not None and await self._replace(node, data):
                return
            if data is None and fresh:
                return
            node = None

    async def _replace(self, node: Node, data: bytes) -> bool:
        """Whether the data are these; False: they were others than we thought."""
        self.known = None
        self.writes += 1
        try:
            version = await self.value.replace(node.stat.version, data)
        finally:
            self.writes += 1
        if version is not None:
            self.known = Node(data, node.stat._replace(version=version))
        return version is not None
