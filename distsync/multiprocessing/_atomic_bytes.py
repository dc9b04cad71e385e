"""A cell: the object that Value, Array and the containers of a Manager keep their data in.

Rules for this file: no znode; what the data mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject
from distsync._protocols.state.atomic_bytes import CellCore
from distsync.errors import NoNodeError, ObjectRemovedError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._protocols.steps import Node, Watch


class Cell(SharedObject):
    """Bytes that all who know the name share; each change is atomic, and seen by each read that begins after it."""

    _kind = "shared"

    def __init__(self, initial: bytes | None, name: str | None, client: Client | None, path: str | None) -> None:
        self._initial = initial
        super().__init__(name, client, path)

    @property
    def core(self) -> CellCore:
        """What the threads of this process know of it together."""
        return self._shared_state(self._make_core)

    def _make_core(self, path: str) -> CellCore:
        return CellCore(path, self._initial, self._receipts)

    def _do(self, protocol: Any) -> Any:
        try:
            return self._run(protocol)
        except NoNodeError:
            raise ObjectRemovedError(self.path) from None

    def make(self, data: bytes) -> None:
        """It is there, with these data if it was not. Cost: 1 request, 1 more for each part of its path that is new."""
        self._do(self.core.make(data))

    def read(self, watch: Watch | None = None) -> Node:
        """The data. Cost: 2 requests, 1 round trip."""
        node: Node = self._do(self.core.read(watch))
        return node

    def set(self, data: bytes) -> None:
        """The data are these, whatever they were. Cost: 1 request."""
        self._do(self.core.set(data))

    def change(self, change: Callable[[bytes], bytes | None]) -> None:
        """The data are what ``change`` makes of them. Cost: 1 request if this process changed them last, else 3."""
        self._do(self.core.change(change))
