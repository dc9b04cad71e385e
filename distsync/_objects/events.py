"""Event.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject
from distsync._objects.observable import Observable
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_timeout
from distsync._protocols.state.event import EventCore
from distsync._protocols.state.watch_cache import WatchCache

if TYPE_CHECKING:
    from distsync._client.client import Client


class Event(Observable, SharedObject):
    """A flag that one sets and many wait for.

    Cost: wait: 1 request, and 1 for each change; set: 1; clear: 2; is_set: none while nothing changes.
    Source: recipes.txt, Barriers; ``threading.Event``.

    Znodes: ``<namespace>/event/<name>``, data: ``1`` or ``0``.

    >>> ready = Event(name="ready")
    >>> ready.set()
    >>> ready.wait(timeout=10)
    True
    """

    __module__ = "distsync.threading"
    _kind = "event"

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
    def _core(self) -> EventCore:
        return self._shared_state(partial(EventCore, receipts=self._receipts))

    @property
    def _watched(self) -> WatchCache[bool]:
        return self._core.flag

    def is_set(self) -> bool:
        """Whether the flag is set.

        What a watch has kept: a change that somebody else makes shows as soon as the server has told us, and before
        anything that this client reads after it. One's own changes show at once.
        Cost: 1 request, 2 when nobody has set it yet, and 1 watch; then none until it changes.
        """
        glance = self._glance
        if glance is not None and (copy := glance.look()):
            return bool(copy[0])
        return bool(self._seen())

    isSet = is_set

    def set(self) -> None:
        """The flag is set, and all who wait go on, also if it is cleared right after.

        In a signal handler that happens to run inside of distsync it is set soon, in the background.
        Raises: OutcomeUnknownError when the session ended in this moment and nobody can know.
        Cost: 1 request; 1 event to each who waits.
        """
        if self.client.may_wait():
            self._run(self._core.set())
        else:
            self.client.background(self._core.set())

    def clear(self) -> None:
        """The flag is not set; in a signal handler as set.

        Raises: as set.
        Cost: 2 requests; 3, 2 round trips, if it was not set.
        """
        if self.client.may_wait():
            self._run(self._core.clear())
        else:
            self.client.background(self._core.clear())

    def wait(self, timeout: float | None = None) -> bool:
        """The flag is set, or was since the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request, 1 watch; 1 request more for each change.
        Source: recipes.txt, Barriers.
        """
        seconds = validate_timeout(timeout)
        return bool(self._run(self._core.wait(), seconds))

    def __repr__(self) -> str:
        state = {True: "set", False: "unset"}.get(repr_state(self, lambda: self._core.is_set()), "unknown")
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {state}>"
