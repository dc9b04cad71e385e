"""Ephemeral znodes of the session: an unknown old one shows that the servers were restored from a backup.

The backup may contain the session. Its ephemeral znodes of that time then exist again, also those that
this process has deleted since, and would block others for as long as the process lives. After a lost
connection, the znodes of the session are therefore compared with those that the process knows. An
unknown one that is newer than all replies of the earlier connections was created by a request whose
reply was lost. An older one is deleted by ending the session.

A znode that another process deleted stays known until the next comparison. There is one whenever their
number has doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distsync._log import OwnLogger
from distsync._protocols.steps import Connected, Create, Delete, Ephemerals, Exists, Multi, Request, SessionInfo, Stat
from distsync.errors import (
    ClientClosedError,
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    NoNodeError,
    SessionLostError,
)

logger = OwnLogger("distsync.client")

#: Number of known znodes up to which they are not compared while connected.
FEW = 1000


class OwnNodes:
    """The ephemeral znodes that this process has created in its session, and not deleted.

    Any thread may call any method. ``on_many`` is called when they must be compared while connected.
    """

    def __init__(self, on_many: Callable[[], object]) -> None:
        self._on_many = on_many
        self._known: dict[str, object] = {}
        #: Zxid up to which all znodes of the session that still exist are known.
        self.complete_until = 0
        #: Whether they must be compared after a lost connection.
        self.is_due = False
        #: Their number from which they must be compared while connected.
        self._most = FEW
        #: Whether the session may ever have had one.
        self._may_exist = False
        #: Whether the servers can list them, as far as known.
        self._is_possible = True

    def begin_session(self) -> None:
        """Forget everything: the session is a new one."""
        self._known, self._may_exist, self._most = {}, False, FEW
        self.complete_until, self.is_due = 0, False

    def on_disconnect(self, zxid: int) -> None:
        """Handle a lost connection, whose last reply had this zxid."""
        if not self.is_due:
            self.complete_until, self.is_due = zxid, self._is_possible and self._may_exist

    def record(self, request: Request[Any], value: Any, error: BaseException | None) -> None:
        """Record the reply to a Create, Delete or Multi."""
        if error is not None:
            self._may_exist = self._may_exist or _creates_ephemerals(request)
            if isinstance(error, NoNodeError) and isinstance(request, Delete):
                self._known.pop(request.path, None)
            return
        operations, results = (request.operations, value) if isinstance(request, Multi) else ((request,), (value,))
        for operation, result in zip(operations, results, strict=True):
            if isinstance(operation, Delete):
                self._known.pop(operation.path, None)
            elif isinstance(operation, Create) and operation.ephemeral and self._is_possible:
                self._known[result.path], self._may_exist = object(), True
                if len(self._known) > self._most:
                    self._most *= 2
                    self._on_many()

    async def compare(self, on_older_data: Callable[[SessionInfo], object]) -> None:
        """Compare them with the servers' znodes. Call ``on_older_data`` if there is an unknown old one."""
        try:
            session = await Connected()
            before = dict(self._known)
            paths = set(await Ephemerals())
            unknown = [path for path in paths if path not in self._known]
            for path in unknown:
                stat = await Exists(path)
                if stat is not None and self._is_old(path, stat, session):
                    on_older_data(session)
                    return
            if await Connected() == session:
                self._complete(before, paths)
        except (DisconnectedError, SessionLostError, ClientClosedError, DeadlineError):
            return  # the next connection compares them
        except DistsyncError as error:
            logger.info("the servers do not list the znodes of a session: %s", error)
            self._is_possible = self.is_due = False
            self._known = {}

    def _is_old(self, path: str, stat: Stat, session: SessionInfo) -> bool:
        """Return whether it is a znode of the session that this process should know, and does not."""
        is_ours = stat.ephemeral_owner == session.session_id
        return is_ours and stat.czxid <= self.complete_until and path not in self._known

    def _complete(self, before: dict[str, object], paths: set[str]) -> None:
        """Forget the znodes known ``before`` that do not exist any more, and remember the others."""
        for path in paths - self._known.keys():
            self._known[path] = object()
        for path, token in before.items():
            if path not in paths and self._known.get(path) is token:
                self._known.pop(path, None)
        self.is_due, self._most = False, max(FEW, 2 * len(self._known))


def _creates_ephemerals(request: Request[Any]) -> bool:
    operations = request.operations if isinstance(request, Multi) else (request,)
    return any(isinstance(operation, Create) and operation.ephemeral for operation in operations)
