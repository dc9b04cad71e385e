"""Event: a drop-in replacement for ``threading.Event``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._objects.base import SharedObject
from distsync._objects.observable import Observable
from distsync._objects.ownership import repr_state
from distsync._objects.validation import refuse_positional, validate_timeout
from distsync._protocols.state.event import EventCore
from distsync._protocols.state.watch_cache import WatchCache

if TYPE_CHECKING:
    from distsync._client.client import Client


class Event(Observable, SharedObject):
    """A flag shared by threads, processes and hosts, like ``threading.Event``.

    Args:
        name: Name of the event, shared by all processes that use it. Without a name, an event
            assigned at module or class level is named after its variable; any other event gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the event's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `wait` costs 1 request, and 1 for each change. `set` costs 1 request and `clear` costs 2.
        `is_set` costs none while nothing changes.

        Znodes: ``<namespace>/event/<name>``, whose data is ``1`` or ``0``.

        Source: ZooKeeper recipes, "Barriers"; ``threading.Event``.

    Example:
        >>> ready = Event(name="ready")
        >>> ready.set()
        >>> ready.wait(timeout=10)
        True
    """

    __module__ = "distsync.threading"
    _kind = "event"

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
    def _core(self) -> EventCore:
        return self._shared_state(partial(self._with_receipts, EventCore))

    @property
    def _watched(self) -> WatchCache[bool]:
        return self._core.flag

    def is_set(self) -> bool:
        """Return whether the flag is set.

        The result is a copy that a watch keeps current. A change by another client is visible as
        soon as the server has notified this client, and before anything that this client reads
        later. This client's own changes are visible at once.

        Returns:
            True if the flag is set.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 1 request and 1 watch, or 2 requests if the event was never used. Costs no request
            after that until the flag changes.
        """
        glance = self._glance
        if glance is not None and (copy := glance.look()):
            return bool(copy[0])
        return bool(self._seen())

    isSet = is_set

    def set(self) -> None:
        """Set the flag and wake all waiters, even if it is cleared immediately afterwards.

        This may be called in a signal handler that interrupts another call of distsync. It then
        returns at once, and the flag is set in the background.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the flag may or may not be
                set.
            DeadlineError: No server answered within the client's default timeout, and the flag may
                or may not be set. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 event for each waiting client.
        """
        if self.client.may_wait():
            self._ask(self._core.set())
        else:
            self.client.background(self._as_member(self._core.set()))

    def clear(self) -> None:
        """Clear the flag.

        In a signal handler that interrupts another call of distsync, it is cleared in the
        background.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the flag may or may not be
                cleared.
            DeadlineError: No server answered within the client's default timeout, and the flag may
                or may not be cleared. Subclass of TimeoutError.

        Note:
            Costs 2 requests if the flag is set, and 3 requests in 2 round trips if it is not.
        """
        if self.client.may_wait():
            self._ask(self._core.clear())
        else:
            self.client.background(self._as_member(self._core.clear()))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, or has been set since the call began.

        Args:
            timeout: Maximum wait in seconds; 0 or less looks once, None waits forever.

        Returns:
            True if the flag is set, or was set during the call; False on timeout.

        Note:
            Costs 1 request and 1 watch, and 1 request more for each change during the wait.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ZooKeeper recipes, "Barriers".
        """
        seconds = validate_timeout(timeout, "event")
        return bool(self._run(self._core.wait(), seconds)) or self._late()

    def __repr__(self) -> str:
        state = {True: "set", False: "unset"}.get(repr_state(self, lambda: self._core.is_set(), False), "unknown")
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {state}>"
