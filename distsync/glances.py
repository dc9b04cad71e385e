"""The way past the driver for what is only looked at: a copy that a watch keeps current is read without a protocol.

Rules for this file: no znode, no wait, and nothing that protocols/watched.py does not decide. Whatever is not as usual
is for the protocol: then there is nothing to be seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distsync.protocols.watched import WatchCache
from distsync.session.default import _default

if TYPE_CHECKING:
    from distsync.session.client import Client


class CachedRead:
    """One watched state, as one object looks at it."""

    __slots__ = ("client", "core", "uses_default_client", "watched")

    def __init__(self, watched: WatchCache[Any], client: Client, uses_default_client: bool) -> None:
        """``uses_default_client``: the client is the default one, whichever that is."""
        self.watched, self.client, self.uses_default_client = watched, client, uses_default_client
        #: A client that is closed, or in a forked child, has another one or none.
        self.core = client._core

    def look(self) -> list[Any]:
        """The state; empty if a protocol has to look.

        The watch is taken before the copy, as a look writes them the other way round: the copy is at least as new, and
        current if the watch has not fired after that.
        """
        client, core = self.client, self.core
        if core is None or client._core is not core or core.closing:
            return []
        if self.uses_default_client and _default.client is not client:
            return []
        watch = self.watched._watch
        copy = self.watched._copy
        return [] if watch.fired else copy


class CachedReader:
    """Beside a Named: looking at what it watches."""

    _glance: CachedRead | None = None

    if TYPE_CHECKING:
        _run: Callable[..., Any]
        _read: Callable[..., Any]
        _explicit_client: Client | None

        @property
        def client(self) -> Client: ...

    @property
    def _watched(self) -> WatchCache[Any]:
        """What is looked at."""
        raise NotImplementedError

    def _seen(self, sync: bool = False) -> Any:
        """The state: what the watch has kept, or a look; ``sync``: as the leader of the ensemble knows it."""
        glance = self._glance
        if glance is not None and not sync and (copy := glance.look()):
            return copy[0]
        client, watched = self.client, self._watched
        value = self._read(watched.get(sync))
        self._glance = CachedRead(watched, client, self._explicit_client is None)
        return value
