"""A connection, as the engine sees it.

Rules for this file: no behaviour. It lives from the handshake to hang-up or drop; nothing of it survives a reconnect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from distsync._server.acl import Identity
from distsync._server.session_table import Session


class Authenticator(Protocol):
    """How a client proves who it is in several steps: each token is answered with one, until ``user`` is somebody."""

    user: str | None

    def answer(self, token: bytes) -> bytes:
        """Raises ProofRefusedError."""


class Peer:
    """``identities`` grow with each proof; ``admitted`` is False while a required identity has not been shown;
    ``sasl`` is None where that is not spoken; ``heard_ms``: when the last request came."""

    __slots__ = ("peer", "session", "identities", "admitted", "sasl", "heard_ms")

    def __init__(
        self, peer: int, session: Session, identities: Iterable[Identity], sasl: Authenticator | None, admitted: bool
    ) -> None:
        self.peer = peer
        self.session = session
        self.identities = [*identities]
        self.sasl = sasl
        self.admitted = admitted
        self.heard_ms: int | None = None
