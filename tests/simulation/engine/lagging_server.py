"""A server of the ensemble that lags: it answers reads with the state of one moment, until it has
caught up.

A write or a sync is answered when it has caught up. The watches that it armed until then fire if
what they watch has changed.
"""

from __future__ import annotations

from typing import Any

from distsync._server import effects
from distsync._server.engine import Engine
from distsync._wire import records
from distsync._wire.codes import ErrorCode

READS = (records.ExistsRequest, records.GetDataRequest, records.GetChildrenRequest, records.GetChildren2Request)


class LaggingServer:
    """The present state of the ensemble, for one client."""

    def __init__(self, engine: Engine) -> None:
        self._engine = Engine(engine.config)
        self._engine.restore(engine.snapshot())
        self._zxid = engine.zxid
        self._data: set[str] = set()
        self._exist: set[str] = set()
        self._child: set[str] = set()

    def accepts(self, peer: int, request: records.ConnectRequest, now_ms: int) -> bool:
        """Return whether it knows the session, and everything that its client has seen."""
        answers = self._engine.connect(peer, request, now_ms)
        return any(isinstance(each, effects.Accepted) and each.response.session_id for each in answers)

    def read(self, peer: int, xid: int, request: Any, now_ms: int) -> list[effects.Effect]:
        """Answer a request of one of the types READS."""
        answers = self._engine.step(peer, xid, request, now_ms)
        reply = next(each for each in answers if isinstance(each, effects.Reply))
        if request.watch:
            self._arm(request, reply.err)
        return answers

    def _arm(self, request: Any, err: int) -> None:
        if isinstance(request, records.ExistsRequest) and err == ErrorCode.NO_NODE:
            self._exist.add(request.path)
        elif err == 0:
            children = isinstance(request, (records.GetChildrenRequest, records.GetChildren2Request))
            (self._child if children else self._data).add(request.path)

    def watches(self) -> records.SetWatchesRequest:
        """Return the watches that it has armed, as of its state."""
        return records.SetWatchesRequest(
            self._zxid, tuple(sorted(self._data)), tuple(sorted(self._exist)), tuple(sorted(self._child))
        )
