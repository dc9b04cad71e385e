"""Record of the ephemeral znodes that one call creates, so that a failed call leaves none behind.

A creation is recorded before it is sent, and removed when its reply arrives or its znode is
deleted. Whenever the call is interrupted, lease/cleanup.py knows what to look for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from distsync._protocols.steps import Create, Created, Delete, Hold, Multi, Request
from distsync.errors import DeadlineError, DisconnectedError, NoNodeError, SessionLostError

#: Errors after which the request may still have been executed.
UNCERTAIN_ERRORS = (DisconnectedError, DeadlineError, SessionLostError)


class LeftoverNode(NamedTuple):
    """An ephemeral znode to delete. Unless ``exact``, ``path`` is a prefix of its path."""

    path: str
    exact: bool


def operations_of(request: Request[Any]) -> tuple[Any, ...]:
    return request.operations if isinstance(request, Multi) else (request,)


def ephemerals_of(request: Request[Any]) -> Iterator[tuple[int, Create]]:
    """Yield the creations of ephemeral znodes in ``request``, with their indexes in it.

    Skip those that the protocol cleans up itself (``own_cleanup``).
    """
    for index, operation in enumerate(operations_of(request)):
        if isinstance(operation, Create) and operation.ephemeral and not operation.own_cleanup:
            yield index, operation


class CreatedNodes:
    """The ephemeral znodes and the holds of one call."""

    __slots__ = ("requested", "holds", "created_paths", "errors")

    def __init__(self) -> None:
        #: The most recent ones only, because a background protocol may run for days.
        self.errors: deque[BaseException] = deque(maxlen=16)
        self.requested: list[Create] = []
        self.created_paths: list[str] = []
        self.holds: list[Hold] = []

    def record_request(self, request: Request[Any]) -> None:
        """Record the creations of ``request``, which is about to be sent."""
        for _, creation in ephemerals_of(request):
            self.requested.append(creation)

    def record_reply(self, request: Request[Any], value: Any, error: BaseException | None) -> None:
        """Record the reply to ``request``, or the error in place of one."""
        if error is not None:
            self.errors.append(error)
        if isinstance(error, UNCERTAIN_ERRORS):
            return
        # Deletions first: a transaction may delete a znode and create it again.
        if error is None or isinstance(error, NoNodeError):
            self._remove_deleted(request)
        for index, creation in ephemerals_of(request):
            self._settle(creation, value[index] if isinstance(request, Multi) and value else value)

    def _settle(self, creation: Create, created: Created | None) -> None:
        if created is not None:
            self.created_paths.append(created.path)
        if creation in self.requested:
            self.requested.remove(creation)

    def _remove_deleted(self, request: Request[Any]) -> None:
        for operation in operations_of(request):
            if isinstance(operation, Delete):
                self.created_paths = [path for path in self.created_paths if path != operation.path]
                self.requested = [create for create in self.requested if not covers(create, operation.path)]

    def keep(self) -> None:
        """Forget all znodes and holds so far, which outlive the call."""
        for recorded in (self.requested, self.created_paths, self.holds):
            recorded.clear()

    def leftovers(self, wanted: Callable[[str], bool]) -> list[LeftoverNode]:
        """Return the znodes that the call leaves behind, except ``wanted`` paths."""
        leftovers = [LeftoverNode(path, True) for path in self.created_paths if not wanted(path)]
        return leftovers + [
            LeftoverNode(each.path, not each.sequence) for each in self.requested if not wanted(each.path)
        ]


def covers(requested: Create, path: str) -> bool:
    """Return whether ``path`` may be the znode that ``requested`` created."""
    return path.startswith(requested.path) if requested.sequence else path == requested.path
