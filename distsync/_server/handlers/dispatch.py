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
"""(link, xid, request, now_ms)"""

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
        self._watching = WatchHandlers(core.tree, core.watches)
        self._writes = Writes(core.tree, core.config.enforce_quota, core.policy)
        self._handlers: dict[type[r.Request], Handler] = {
            **{kind: self._reader(answer) for kind, answer in self._reads.answers.items()},
            **{kind: self._reader(answer) for kind, answer in self._watching.answers.items()},
            **{kind: self._writer(plan, self._writes.body) for kind, plan in self._writes.plans.items()},
            r.CreateRequest: self._writer(self._writes.plans[r.CreateRequest], created),
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

    def handle(self, link: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        if link.admitted:
            return self._handlers[type(request)](link, xid, request, now_ms)
        return self._handle_unauthenticated(link, xid, request, now_ms)

    def _handle_unauthenticated(self, link: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        """Handle a request of a client that lacks a required identity."""
        if not isinstance(request, _PROOFS) and self._core.missing_scheme(link.identities):
            closed = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
            return [Reply(link.peer, xid, 0, closed, None), *self._core.drop(link.peer)]
        if isinstance(request, _UNAUTHENTICATED_OPS):
            return self._handlers[type(request)](link, xid, request, now_ms)
        return [self._reply(link, xid, ErrorCode.NO_AUTH)]

    def _reply(self, link: Peer, xid: int, err: int = 0, body: r.Body | None = None) -> Reply:
        return reply(link.peer, xid, self._core.state.zxid, err, body)

    def _reader(self, answer: Callable[[Peer, Any], r.Body | None]) -> Handler:
        state = self._core.state

        def read(link: Peer, xid: int, request: Any, now_ms: int) -> list[Effect]:
            try:
                return [reply(link.peer, xid, state.zxid, 0, answer(link, request))]
            except RequestRefused as refusal:
                return [self._reply(link, xid, refusal.code)]

        return read

    def _writer(
        self, plan: Callable[[Peer, Any], NodeChange | None], answer: Callable[[Any, Any], r.Body | None]
    ) -> Handler:
        state, transact = self._core.state, self._core.transact

        def write(link: Peer, xid: int, request: Any, now_ms: int) -> list[Effect]:
            try:
                change = plan(link, request)
            except RequestRefused as refusal:
                return [*transact(None, now_ms), self._reply(link, xid, refusal.code)]
            effects = transact(change, now_ms)
            effects.append(reply(link.peer, xid, state.zxid, 0, answer(request, change)))
            return effects

        return write

    def _multi(self, link: Peer, xid: int, request: r.MultiRequest, now_ms: int) -> list[Effect]:
        """Apply all operations under one zxid, or none. Each sees the changes of those before it."""
        core, zxid = self._core, self._core.next_zxid()
        changes: list[NodeChange] = []
        audiences: list[ReadPermissions] = []
        results: list[r.Result] = []
        try:
            self._apply_all(link, request.operations, now_ms, changes, audiences, results)
        except RequestRefused as refusal:
            failed = self._failed(link, xid, len(request.operations) - len(results), len(results), refusal.code)
            return [core.state.commit(zxid, now_ms, ()), failed]
        notified = zip(changes, audiences, strict=True) if core.watches.any else ()
        notices = [notice for change, audience in notified for notice in core.fire_watches(change, audience, zxid)]
        body = r.MultiReply(tuple(results))
        return [core.state.commit(zxid, now_ms, changes), *notices, self._reply(link, xid, 0, body)]

    def _apply_all(
        self,
        link: Peer,
        operations: tuple[r.Operation, ...],
        now_ms: int,
        changes: list[NodeChange],
        audiences: list[ReadPermissions],
        results: list[r.Result],
    ) -> None:
        """Apply all operations and fill ``changes``, ``audiences`` and ``results``; undo them on any error.

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
                change = plans[type(operation)](link, operation)
                if change is not None:
                    undos.append(state.tree.inverse(change))
                    audiences.append(self._core.audience(change) if watched else NOBODY)
                    state.apply(change, state.zxid, now_ms)
                    changes.append(change)
                results.append(result(operation, change))
        except BaseException as error:
            for undo in reversed(undos):
                undo()
            if not isinstance(error, RequestRefused):
                state.zxid -= 1
            raise

    def _failed(self, link: Peer, xid: int, skipped: int, done: int, code: int) -> Reply:
        """Return the reply to a failed multi.

        The results are 0 before the failed operation, its code, and RUNTIME_INCONSISTENCY after it.
        MARSHALLING_ERROR has no results.
        """
        if code == ErrorCode.MARSHALLING_ERROR:
            return self._reply(link, xid, code)
        codes = [0] * done + [code] + [int(ErrorCode.RUNTIME_INCONSISTENCY)] * (skipped - 1)
        return self._reply(link, xid, 0, r.MultiReply(tuple(map(r.ErrorReply, codes))))

    def _set_watches(
        self, link: Peer, xid: int, request: r.SetWatchesRequest | r.SetWatches2Request, now_ms: int
    ) -> list[Effect]:
        return [*self._watching.rearm(link, request, self._core.state.zxid), self._reply(link, xid)]

    def _auth(self, link: Peer, xid: int, request: r.AuthRequest, now_ms: int) -> list[Effect]:
        """Add an identity, or close the connection if the scheme is not supported. The reply's zxid is 0."""
        if request.scheme == "digest":
            proved = self._add_digest(link, Identity("digest", digest_of(request.auth or b"")))
        else:
            proved = request.scheme == "ip" or _is_named(link, request.scheme)
        if not proved:
            return [Reply(link.peer, xid, 0, ErrorCode.AUTH_FAILED, None), *self._core.drop(link.peer)]
        return [Reply(link.peer, xid, 0, 0, None)]

    def _add_digest(self, link: Peer, identity: Identity) -> bool:
        """Add a digest identity, which any client may claim. Return False if it is too long or one too many."""
        if identity not in link.identities:
            if len(link.identities) >= MAX_IDENTITIES or len(identity.id) > MAX_IDENTITY_LENGTH:
                return False
            self._add_identity(link, identity)
        if identity.id == self._core.config.super_digest:
            self._add_identity(link, SUPER)
        return True

    def _add_identity(self, link: Peer, identity: Identity) -> None:
        if identity not in link.identities:
            link.identities.append(identity)
            link.admitted = self._core.is_authorized(link.identities)

    def _sasl(self, link: Peer, xid: int, request: r.SaslRequest, now_ms: int) -> list[Effect]:
        """Handle a SASL token. A server without SASL replies without a token and adds no identity."""
        if request.token is None:
            return self._core.drop(link.peer)
        if link.sasl is None:
            return [Reply(link.peer, xid, 0, 0, r.SaslReply(None))]
        try:
            token = link.sasl.answer(request.token)
        except ProofRefusedError as refusal:
            return self._reject_authentication(link, xid, refusal)
        if link.sasl.user is not None:
            self._add_identity(link, Identity("sasl", link.sasl.user))
        return [Reply(link.peer, xid, 0, 0, r.SaslReply(token))]

    def _reject_authentication(self, link: Peer, xid: int, refusal: ProofRefusedError) -> list[Effect]:
        """Close the connection. The error has a body, because Java's client reads a token despite the error."""
        log.info("session 0x%x: SASL authentication failed: %s", link.session.id, refusal)
        required = "sasl" in self._core.config.required_schemes
        code = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if required else ErrorCode.AUTH_FAILED
        return [Reply(link.peer, xid, 0, code, r.SaslReply(None)), *self._core.drop(link.peer)]

    def _ping(self, link: Peer, xid: int, request: r.PingRequest, now_ms: int) -> list[Effect]:
        return [self._reply(link, PING_XID)]

    def _close_session(self, link: Peer, xid: int, request: r.CloseSessionRequest, now_ms: int) -> list[Effect]:
        effects = self._core.end_session(link.session, now_ms)
        return [*effects, self._reply(link, xid), *self._core.drop(link.peer)]

    def _refuse(self, code: int, link: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        """Refuse a write that this server does not support. It consumes a zxid like any write."""
        return [*self._core.transact(None, now_ms), self._reply(link, xid, code)]

    def _unknown(self, link: Peer, xid: int, request: r.Request, now_ms: int) -> list[Effect]:
        return [Reply(link.peer, xid, -1, ErrorCode.UNIMPLEMENTED, None), *self._core.drop(link.peer)]

    def _malformed(self, link: Peer, xid: int, request: r.MalformedRequest, now_ms: int) -> list[Effect]:
        if request.op in (OpCode.AUTH, OpCode.SASL):
            return self._core.drop(link.peer)
        if request.op in WRITES:
            return self._refuse(ErrorCode.MARSHALLING_ERROR, link, xid, request, now_ms)
        return [self._reply(link, xid, ErrorCode.MARSHALLING_ERROR)]


def _is_named(link: Peer, scheme: str) -> bool:
    """Whether the client has an identity of its TLS certificate and ``scheme`` is x509."""
    return scheme == "x509" and any(identity.scheme == scheme for identity in link.identities)
