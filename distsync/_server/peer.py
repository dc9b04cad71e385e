"""The engine's record of a connection, from its handshake until it is closed or dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from distsync._server.acl import Identity
from distsync._server.session_table import Session


class Authenticator(Protocol):
    """A challenge-response exchange. ``user`` is None until the client is authenticated."""

    user: str | None

    def answer(self, token: bytes) -> bytes:
        """Return the reply to a token of the client. Raises ProofRefusedError."""


class Peer:
    """A connection with a session.

    Attributes:
        identities: Identities that the client has added or proved.
        admitted: Whether the client has all required identities.
        sasl: Its SASL exchange; None if the server does not support SASL.
        last_request_ms: When its last request was handled.
    """

    __slots__ = ("id", "session", "identities", "admitted", "sasl", "last_request_ms")

    def __init__(
        self, id: int, session: Session, identities: Iterable[Identity], sasl: Authenticator | None, admitted: bool
    ) -> None:
        self.id = id
        self.session = session
        self.identities = [*identities]
        self.sasl = sasl
        self.admitted = admitted
        self.last_request_ms: int | None = None
