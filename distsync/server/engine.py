"""The server as a state machine: a request and the time go in, effects come out.

Rules for this file: no clock, thread, socket, loop or file; time is an int in ms passed in, and a peer is an int that
the rim chooses per connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distsync.server.config import EngineConfig
from distsync.server.effects import Effect
from distsync.wire.records import ConnectRequest, Request


class Engine:
    """See the methods."""

    def __init__(self, config: EngineConfig = EngineConfig()) -> None:
        self.config = config

    def connect(self, peer: int, request: ConnectRequest, now_ms: int, address: str = "127.0.0.1") -> list[Effect]:
        """The first frame of ``peer``, which connects from IP ``address``."""
        raise NotImplementedError

    def step(self, peer: int, xid: int, request: Request, now_ms: int) -> list[Effect]:
        """One request of ``peer``."""
        raise NotImplementedError

    def hang_up(self, peer: int, now_ms: int) -> list[Effect]:
        """The connection of ``peer`` is gone; its session lives on until its time-out."""
        raise NotImplementedError

    def advance(self, now_ms: int) -> list[Effect]:
        """Sessions that are due have expired, and containers that are due are gone."""
        raise NotImplementedError

    def next_tick(self) -> int | None:
        """When advance() wants to be called next at the latest; None: there is nothing to wait for."""
        raise NotImplementedError

    def expire(self, session_id: int, now_ms: int) -> list[Effect]:
        """The session has ended as if its time-out had passed."""
        raise NotImplementedError

    def paths(self) -> Iterator[str]:
        """Every znode, ``/zookeeper`` and those below it included."""
        raise NotImplementedError

    def replay(self, payload: bytes) -> None:
        """The state is as it was after the Commit of this payload; payloads that it contains already do nothing."""
        raise NotImplementedError

    def snapshot(self) -> Iterator[bytes]:
        """The whole state, in pieces; to be read to its end before the next call that changes the state."""
        raise NotImplementedError

    def restore(self, pieces: Iterable[bytes]) -> None:
        """The state is the one that snapshot() wrote; only on a fresh engine, before replay()."""
        raise NotImplementedError
