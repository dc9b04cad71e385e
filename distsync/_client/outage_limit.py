"""A limit for the waits with which a program ends, which no server may ever answer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._client.clocks import wait_clock
from distsync._client.connection_state import ConnectionState
from distsync.errors import DeadlineError

if TYPE_CHECKING:
    from distsync._client.client import Client

Result = TypeVar("Result")

#: Interval in seconds between checks of the connection.
CHECK_S = 0.1


class OutageLimit:
    """The time after which an end of the program no longer waits for a server.

    It is the session timeout, because the servers then forget this process too, or for the first
    connection the connect timeout if that is longer. It begins when the first end waits in an
    outage, so that several ends together wait no longer than one.

    Args:
        client: The client.
        at_most: Maximum of the limit in seconds.
    """

    def __init__(self, client: Client, at_most: float = math.inf) -> None:
        self._client = client
        self.seconds = client.session_timeout or client.settings.session_timeout
        if client.state == ConnectionState.CONNECTING.value:
            self.seconds = max(self.seconds, client.settings.connect_timeout)
        self.seconds = min(self.seconds, at_most)

    def remaining(self) -> float:
        """Return for how many more seconds an end may wait for a server.

        Returns:
            The seconds since an end first called this in an outage, subtracted from the limit.
            Infinite if a server is connected, or if the client is closed and so waits for none.
        """
        client, now = self._client, wait_clock()
        if client.closed:
            return math.inf
        if client.state == ConnectionState.CONNECTED.value:
            client.outage_noticed_at = None
            return math.inf
        noticed_at = client.outage_noticed_at
        if noticed_at is None:
            client.outage_noticed_at = noticed_at = now
        return max(0.0, noticed_at + self.seconds - now)

    @property
    def reason(self) -> str:
        """Say why an end gives up, once the limit has passed."""
        return f"no server has answered for {self.seconds:.0f} s"

    def has_passed(self) -> bool:
        """Return whether no server has answered for `seconds` since an end first called this."""
        return not self.remaining()

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

    def run(self, protocol: Callable[[], Coroutine[Any, Any, Result]], seconds: float) -> Result:
        """Drive a protocol until it has ended, the limit has passed, or the time is up.

        Args:
            protocol: Called to make the coroutine to drive, again if an attempt takes longer than
                the limit while a server is connected.
            seconds: Maximum wait, also if a server is connected.

        Returns:
            The result of the protocol.

        Raises:
            DeadlineError: The limit has passed, or the time is up.
        """
        until = wait_clock() + seconds
        while (left := min(self.remaining(), until - wait_clock())) > 0:
            try:
                return self._client.run(protocol(), min(left, self.seconds))
            except DeadlineError:
                continue
        raise DeadlineError("the clean-up at the end")
