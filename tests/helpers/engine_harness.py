"""An engine with clients that are easy to write down: each request answers its reply, events are kept per client."""

from __future__ import annotations

from typing import Any

from distsync._server.effects import Accepted, Commit, Drop, Effect, Notify, Reply
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._wire import records as r
from distsync._wire.codes import PING_XID, ErrorCode

NOW_MS = 1_700_000_000_000
TICK_MS = 500


class Bench:
    """An engine, its time, and all that it asked for."""

    def __init__(self, **settings: Any) -> None:
        times = {"tick_time_ms": TICK_MS, "expiry_ms": TICK_MS}
        self.config = EngineConfig(**{**times, "forgive_pauses": False, **settings})
        self.engine = Engine(self.config)
        self.now_ms = NOW_MS
        self.log: list[Effect] = []
        self._peers = 0

    def note(self, effects: list[Effect]) -> list[Effect]:
        self.log += effects
        return effects

    def client(self, *, subject: str = "", sasl: Any = None, **connect: Any) -> Client:
        self._peers += 1
        return Client(self, self._peers, r.ConnectRequest(**connect), subject=subject, sasl=sasl)

    def pass_time(self, ms: int) -> list[Effect]:
        """As a rim does it: advance() whenever the engine wants it."""
        end, effects = self.now_ms + ms, []
        while (due := self.engine.next_tick()) is not None and due <= end:
            self.now_ms = max(due, self.now_ms)
            effects += self.note(self.engine.advance(self.now_ms))
        self.now_ms = end
        return effects

    def payloads(self) -> list[bytes]:
        return [effect.payload for effect in self.log if isinstance(effect, Commit)]


class Client:
    """A connection. ``response`` is None when the handshake was dropped without a word."""

    def __init__(
        self, bench: Bench, peer: int, request: r.ConnectRequest, address: str = "127.0.0.1", **proof: Any
    ) -> None:
        self.bench = bench
        self.peer = peer
        self.xid = 0
        effects = bench.note(bench.engine.connect(peer, request, bench.now_ms, address, **proof))
        accepted = [effect.response for effect in effects if isinstance(effect, Accepted) and effect.peer_id == peer]
        self.response = accepted[0] if accepted else None

    @property
    def session_id(self) -> int:
        return self.response.session_id if self.response else 0

    def send(self, request: r.Request) -> list[Effect]:
        """Everything that the request leads to."""
        self.xid += 1
        return self.bench.note(self.bench.engine.step(self.peer, self.xid, request, self.bench.now_ms))

    def ask(self, request: r.Request) -> Reply:
        replies = [effect for effect in self.send(request) if isinstance(effect, Reply) and effect.peer_id == self.peer]
        (reply,) = replies
        assert reply.xid == (PING_XID if isinstance(request, r.PingRequest) else self.xid)
        return reply

    def body(self, request: r.Request) -> Any:
        """The body of a reply without error."""
        reply = self.ask(request)
        assert reply.err == 0, ErrorCode(reply.err).name
        return reply.body

    def err(self, request: r.Request) -> int:
        return self.ask(request).err

    def create(self, path: str, data: bytes | None = b"", flags: int = 0, acl: tuple[r.Acl, ...] = r.OPEN_ACL) -> str:
        """The path of the new node."""
        created: str = self.body(r.CreateRequest(path, data, acl, flags)).path
        return created

    def stat(self, path: str) -> r.Stat:
        stat: r.Stat = self.body(r.ExistsRequest(path)).stat
        return stat

    def children(self, path: str) -> set[str]:
        return set(self.body(r.GetChildrenRequest(path)).children)

    def auth(self, credentials: bytes) -> int:
        return self.err(r.AuthRequest(0, "digest", credentials))

    def disconnect(self) -> None:
        self.bench.note(self.bench.engine.on_disconnect(self.peer, self.bench.now_ms))

    def again(self, **change: Any) -> Client:
        """A new connection that asks for this one's session."""
        assert self.response is not None
        mine = {"session_id": self.session_id, "password": self.response.password}
        return self.bench.client(**{**mine, **change})

    def events(self) -> list[tuple[int, str]]:
        """(type, path) of all events so far; they are forgotten here."""
        mine = [one for one in self.bench.log if isinstance(one, Notify) and one.peer_id == self.peer]
        self.bench.log = [one for one in self.bench.log if one not in mine]
        return [(one.event.type, one.event.path) for one in mine]

    @property
    def dropped(self) -> bool:
        return Drop(self.peer) in self.bench.log
