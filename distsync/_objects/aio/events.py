"""Event of ``distsync.asyncio``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from distsync._objects import events
from distsync._objects.aio.base import AsyncObject
from distsync._objects.ownership import repr_state
from distsync._objects.validation import refuse_positional

if TYPE_CHECKING:
    from distsync._client.client import Client


class Event(AsyncObject):
    """A flag shared by tasks, processes and hosts, like ``asyncio.Event``.

    Args:
        name: Name of the event, shared by all processes that use it. Without a name, an event
            assigned at module or class level is named after its variable; any other event gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the event's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        `wait` costs 1 request, and 1 for each change. `set` costs 1 request and `clear` costs 2.
        `is_set` costs none while nothing changes.

        Znodes: ``<namespace>/event/<name>``, whose data is ``1`` or ``0``.

        Source: ZooKeeper recipes, "Barriers"; ``asyncio.Event``.

    Example:
        >>> async def main():
        ...     ready = Event(name="ready")
        ...     ready.set()
        ...     print(await ready.wait())
        >>> asyncio.run(main())
        True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = events.Event

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        refuse_positional(self, _)
        self._init_sync(name=name, client=client, path=path)

    def is_set(self) -> bool:
        """Return whether the flag is set.

        A change by this process is visible at once. Otherwise the result is a copy that a watch
        keeps current.

        Returns:
            True if the flag is set.

        Note:
            Costs 1 request and 1 watch, or 2 requests if the event was never used, for which the
            event loop waits. Costs no request after that until the flag changes.
        """
        pending = tuple(self._sync._core.pending_changes)
        return pending[-1] if pending else bool(self._sync.is_set())

    def set(self) -> None:
        """Set the flag soon, in the background, and wake all waiters.

        Note:
            Costs 1 request, and 1 event for each waiting client. The event loop does not wait for
            it.
        """
        self._run_in_background(self._sync._core.change_in_background(True))

    def clear(self) -> None:
        """Clear the flag soon, in the background.

        Note:
            Costs 2 requests, for which the event loop does not wait.
        """
        self._run_in_background(self._sync._core.change_in_background(False))

    async def wait(self) -> Literal[True]:
        """Wait until the flag is set, or has been set since the call began.

        Returns:
            True.

        Note:
            Costs 1 request and 1 watch, and 1 request more for each change during the wait.

            If the session ends, the wait continues in the next one. If cancelled, nothing is left
            behind.

            Source: ZooKeeper recipes, "Barriers".
        """
        await self._ready()
        await self._await(self._sync._core.wait_after_background_changes())
        return True

    def __repr__(self) -> str:
        return self._repr_state(
            {True: "set", False: "unset"}.get(repr_state(self._sync, lambda: self._sync._core.is_set(), False), "??")
        )
