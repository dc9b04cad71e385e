"""A connection, as the engine sees it.

Rules for this file: no behaviour. It lives from the handshake to hang-up or drop; nothing of it survives a reconnect.
"""

from __future__ import annotations

from distsync.server.acl import Identity
from distsync.server.sessions import Session


class Link:
    """``identities`` grow with each auth; ``admitted`` is False while a required identity has not been shown;
    ``heard_ms``: when the last request came."""

    __slots__ = ("peer", "session", "identities", "admitted", "heard_ms")

    def __init__(self, peer: int, session: Session, address: str, admitted: bool) -> None:
        self.peer = peer
        self.session = session
        self.identities = [Identity("ip", address)]
        self.admitted = admitted
        self.heard_ms: int | None = None
