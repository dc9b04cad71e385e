"""The embedded server, as a client finds or starts it: repeatedly, and in a thread of its own.

The search waits for the server's start, so it never runs in the caller's, kazoo's or the background
thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from distsync._client.clocks import wait_clock
from distsync._client.own_threads import OwnThread, join
from distsync._import_gate import importing

if TYPE_CHECKING:
    from distsync._server.autostart.find_or_start import ServerAddress

Auth = Sequence[tuple[str, str]]

PROOF_S = 0.5
"""Time limit in seconds for the check of a server's identity, before each connection attempt.

Together with the handshake after it (transport/kazoo_client.py) it fits the time limit of a close.
"""

#: Seconds from a failed search to the next one, at first and at most.
PAUSE_S, MAX_PAUSE_S = 1.0, 10.0


def find_embedded_server() -> ServerAddress | None:
    """Return the address of this user's running embedded server.

    distsync's objects find the server by themselves. This is for other ZooKeeper clients that use
    it.

    Returns:
        The address, with the credential that the server requires; None if no server runs.

    Raises:
        ConfigurationError: Another user owns the folder of the address file, or may write to it,
            and so could name another server.

    Note:
        Costs 1 connection to loopback, over which the server proves that it is this user's.
    """
    with importing():
        from distsync._server.autostart.find_or_start import find

    return find(create_folders=False)


def embedded_server_identity() -> str:
    """Return user, host and folder of this user's embedded server, which no other server has.

    The server need not run.
    """
    with importing():
        from distsync._server.autostart.find_or_start import identity

    return identity()


class EmbeddedServerLocator:
    """Calls ``found`` with the address of this user's server, or ``failed`` with an error."""

    def __init__(self, found: Callable[[str, Auth], object], failed: Callable[[Exception], object], auth: Auth) -> None:
        self._found, self._failed, self._auth = found, failed, tuple(auth)
        self._address: ServerAddress | None = None
        self._thread: OwnThread | None = None
        self._search_lock = threading.Lock()
        self._pause = 0.0
        self._next_search_at = 0.0

    def search(self) -> None:
        """Search for the server in a thread, unless a search is running."""
        with importing():  # not in the thread: a fork without hooks during the import would leave it incomplete
            import_module("distsync._server.autostart.find_or_start")
        if self._search_lock.acquire(blocking=False):
            self._thread = OwnThread(target=self._run, name="distsync-embedded", daemon=True)
            try:
                self._thread.start()
            except Exception:  # no thread is available
                self._search_lock.release()
                raise

    def search_again(self) -> None:
        """Search for a server that does not answer, unless it is too soon after the last search.

        The pauses double while no server starts, or those that start end soon.
        """
        now = wait_clock()
        if now < self._next_search_at or self._search_lock.locked():
            return
        if now - self._next_search_at > MAX_PAUSE_S:  # the server has lived
            self._pause = 0.0
        self.search()

    def _begin_pause(self, shortest: float) -> None:
        self._pause = max(self._pause, shortest)
        self._next_search_at = wait_clock() + self._pause
        self._pause = min(max(2 * self._pause, PAUSE_S), MAX_PAUSE_S)

    def _run(self) -> None:
        try:
            with importing():
                from distsync._server.autostart.find_or_start import find_or_start

            address = self._address = find_or_start()
        except Exception as error:
            self._begin_pause(PAUSE_S)
            self._search_lock.release()  # first, so that the callback can start another search
            self._failed(error)
            return
        self._begin_pause(0.0)
        self._search_lock.release()
        try:
            self._found(address.hosts, (*self._auth, address.credential))
        except Exception as error:  # no socket or thread is available
            self._failed(error)

    def is_genuine(self, host: str, port: int) -> bool:
        """Return whether this user's server listens there.

        Otherwise another program would get the secret and the session.
        """
        with importing():
            from distsync._server.autostart.find_or_start import is_alive

        address = self._address
        return address is not None and is_alive(replace(address, host=host, port=port), PROOF_S)

    def is_current_thread(self) -> bool:
        """Return whether this is the thread of the search, in which nothing may block."""
        return self._thread is not None and self._thread.is_current()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            join(self._thread, seconds)
