"""Gate: a barrier that one process closes and opens, and at which many wait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._objects.base import SharedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import refuse_positional, validate_timeout
from distsync._protocols.state.gate import GateCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class Gate(SharedObject):
    """A gate that any process closes and opens, and at which many wait while it is closed.

    A gate that was never closed is open. It stays closed when the process that closed it exits.

    Args:
        name: Name of the gate, shared by all processes that use it. Without a name, a gate
            assigned at module or class level is named after its variable; any other gate gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the gate's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `wait` costs 1 request, and 1 more if the gate is closed. `close`, `open` and `is_open` cost
        1 each.

        Znodes: ``<namespace>/gate/<name>``, which exists while the gate is closed.

        Source: ZooKeeper recipes, "Barriers"; modelled on ``threading.Event``.

    Example:
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
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        refuse_positional(self, _)
        super().__init__(name, client, path, acl)

    @property
    def _core(self) -> GateCore:
        return self._shared_state(partial(self._with_receipts, GateCore))

    @property
    def is_open(self) -> bool:
        """Whether the gate is open.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 1 request.
        """
        return bool(self._ask(self._core.is_open()))

    def close(self, *, timeout: float | None = None) -> bool:
        """Close the gate, so that arriving threads wait.

        It stays closed when this process exits.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if this call closed the gate; False if it was already closed.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the gate may or may not
                have been closed.
            DeadlineError: No server answered in time, and the gate may or may not be closed.
                Subclass of TimeoutError.

        Note:
            Costs 1 request.
        """
        return bool(self._ask(self._core.close(), timeout))

    def open(self, *, timeout: float | None = None) -> bool:
        """Open the gate and wake all waiters, even if it is closed again immediately afterwards.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if this call opened the gate; False if it was already open.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the gate may or may not
                have been opened.
            DeadlineError: No server answered in time, and the gate may or may not be opened.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 event for each waiting client.
        """
        return bool(self._ask(self._core.open(), timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the gate is open, or has been open since the call began.

        A change by another process is visible as soon as this client's server has learned of it. A
        gate that was closed a moment ago may therefore still let a thread pass. To rely on such a
        change, call ``client.sync()`` first.

        Args:
            timeout: Maximum wait in seconds; 0 or less looks once, None waits forever.

        Returns:
            True if the gate is open, or was open during the call; False on timeout.

        Note:
            Costs 1 request if the gate is open. Otherwise it also costs 1 watch, and 1 more request
            for each change.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ZooKeeper recipes, "Barriers", steps 1 to 4.
        """
        seconds = validate_timeout(timeout)
        return bool(self._run(self._core.wait(), seconds)) or self._late()

    def __repr__(self) -> str:
        state = {True: "open", False: "closed"}.get(repr_state(self, lambda: self._core.is_open()), "unknown")
        return f"<{type_name(self)} at {id(self):#x}: {state}>"
