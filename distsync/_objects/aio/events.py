"""Event of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._objects import events
from distsync._objects.aio.base import AsyncObject
from distsync._objects.ownership import repr_state

if TYPE_CHECKING:
    from distsync._client.client import Client


class Event(AsyncObject):
    """A flag that one sets and many wait for.

    Cost: wait: 1 request, and 1 for each change; set: 1; clear: 2; is_set: none while nothing changes.
    Source: recipes.txt, Barriers; ``asyncio.Event``.

    Znodes: ``<namespace>/event/<name>``, data: ``1`` or ``0``.

    >>> async def main():
    ...     ready = Event(name="ready")
    ...     ready.set()
    ...     print(await ready.wait())
    >>> asyncio.run(main())
    True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = events.Event

    def __init__(self, *, name: str | None = None, client: Client | None = None, path: str | None = None) -> None:
        self._init_sync(name=name, client=client, path=path)

    def is_set(self) -> bool:
        """Whether the flag is set: what this process has just told, else what a watch has kept.

        Cost: 1 request, 2 when nobody has set it yet, and 1 watch, for which the loop waits; then none until it
            changes.
        """
        meant = tuple(self._sync._core.meant)
        return meant[-1] if meant else bool(self._sync.is_set())

    def set(self) -> None:
        """The flag is set soon, and all who wait go on; the loop does not wait for that.

        Cost: 1 request; 1 event to each who waits.
        """
        self._run_in_background(self._sync._core.change_in_background(True))

    def clear(self) -> None:
        """The flag is not set, soon. Cost: 2 requests, and the loop does not wait for them."""
        self._run_in_background(self._sync._core.change_in_background(False))

    async def wait(self) -> Literal[True]:
        """The flag is set, or was since the call began.

        Returns: True.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request, 1 watch; 1 request more for each change.
        Source: recipes.txt, Barriers.
        """
        await self._ready()
        await self._await(self._sync._core.wait_for_told())
        return True

    def __repr__(self) -> str:
        return self._repr_state(
            {True: "set", False: "unset"}.get(repr_state(self._sync, lambda: self._sync._core.is_set()), "??")
        )
