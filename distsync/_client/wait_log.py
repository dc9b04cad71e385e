"""Log of connection states and of long waits.

A short wait costs nothing. A long one costs at most one read for each line that is logged, and
nothing if the logger is not enabled.

``distsync.client`` logs at INFO that it is connected, at WARNING that the connection or the session
is lost, at ERROR that there will be no connection. ``distsync.wait`` logs at INFO, for each object
and process: after 5 s, then in intervals that double up to a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from distsync._client import contender_info
from distsync._client.connection_state import ConnectionState
from distsync._log import OwnLogger
from distsync._protocols.steps import GetData, Listing, Node
from distsync.errors import DistsyncError

#: Time in seconds after which a wait is logged. Most waits are shorter.
FIRST_S = 5.0

#: Maximum interval in seconds between two lines about one object.
MAX_LOG_INTERVAL_S = 60.0

#: Maximum number of objects whose last lines are remembered.
MAX_REMEMBERED_OBJECTS = 1000

logger = OwnLogger("distsync.wait")
logger_of_states = OwnLogger("distsync.client")


def log_state(state: ConnectionState, where: str, session_id: int | None, failure: Exception | None) -> None:
    """Log a change of the connection's state."""
    if state is ConnectionState.CONNECTED:
        logger_of_states.info("connected to %s, session 0x%x", where, session_id or 0)
    elif state is ConnectionState.SUSPENDED:
        logger_of_states.warning("connection to %s lost, reconnecting", where)
    elif state is ConnectionState.LOST and failure is not None:
        logger_of_states.error("cannot connect to %s: %s", where, failure)
    elif state is ConnectionState.LOST:
        logger_of_states.warning("session at %s lost (assumed expired); all held locks are lost", where)


class Loggable(Protocol):
    """An object whose calls may wait."""

    #: The state that the object shares with the other threads of its process; None if there is none yet.
    _state_entry: Any

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def _holder_among(self, names: tuple[str, ...]) -> str | None:
        """Return which of a znode's children holds what is waited for; None if unknown."""


class WaitProgress:
    """The object of a waiting call, the start of the wait, and the last listing of contenders."""

    __slots__ = ("subject", "protocol", "since", "next_log_at", "directory", "names")

    def __init__(self, subject: Loggable, protocol: Coroutine[Any, Any, Any]) -> None:
        self.subject = subject
        self.protocol = protocol
        self.since = self.next_log_at = 0.0
        self.directory = ""
        self.names: tuple[str, ...] = ()

    def restart(self) -> None:
        """Restart the wait, because the call has done something."""
        self.since = self.next_log_at = 0.0

    def listed(self, directory: str, listing: Listing) -> None:
        self.directory, self.names = directory, listing.names

    def is_log_due(self, now: float) -> bool:
        """Return whether the next log line is due, which is so every FIRST_S seconds."""
        if not self.since:
            self.since = now
        is_due = 0.0 < self.next_log_at <= now
        if is_due or not self.next_log_at:
            self.next_log_at = now + FIRST_S
        return is_due

    def owner(self) -> str | None:
        """Return the path of the holder's znode, if known."""
        first = self.subject._holder_among(self.names) if self.names else None
        return f"{self.directory}/{first}" if first else None

    def text(self, now: float) -> str:
        kind, about, doing = type(self.subject), self.subject, getattr(self.protocol, "__name__", "a call")
        return f"{kind.__name__} {about.name!r} ({about.path}): {doing} has waited {now - self.since:.0f} s"


class LogThrottle:
    """Limits the lines about each object."""

    def __init__(self) -> None:
        self._next_log_at: dict[str, tuple[float, float]] = {}

    def should_log(self, path: str, now: float) -> bool:
        """Return whether to log a line about ``path`` now, and count it."""
        due, pause = self._next_log_at.get(path, (now, FIRST_S))
        if now < due or not logger.isEnabledFor(logging.INFO):
            return False
        if now > due + 2 * MAX_LOG_INTERVAL_S:  # the last line was about an earlier wait
            pause = FIRST_S
        if len(self._next_log_at) >= MAX_REMEMBERED_OBJECTS:
            self._next_log_at.clear()
        self._next_log_at[path] = now + pause * 0.9, min(2 * pause, MAX_LOG_INTERVAL_S)
        return True


def log_wait(text: str, connected: bool, problem: str) -> None:
    """Log a wait without a known holder."""
    without = f"; there is no connection{f' ({problem})' if problem else ''}"
    logger.info("%s%s", text, "" if connected else without)


async def log_owner(text: str, path: str) -> None:
    """Log a wait, and the holder as its znode describes it."""
    try:
        node: Node = await GetData(path)
    except DistsyncError:
        logger.info("%s; its holder has just changed", text)
        return
    owner_info = contender_info.read(node.data, path, node.stat.czxid)
    since = f", queued since {owner_info.since:%Y-%m-%d %H:%M:%S %Z}" if owner_info.since else ""
    logger.info("%s; held by %s%s", text, owner_info, since)
