"""A client of a script (random_scripts.py): a session, and its current connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from distsync._wire import records as r
from distsync._wire.codes import AUTH_XID, EVENT_XID, PING_XID
from distsync._wire.message_codec import decode_event, decode_reply, encode_request
from helpers.frame_client import Link
from helpers.raw_client import BODIES
from helpers.timing import PATIENCE

XIDS: dict[type, int] = {r.PingRequest: PING_XID, r.AuthRequest: AUTH_XID}
EVENT = EVENT_XID.to_bytes(4, "big", signed=True)
TIMEOUT_MS = 30_000
END = "the connection is closed"
SILENCE = "no answer"
SILENT_S = PATIENCE


class Client:
    """One of the script's clients: a session, and the connection that it has at the moment."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.link: Link | None = None
        self.forget()
        self.xid = 0

    def connect(self, hello: r.ConnectRequest) -> r.ConnectResponse | str:
        """Return the server's reply; END if it closes the connection without one."""
        self.link = Link(self.port)
        self.link.socket.settimeout(SILENT_S)
        try:
            answer = self.link.greet(hello)
        except Exception:  # there was no frame to decode
            self.disconnect()
            return END
        if answer.session_id == 0:
            self.disconnect()
        else:
            self.session = answer
        return answer

    def hello(self, zxid: int = 0, right_password: bool = True, timeout_ms: int = TIMEOUT_MS) -> r.ConnectRequest:
        password = self.session.password if right_password else b"wrong" + bytes(11)
        return r.ConnectRequest(0, zxid, timeout_ms, self.session.session_id, password, False)

    def forget(self) -> None:
        """Request a new session at the next handshake."""
        self.session = r.ConnectResponse(0, 0, 0, bytes(16))

    def disconnect(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def leave(self) -> None:
        """Close the connection, and wait until the server has noticed: its watches are gone."""
        if self.link is not None:
            with suppress(OSError):
                self.link.socket.shutdown(socket.SHUT_WR)
                while self.link.frame():
                    pass
        self.disconnect()

    def ask(self, *requests: Any) -> Iterator[Any]:
        """Return every frame up to the last reply, decoded: events and replies; END at the end if the
        server closes the connection.
        """
        assert self.link is not None
        end = END
        try:
            self.link.send(*map(self._encoded, requests))
            for request in requests:
                yield from self._answer(self.link, BODIES.get(type(request)))
            return
        except (ConnectionError, EOFError):
            pass
        except TimeoutError:
            end = SILENCE
        self.disconnect()
        yield end

    def _encoded(self, request: Any) -> bytes:
        self.xid += 1
        return encode_request(XIDS.get(type(request), self.xid), request)

    @staticmethod
    def _answer(link: Link, body: type | None) -> Iterator[Any]:
        while True:
            frame = link.frame()
            if not frame:
                raise EOFError
            if frame[:4] != EVENT:
                yield decode_reply(frame, body)
                return
            yield decode_event(frame)
