"""A client that sends any records of the wire, including those that a library would not send."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

from distsync._wire import records as r
from distsync._wire.codes import PING_XID, SYNC_CONNECTED, ErrorCode
from distsync._wire.message_codec import (
    decode_connect_response,
    decode_event,
    decode_reply,
    encode_connect,
    encode_request,
)
from helpers.frame_client import HELLO, Link

BODIES: dict[type, type[r.Body]] = {
    r.CreateRequest: r.CreateReply,
    r.Create2Request: r.Create2Reply,
    r.CreateContainerRequest: r.Create2Reply,
    r.CreateTtlRequest: r.Create2Reply,
    r.ExistsRequest: r.StatReply,
    r.GetDataRequest: r.GetDataReply,
    r.SetDataRequest: r.StatReply,
    r.GetAclRequest: r.GetAclReply,
    r.SetAclRequest: r.StatReply,
    r.GetChildrenRequest: r.GetChildrenReply,
    r.GetChildren2Request: r.GetChildren2Reply,
    r.SyncRequest: r.SyncReply,
    r.MultiRequest: r.MultiReply,
    r.MultiReadRequest: r.MultiReply,
    r.GetEphemeralsRequest: r.GetEphemeralsReply,
    r.GetAllChildrenNumberRequest: r.GetAllChildrenNumberReply,
    r.WhoAmIRequest: r.WhoAmIReply,
    r.SaslRequest: r.SaslReply,
    r.AddWatchRequest: r.ErrorReply,
}
"""What follows the header; nothing for those that are not here."""


class Speaker:
    """A session, or an attempt at one. Events that come before a reply are kept."""

    def __init__(self, port: int, root: str = "", hello: r.ConnectRequest = HELLO) -> None:
        self.port = port
        self.link = Link(port)
        self.root = root
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.link.send(encode_connect(hello))
        self.greeting = self.link.frame()

    def tell(self, request: r.Request) -> tuple[int, int, Any]:
        """(zxid, err, body) of the reply."""
        self.xid += 1
        self.link.send(encode_request(self.xid, request))
        xid, zxid, err, body = self.reply(BODIES.get(type(request)))
        assert xid == (PING_XID if isinstance(request, r.PingRequest) else self.xid)
        return zxid, err, body

    def send_raw(self, op: int, body: bytes) -> None:
        self.xid += 1
        self.link.send(struct.pack(">ii", self.xid, op) + body)

    def err(self, request: r.Request) -> int:
        return self.tell(request)[1]

    def body(self, request: r.Request) -> Any:
        _, err, body = self.tell(request)
        assert err == 0, ErrorCode(err).name
        return body

    def stat(self, path: str) -> r.Stat:
        stat: r.Stat = self.body(r.ExistsRequest(path)).stat
        return stat

    def told(self, request: r.Request) -> list[tuple[int, str]]:
        """The events that come with the answer to this request, their paths without the root."""
        self.events.clear()
        self.tell(request)
        return [(type, path.removeprefix(self.root)) for type, path in self.events]

    def auth(self, credentials: bytes) -> int:
        return self.err(r.AuthRequest(0, "digest", credentials))

    def hello_again(self, **change: Any) -> dict[str, Any]:
        """The handshake that asks for this session."""
        accepted = decode_connect_response(self.greeting)
        return {"session_id": accepted.session_id, "password": accepted.password, **change}

    def close(self) -> None:
        """The session is over, though the connection may have been closed before."""
        try:
            self.tell(r.CloseSessionRequest())
        except (AssertionError, OSError):
            if self.greeting and self.hello_again()["session_id"]:
                self._close_elsewhere()
        self.link.close()

    def _close_elsewhere(self) -> None:
        again = Speaker(self.port, hello=r.ConnectRequest(**self.hello_again()))
        with suppress(AssertionError, OSError):
            again.tell(r.CloseSessionRequest())
        again.link.close()

    def reply(self, body: type | None = None) -> tuple[int, int, int, Any]:
        """(xid, zxid, err, body) of the next one."""
        while True:
            frame = self.link.frame()
            assert frame, "the server has closed the connection"
            if frame[:4] != b"\xff\xff\xff\xff":
                return decode_reply(frame, body)
            event = decode_event(frame)[1]
            assert event.state == SYNC_CONNECTED
            self.events.append((event.type, event.path))
