"""The embedded server as seen from a client: found or started again and again, in a thread of its own.

Rules for this file: it waits for the server's start, so it never runs in the caller's, kazoo's or the keeper's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

Auth = Sequence[tuple[str, str]]


class Embedded:
    """Tells ``found`` the address of this user's server, or ``failed`` why there is none."""

    def __init__(self, found: Callable[[str, Auth], object], failed: Callable[[Exception], object], auth: Auth) -> None:
        self._found, self._failed, self._auth = found, failed, tuple(auth)
        self._looking: threading.Thread | None = None
        self._busy = threading.Lock()

    def look(self) -> None:
        """It is being looked for."""
        if self._busy.acquire(blocking=False):
            self._looking = threading.Thread(target=self._look, name="distsync-embedded", daemon=True)
            self._looking.start()

    def _look(self) -> None:
        from distsync.server.startup import find_or_start

        try:
            address = find_or_start()
        except Exception as error:
            self._busy.release()  # first: who is told may have it looked for again
            self._failed(error)
        else:
            self._busy.release()
            self._found(address.hosts, (*self._auth, address.credential))

    def join(self, seconds: float) -> None:
        if self._looking is not None:
            self._looking.join(seconds)
