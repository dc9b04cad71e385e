"""A limit for the waits with which a program ends, which no server may ever answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from distsync._client.clocks import wait_clock
from distsync._client.connection_state import ConnectionState

if TYPE_CHECKING:
    from distsync._client.client import Client

#: Interval in seconds between checks of the connection.
CHECK_S = 0.1


class OutageLimit:
    """The time after which an end of the program no longer waits for a server.

    It is the session timeout, because the servers then forget this process too, or for the first
    connection the connect timeout if that is longer. It begins when the first end waits in an
    outage, so that several ends together wait no longer than one.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seconds = client.session_timeout or client.settings.session_timeout
        if client.state == ConnectionState.CONNECTING.value:
            self.seconds = max(self.seconds, client.settings.connect_timeout)

    def has_passed(self) -> bool:
        """Return whether no server has answered for `seconds` since an end first called this."""
        client, now = self._client, wait_clock()
        if client.state == ConnectionState.CONNECTED.value:
            client.outage_noticed_at = None
            return False
        noticed_at = client.outage_noticed_at
        if noticed_at is None:
            client.outage_noticed_at = noticed_at = now
        return now - noticed_at >= self.seconds

    def join(self, thread: threading.Thread) -> bool:
        """Wait until a thread has ended.

        Args:
            thread: The thread.

        Returns:
            True if it has; False if the limit has passed before.
        """
        while thread.is_alive():
            thread.join(CHECK_S)
            if thread.is_alive() and self.has_passed():
                return False
        return True
