"""Cell: bytes in one znode, in which Value, Array and the containers of a Manager keep their data."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject
from distsync._protocols.state.atomic_bytes import CellCore
from distsync.errors import NoNodeError, ObjectRemovedError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._protocols.steps import Node, Watch


class Cell(SharedObject):
    """Bytes shared by all processes that use the name.

    Each change is atomic, and visible to each read that begins after it.

    Args:
        initial: The bytes of a new znode. None: the znode must exist.
        name: Name of the cell, shared by all processes that use it. Without a name, a cell assigned
            at module or class level is named after its variable; any other cell gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the cell's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.
    """

    _kind = "shared"
    _has_versions = True
    _needs_name = False  # passed to children

    def __init__(self, initial: bytes | None, name: str | None, client: Client | None, path: str | None) -> None:
        self._initial = initial
        super().__init__(name, client, path)

    @property
    def core(self) -> CellCore:
        """State of the cell that all threads of this process share."""
        return self._shared_state(self._make_core)

    def _make_core(self, path: str) -> CellCore:
        return CellCore(path, self._initial, self._receipts)

    def _do(self, core: CellCore, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        try:
            return self._ask(self._protocol(core, protocol))
        except NoNodeError:
            raise ObjectRemovedError(self.path) from None

    def _protocol(self, core: CellCore, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> Coroutine[Any, Any, Any]:
        return protocol()

    def make(self, data: bytes) -> None:
        """Create the znode with these bytes, unless it exists.

        Args:
            data: The bytes of a new znode.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the znode may
                or may not be created. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        core = self.core
        self._do(core, partial(core.make, data))

    def read(self, watch: Watch | None = None) -> Node:
        """Return the bytes, including all writes that were completed before.

        Args:
            watch: A watch to set on the znode; None sets none.

        Returns:
            The znode's data and stat.

        Raises:
            ObjectRemovedError: The znode does not exist, and the cell has no initial bytes.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self.core
        node: Node = self._do(core, partial(core.read, watch))
        return node

    def set(self, data: bytes) -> None:
        """Replace the bytes.

        Args:
            data: The new bytes.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the bytes may or may not
                have been replaced.
            DeadlineError: No server answered within the client's default timeout, and the bytes may
                or may not be replaced. Subclass of TimeoutError.

        Note:
            Costs 1 request.
        """
        core = self.core
        self._do(core, partial(core.set, data))

    def change(self, change: Callable[[bytes], bytes | None]) -> None:
        """Replace the bytes with the result of a function of them.

        Args:
            change: Called with the current bytes; returns the new ones, or None to leave them. It
                may be called several times.

        Raises:
            ObjectRemovedError: The znode does not exist, and the cell has no initial bytes.
            OutcomeUnknownError: The session ended before the reply, and the bytes may or may not
                have been replaced.
            DeadlineError: No server answered within the client's default timeout, and the bytes may
                or may not be replaced. Subclass of TimeoutError.

        Note:
            Costs 1 request if this process made the last change, otherwise 3.
        """
        core = self.core
        self._do(core, partial(core.change, change))
