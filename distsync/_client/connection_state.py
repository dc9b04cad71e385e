"""State and statistics of a client's connection."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ConnectionState(str, enum.Enum):
    """State of a client's connection, as documented at `Client.state`."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class ClientStatistics(NamedTuple):
    """Numbers of requests and events since the client was created."""

    requests: dict[str, int]
    """Number of requests by kind (name of the step), without heartbeats."""
    round_trips: int
    """Number of round trips; requests that were sent together count as one."""
    heartbeats: int
    events: int
