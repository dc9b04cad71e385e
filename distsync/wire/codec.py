"""Bytes to records and back. No function here adds or expects the four bytes of length: frames.py does.

Rules for this file: pure; it knows layouts, not meanings.
"""

from __future__ import annotations

from distsync.wire.records import Body, ConnectRequest, ConnectResponse, Request, WatcherEvent


def decode_connect(frame: bytes) -> ConnectRequest:
    raise NotImplementedError


def decode_request(frame: bytes) -> tuple[int, Request]:
    """The xid and the request; MalformedRequest where only the header can be read, WireError where not even that."""
    raise NotImplementedError


def encode_connect_response(response: ConnectResponse) -> bytes:
    raise NotImplementedError


def encode_reply(xid: int, zxid: int, err: int, body: Body | None) -> bytes:
    raise NotImplementedError


def encode_event(zxid: int, event: WatcherEvent) -> bytes:
    raise NotImplementedError


def encode_connect(request: ConnectRequest) -> bytes:
    raise NotImplementedError


def encode_request(xid: int, request: Request) -> bytes:
    raise NotImplementedError


def decode_connect_response(frame: bytes) -> ConnectResponse:
    raise NotImplementedError


def decode_reply(frame: bytes, body: type[Body] | None) -> tuple[int, int, int, Body | None]:
    """(xid, zxid, err, body), where a body of that type is expected when err is 0."""
    raise NotImplementedError


def decode_event(frame: bytes) -> tuple[int, WatcherEvent]:
    """(zxid, event)."""
    raise NotImplementedError
