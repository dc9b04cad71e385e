"""Dispatch of the requests of connected clients to their handlers.

The effects of a write are its commit, then its notifications, then its reply. A refused write
consumes a zxid too, which is also committed, so that zxids never decrease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from distsync._server.acl import SUPER, Identity, digest_of
from distsync._server.auth.digest_md5 import ProofRefusedError
from distsync._server.effects import Effect, Reply, reply
from distsync._server.engine_state import NOBODY, EngineState, ReadPermissions
from distsync._server.handlers import RequestRefused
from distsync._server.handlers.reads import Reads
from distsync._server.handlers.watches import WatchHandlers
from distsync._server.handlers.writes import Writes, created, in_multi
from distsync._server.journal.change_records import NodeChange
from distsync._server.peer import Peer
from distsync._wire import records as r
from distsync._wire.codes import PING_XID, ErrorCode, OpCode
from distsync._wire.record_codec import IN_MULTI

Handler = Callable[[Peer, int, Any, int], list[Effect]]
"""(peer, xid, request, now_ms)"""

WRITES = IN_MULTI | {OpCode.SET_ACL, OpCode.MULTI}
"""Operations that consume a zxid even if malformed."""

MAX_IDENTITIES = 64
"""Maximum number of identities of a connection, because each request may check all of them."""

MAX_IDENTITY_LENGTH = 1024
"""Maximum length in characters of a digest identity, including the hash of the password."""

_PROOFS = (r.AuthRequest, r.SaslRequest)
_UNAUTHENTICATED_OPS = (*_PROOFS, r.PingRequest, r.CloseSessionRequest)

log = logging.getLogger("distsync.server")


class Requests:
    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._reads = Reads(core.tree, core.watches, core.config.seed)
        self._watch_handlers = WatchHandlers(core.tree, core.watches)
        self._writes = Writes(core.tree, core.config.enforce_quota, core.policy)
        self._handlers: dict[type[r.Request], Handler] = {
            **{kind: self._read_handler(handler) for kind, handler in self._reads.handlers.items()},
            **{kind: self._read_handler(handler) for kind, handler in self._watch_handlers.handlers.items()},
            **{kind: self._write_handler(plan, self._writes.body) for kind, plan in self._writes.plans.items()},
            r.CreateRequest: self._write_handler(self._writes.plans[r.CreateRequest], created),
            r.MultiRequest: self._multi,
            r.SetWatchesRequest: self._set_watches,
            r.SetWatches2Request: self._set_watches,
            r.DeleteContainerRequest: partial(self._refuse, ErrorCode.BAD_ARGUMENTS),
            r.ReconfigRequest: partial(self._refuse, ErrorCode.RECONFIG_DISABLED),
            r.SaslRequest: self._sasl,
            r.AuthRequest: self._auth,
            r.PingRequest: self._ping,
            r.CloseSessionRequest: self._close_session,
            r.UnknownRequest: self._unknown,
            r.MalformedRequest: self._malformed,
        }

    def handle(self, peer: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        if peer.admitted:
            return self._handlers[type(request)](peer, xid, request, now_ms)
        return self._handle_unauthenticated(peer, xid, request, now_ms)

    def _handle_unauthenticated(self, peer: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        """Handle a request of a client that lacks a required identity."""
        if not isinstance(request, _PROOFS) and self._core.missing_scheme(peer.identities):
            closed = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
            return [Reply(peer.id, xid, 0, closed, None), *self._core.drop(peer.id)]
        if isinstance(request, _UNAUTHENTICATED_OPS):
            return self._handlers[type(request)](peer, xid, request, now_ms)
        return [self._reply(peer, xid, ErrorCode.NO_AUTH)]

    def _reply(self, peer: Peer, xid: int, err: int = 0, body: r.Body | None = None) -> Reply:
        return reply(peer.id, xid, self._core.state.zxid, err, body)

    def _read_handler(self, handler: Callable[[Peer, Any], r.Body | None]) -> Handler:
        state = self._core.state

        def read(peer: Peer, xid: int, request: Any, now_ms: int) -> list[Effect]:
            try:
                return [reply(peer.id, xid, state.zxid, 0, handler(peer, request))]
            except RequestRefused as refusal:
                return [self._reply(peer, xid, refusal.code)]

        return read

    def _write_handler(
        self, plan: Callable[[Peer, Any], NodeChange | None], reply_body: Callable[[Any, Any], r.Body | None]
    ) -> Handler:
        state, transact = self._core.state, self._core.transact

        def write(peer: Peer, xid: int, request: Any, now_ms: int) -> list[Effect]:
            try:
                change = plan(peer, request)
            except RequestRefused as refusal:
                return [*transact(None, now_ms), self._reply(peer, xid, refusal.code)]
            effects = transact(change, now_ms)
            effects.append(reply(peer.id, xid, state.zxid, 0, reply_body(request, change)))
            return effects

        return write

    def _multi(self, peer: Peer, xid: int, request: r.MultiRequest, now_ms: int) -> list[Effect]:
        """Apply all operations under one zxid, or none. Each sees the changes of those before it."""
        core, zxid = self._core, self._core.next_zxid()
        changes: list[NodeChange] = []
        permissions: list[ReadPermissions] = []
        results: list[r.Result] = []
        try:
            self._apply_all(peer, request.operations, now_ms, changes, permissions, results)
        except RequestRefused as refusal:
            failed = self._failed(peer, xid, len(request.operations) - len(results), len(results), refusal.code)
            return [core.state.commit(zxid, now_ms, ()), failed]
        notified = zip(changes, permissions, strict=True) if core.watches.any else ()
        notifications = [
            notification for change, allowed in notified for notification in core.fire_watches(change, allowed, zxid)
        ]
        body = r.MultiReply(tuple(results))
        return [core.state.commit(zxid, now_ms, changes), *notifications, self._reply(peer, xid, 0, body)]

    def _apply_all(
        self,
        peer: Peer,
        operations: tuple[r.Operation, ...],
        now_ms: int,
        changes: list[NodeChange],
        permissions: list[ReadPermissions],
        results: list[r.Result],
    ) -> None:
        """Apply all operations and fill ``changes``, ``permissions`` and ``results``; undo them on any error.

        A refused multi consumes its zxid. Any other error gives the zxid back, because the network
        server concludes from an unchanged zxid that the engine has not changed.
        """
        state, watched, plans, result = (
            self._core.state,
            self._core.watches.any,
            self._writes.plans,
            self._writes.result,
        )
        undos: list[Callable[[], None]] = []
        try:
            for operation in map(in_multi, operations):
                change = plans[type(operation)](peer, operation)
                if change is not None:
                    undos.append(state.tree.inverse(change))
                    permissions.append(self._core.permissions(change) if watched else NOBODY)
                    state.apply(change, state.zxid, now_ms)
                    changes.append(change)
                results.append(result(operation, change))
        except BaseException as error:
            for undo in reversed(undos):
                undo()
            if not isinstance(error, RequestRefused):
                state.zxid -= 1
            raise

    def _failed(self, peer: Peer, xid: int, skipped: int, done: int, code: int) -> Reply:
        """Return the reply to a failed multi.

        The results are 0 before the failed operation, its code, and RUNTIME_INCONSISTENCY after it.
        MARSHALLING_ERROR has no results.
        """
        if code == ErrorCode.MARSHALLING_ERROR:
            return self._reply(peer, xid, code)
        codes = [0] * done + [code] + [int(ErrorCode.RUNTIME_INCONSISTENCY)] * (skipped - 1)
        return self._reply(peer, xid, 0, r.MultiReply(tuple(map(r.ErrorReply, codes))))

    def _set_watches(
        self, peer: Peer, xid: int, request: r.SetWatchesRequest | r.SetWatches2Request, now_ms: int
    ) -> list[Effect]:
        return [*self._watch_handlers.rearm(peer, request, self._core.state.zxid), self._reply(peer, xid)]

    def _auth(self, peer: Peer, xid: int, request: r.AuthRequest, now_ms: int) -> list[Effect]:
        """Add an identity, or close the connection if the scheme is not supported. The reply's zxid is 0."""
        if request.scheme == "digest":
            proved = self._add_digest(peer, Identity("digest", digest_of(request.auth or b"")))
        else:
            proved = request.scheme == "ip" or _is_named(peer, request.scheme)
        if not proved:
            return [Reply(peer.id, xid, 0, ErrorCode.AUTH_FAILED, None), *self._core.drop(peer.id)]
        return [Reply(peer.id, xid, 0, 0, None)]

    def _add_digest(self, peer: Peer, identity: Identity) -> bool:
        """Add a digest identity, which any client may claim. Return False if it is too long or one too many."""
        if identity not in peer.identities:
            if len(peer.identities) >= MAX_IDENTITIES or len(identity.id) > MAX_IDENTITY_LENGTH:
                return False
            self._add_identity(peer, identity)
        if identity.id == self._core.config.super_digest:
            self._add_identity(peer, SUPER)
        return True

    def _add_identity(self, peer: Peer, identity: Identity) -> None:
        if identity not in peer.identities:
            peer.identities.append(identity)
            peer.admitted = self._core.is_authorized(peer.identities)

    def _sasl(self, peer: Peer, xid: int, request: r.SaslRequest, now_ms: int) -> list[Effect]:
        """Handle a SASL token. A server without SASL replies without a token and adds no identity."""
        if request.token is None:
            return self._core.drop(peer.id)
        if peer.sasl is None:
            return [Reply(peer.id, xid, 0, 0, r.SaslReply(None))]
        try:
            token = peer.sasl.answer(request.token)
        except ProofRefusedError as refusal:
            return self._reject_authentication(peer, xid, refusal)
        if peer.sasl.user is not None:
            self._add_identity(peer, Identity("sasl", peer.sasl.user))
        return [Reply(peer.id, xid, 0, 0, r.SaslReply(token))]

    def _reject_authentication(self, peer: Peer, xid: int, refusal: ProofRefusedError) -> list[Effect]:
        """Close the connection. The error has a body, because Java's client reads a token despite the error."""
        log.info("session 0x%x: SASL authentication failed: %s", peer.session.id, refusal)
        required = "sasl" in self._core.config.required_schemes
        code = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if required else ErrorCode.AUTH_FAILED
        return [Reply(peer.id, xid, 0, code, r.SaslReply(None)), *self._core.drop(peer.id)]

    def _ping(self, peer: Peer, xid: int, request: r.PingRequest, now_ms: int) -> list[Effect]:
        return [self._reply(peer, PING_XID)]

    def _close_session(self, peer: Peer, xid: int, request: r.CloseSessionRequest, now_ms: int) -> list[Effect]:
        effects = self._core.end_session(peer.session, now_ms)
        return [*effects, self._reply(peer, xid), *self._core.drop(peer.id)]

    def _refuse(self, code: int, peer: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        """Refuse a write that this server does not support. It consumes a zxid like any write."""
        return [*self._core.transact(None, now_ms), self._reply(peer, xid, code)]

    def _unknown(self, peer: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        return [Reply(peer.id, xid, -1, ErrorCode.UNIMPLEMENTED, None), *self._core.drop(peer.id)]

    def _malformed(self, peer: Peer, xid: int, request: r.MalformedRequest, now_ms: int) -> list[Effect]:
        if request.op in (OpCode.AUTH, OpCode.SASL):
            return self._core.drop(peer.id)
        if request.op in WRITES:
            return self._refuse(ErrorCode.MARSHALLING_ERROR, peer, xid, request, now_ms)
        return [self._reply(peer, xid, ErrorCode.MARSHALLING_ERROR)]


def _is_named(peer: Peer, scheme: str) -> bool:
    """Whether the client has an identity of its TLS certificate and ``scheme`` is x509."""
    return scheme == "x509" and any(identity.scheme == scheme for identity in peer.identities)
