"""Attach a connection to a new session or to an existing one.

The last connection that presents a session's password gets the session. An unknown or expired
session is refused, not replaced by a new one, because the client must find out that it was lost.
"""

from __future__ import annotations

import hmac

from distsync._server.acl import Identity
from distsync._server.effects import Accepted, Drop, Effect
from distsync._server.engine_state import EngineState
from distsync._server.journal.change_records import OpenSession, ResizeSession
from distsync._server.peer import Authenticator, Peer
from distsync._server.session_table import Session, new_session_id, password_of
from distsync._wire.records import ConnectRequest, ConnectResponse

NO_PASSWORD = bytes(16)


class Handshake:
    """A connect request of a peer. ``identities`` are those it has before it authenticates."""

    __slots__ = ("_core", "_peer_id", "_request", "_now_ms", "_identities", "_sasl")

    def __init__(
        self,
        core: EngineState,
        peer_id: int,
        request: ConnectRequest,
        now_ms: int,
        identities: tuple[Identity, ...],
        sasl: Authenticator | None,
    ) -> None:
        self._core = core
        self._peer_id = peer_id
        self._request = request
        self._now_ms = now_ms
        self._identities = identities
        self._sasl = sasl

    def effects(self) -> list[Effect]:
        """Handle the request.

        A client that has seen a later zxid than the server's is dropped without a reply, and so is
        a peer that sends a second connect request.
        """
        core, request = self._core, self._request
        if self._peer_id in core.peers or request.last_zxid_seen > core.state.zxid:
            return core.drop(self._peer_id)
        if request.session_id == 0:
            return self._open()
        session = core.sessions.get(request.session_id)
        if session is None or not self._has_password():
            return [self._response(0, 0, NO_PASSWORD), Drop(self._peer_id)]
        return self._attach(session)

    def _open(self) -> list[Effect]:
        core = self._core
        id = new_session_id(core.state.last_session_id, self._now_ms, core.config.server_id)
        effects = core.transact(OpenSession(id, self._timeout_ms()), self._now_ms)
        return [*effects, self._register(core.sessions[id])]

    def _attach(self, session: Session) -> list[Effect]:
        core, timeout_ms = self._core, self._timeout_ms()
        effects = [] if session.owner is None else core.drop(session.owner)
        if timeout_ms != session.timeout_ms:
            effects += core.record_extra(ResizeSession(session.id, timeout_ms), self._now_ms)
        return [*effects, self._register(session)]

    def _register(self, session: Session) -> Accepted:
        core = self._core
        admitted = core.is_authorized(self._identities)
        core.peers[self._peer_id] = Peer(self._peer_id, session, self._identities, self._sasl, admitted)
        session.owner = self._peer_id
        core.sessions.touch(session, core.advance_time(self._now_ms))
        return self._response(session.timeout_ms, session.id, password_of(session.id, core.config.secret))

    def _response(self, timeout_ms: int, session_id: int, password: bytes) -> Accepted:
        """Return the reply. It has the read-only byte (always 0) only if the request had one."""
        read_only = None if self._request.read_only is None else False
        return Accepted(self._peer_id, ConnectResponse(0, timeout_ms, session_id, password, read_only))

    def _timeout_ms(self) -> int:
        config = self._core.config
        return max(config.min_session_timeout_ms, min(config.max_session_timeout_ms, self._request.timeout_ms))

    def _has_password(self) -> bool:
        secret = self._core.config.secret
        return hmac.compare_digest(self._request.password or b"", password_of(self._request.session_id, secret))
