"""What the log says by itself: each change of the connection, and waits that last.

Rules for this file: it decides when to tell, and what; it never waits. A wait that is not long costs nothing; a long
one at most one read each time that it is told, and nothing at all unless somebody listens to this log.

``distsync.client``: INFO when it is connected, WARNING when the connection or the session is lost, ERROR when there
will be none. ``distsync.wait``: INFO, at most one line about one object and process: after 5 s, then after twice as
long each time, until it is once a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from distsync._client import contender_info
from distsync._client.connection_state import ConnectionState
from distsync._protocols.steps import GetData, Listing, Node
from distsync.errors import DistsyncError

#: So long (seconds) nobody wonders. Most waits are over before.
FIRST_S = 5.0

#: The longest time (seconds) between two lines about one object.
MAX_LOG_INTERVAL_S = 60.0

#: Objects that are remembered to have been told about.
MANY = 1000

logger = logging.getLogger("distsync.wait")
logger_of_states = logging.getLogger("distsync.client")


def log_state(state: ConnectionState, where: str, session_id: int | None, failure: Exception | None) -> None:
    """The connection is in this state now."""
    if state is ConnectionState.CONNECTED:
        logger_of_states.info("connected to %s, session 0x%x", where, session_id or 0)
    elif state is ConnectionState.SUSPENDED:
        logger_of_states.warning("connection to %s lost, reconnecting", where)
    elif state is ConnectionState.LOST and failure is not None:
        logger_of_states.error("cannot connect to %s: %s", where, failure)
    elif state is ConnectionState.LOST:
        logger_of_states.warning("session at %s lost (assumed expired); all held locks are lost", where)


class Loggable(Protocol):
    """The object whose call waits."""

    #: What this process knows about it; None: nothing yet.
    _entry: Any

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def _first_of(self, names: tuple[str, ...]) -> str | None:
        """Of the children of a znode the one that has what is waited for, if that can be said."""


class WaitProgress:
    """What a waiting call is about, since when it waits, and the last listing that it has seen. Nothing is asked for
    while it is short."""

    __slots__ = ("subject", "protocol", "since", "next_log_at", "directory", "names")

    def __init__(self, subject: Loggable, protocol: Coroutine[Any, Any, Any]) -> None:
        self.subject = subject
        self.protocol = protocol
        self.begin_anew()
        self.directory = ""
        self.names: tuple[str, ...] = ()

    def begin_anew(self) -> None:
        """It does something, and waits no more."""
        self.since = self.next_log_at = 0.0

    def listed(self, directory: str, listing: Listing) -> None:
        self.directory, self.names = directory, listing.names

    def is_log_due(self, now: float) -> bool:
        """It is to be told, or looked at again in FIRST_S."""
        if not self.since:
            self.since = now
        is_due = 0.0 < self.next_log_at <= now
        if is_due or not self.next_log_at:
            self.next_log_at = now + FIRST_S
        return is_due

    def owner(self) -> str | None:
        """The path of the one that has it."""
        first = self.subject._first_of(self.names) if self.names else None
        return f"{self.directory}/{first}" if first else None

    def text(self, now: float) -> str:
        kind, about, doing = type(self.subject), self.subject, getattr(self.protocol, "__name__", "a call")
        return f"{kind.__name__} {about.name!r} ({about.path}): {doing} has waited {now - self.since:.0f} s"


class LogThrottle:
    """When each object was told about last, and when it may be again."""

    def __init__(self) -> None:
        self._next_log_at: dict[str, tuple[float, float]] = {}

    def should_log(self, path: str, now: float) -> bool:
        """Whether it is time for a line about ``path``; if so, that one is counted."""
        due, pause = self._next_log_at.get(path, (now, FIRST_S))
        if now < due or not logger.isEnabledFor(logging.INFO):
            return False
        if now > due + 2 * MAX_LOG_INTERVAL_S:  # that was another wait
            pause = FIRST_S
        if len(self._next_log_at) >= MANY:
            self._next_log_at.clear()
        self._next_log_at[path] = now + pause * 0.9, min(2 * pause, MAX_LOG_INTERVAL_S)
        return True


def log_wait(text: str, connected: bool, problem: str) -> None:
    """The log says that somebody waits."""
    without = f"; there is no connection{f' ({problem})' if problem else ''}"
    logger.info("%s%s", text, "" if connected else without)


async def log_owner(text: str, path: str) -> None:
    """The log says who has it, as its znode does."""
    try:
        node: Node = await GetData(path)
    except DistsyncError:
        logger.info("%s; its holder has just changed", text)
        return
    owner_info = contender_info.read(node.data, path, node.stat.czxid)
    since = f", there since {owner_info.since:%Y-%m-%d %H:%M:%S %Z}" if owner_info.since else ""
    logger.info("%s; held by %s%s", text, owner_info, since)
