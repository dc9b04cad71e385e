"""Gate.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_timeout
from distsync._protocols.state.gate import GateCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class Gate(SharedObject):
    """A gate that one closes and opens, and many wait at. It is open until somebody closes it.

    Cost: wait: 1 request, and 1 more where it is closed; close, open, is_open: 1.
    Source: recipes.txt, Barriers; shaped as ``threading.Event``.

    Znodes: ``<namespace>/gate/<name>``, there as long as the gate is closed.

    >>> gate = Gate(name="maintenance")
    >>> gate.close()
    True
    >>> gate.wait(timeout=0)
    False
    >>> gate.open()
    True
    """

    __module__ = "distsync.recipes"
    _kind = "gate"

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)

    @property
    def _core(self) -> GateCore:
        return self._shared_state(partial(GateCore, receipts=self._receipts))

    @property
    def is_open(self) -> bool:
        """Whether the gate is open.

        Cost: 1 request.
        """
        return bool(self._read(self._core.is_open()))

    def close(self) -> bool:
        """The gate is closed, and stays so when this process ends: who comes waits.

        Returns: True; False if it was closed before.
        Raises: OutcomeUnknownError when the session ended in this moment and nobody can know.
        Cost: 1 request.
        """
        return bool(self._run(self._core.close()))

    def open(self) -> bool:
        """The gate is open, and all who wait go on, also if it is closed again right after.

        Returns: True; False if it was open before.
        Raises: as close.
        Cost: 1 request; 1 event to each client that waits.
        """
        return bool(self._run(self._core.open()))

    def wait(self, timeout: float | None = None) -> bool:
        """The gate is open, or was since the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        What others have done shows as soon as our server knows it: one that was closed just now may let pass. Who was
        told that it is closed calls ``client.sync()`` first.
        Cost: 1 request, and no watch, if it is open; else 1 watch and 1 request more for each change.
        Source: recipes.txt, Barriers, steps 1 to 4.
        """
        seconds = validate_timeout(timeout)
        return bool(self._run(self._core.wait(), seconds))

    def __repr__(self) -> str:
        state = {True: "open", False: "closed"}.get(repr_state(self, lambda: self._core.is_open()), "unknown")
        return f"<{type_name(self)} at {id(self):#x}: {state}>"
