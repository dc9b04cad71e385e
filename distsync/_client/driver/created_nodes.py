"""Which ephemeral znodes one call has made, so that a call that fails leaves none behind.

Rules for this file: pure. A creation is written down before it is sent, and crossed out by its answer or by the
delete of its znode: whatever interrupts the call in between, lease/cleanup.py knows what to look for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from distsync._protocols.steps import Create, Created, Delete, Hold, Multi, Request
from distsync.errors import DeadlineError, DisconnectedError, NoNodeError, SessionLostError

#: After one of these a creation may have happened.
UNSETTLED = (DisconnectedError, DeadlineError, SessionLostError)


class LeftoverNode(NamedTuple):
    """An ephemeral that nobody wants. ``exact`` False: ``path`` is the beginning of its path only."""

    path: str
    exact: bool


def operations_of(request: Request[Any]) -> tuple[Any, ...]:
    return request.operations if isinstance(request, Multi) else (request,)


def ephemerals_of(request: Request[Any]) -> Iterator[tuple[int, Create]]:
    """The creations of ephemerals in ``request``, with their places in it, but for those that are looked after."""
    for place, operation in enumerate(operations_of(request)):
        if isinstance(operation, Create) and operation.ephemeral and not operation.after:
            yield place, operation


class CreatedNodes:
    """The ephemerals of one call, and its holds. Plain attributes, for who must not call anything (runtime.py)."""

    __slots__ = ("asked", "holds", "made", "refusals")

    def __init__(self) -> None:
        #: The last ones only: a protocol of the keeper's may go on for days.
        self.refusals: deque[BaseException] = deque(maxlen=16)
        self.asked: list[Create] = []
        self.made: list[str] = []
        self.holds: list[Hold] = []

    def sent(self, request: Request[Any]) -> None:
        """``request`` is about to be sent."""
        for _, creation in ephemerals_of(request):
            self.asked.append(creation)

    def answered(self, request: Request[Any], value: Any, error: BaseException | None) -> None:
        """The answer came, or will not come any more. A transaction may delete a znode to make it anew."""
        if error is not None:
            self.refusals.append(error)
        if isinstance(error, UNSETTLED):
            return
        if error is None or isinstance(error, NoNodeError):
            self._gone(request)
        for place, creation in ephemerals_of(request):
            self._settle(creation, value[place] if isinstance(request, Multi) and value else value)

    def _settle(self, creation: Create, created: Created | None) -> None:
        if created is not None:
            self.made.append(created.path)
        if creation in self.asked:
            self.asked.remove(creation)

    def _gone(self, request: Request[Any]) -> None:
        for operation in operations_of(request):
            if isinstance(operation, Delete):
                self.made = [path for path in self.made if path != operation.path]
                self.asked = [asked for asked in self.asked if not covers(asked, operation.path)]

    def leftovers(self, wanted: Callable[[str], bool]) -> list[LeftoverNode]:
        """What the call leaves behind, but for the paths that are ``wanted``."""
        made = [LeftoverNode(path, True) for path in self.made if not wanted(path)]
        return made + [LeftoverNode(asked.path, not asked.sequence) for asked in self.asked if not wanted(asked.path)]


def covers(asked: Create, path: str) -> bool:
    """Whether ``path`` may be the znode that ``asked`` made."""
    return path.startswith(asked.path) if asked.sequence else path == asked.path
