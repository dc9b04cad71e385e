"""What a link tells of itself.

Rules for this file: pure records.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class ConnectionState(str, enum.Enum):
    """The link is ..."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class ClientStatistics(NamedTuple):
    """What was sent and came since the client was made."""

    requests: dict[str, int]
    """By kind, the step's name; without what the keeper sent to stay sure of what is held."""
    round_trips: int
    """Requests that were sent together count as one."""
    heartbeats: int
    events: int
