"""Bytes to records and back. But for framed_reply, no function here adds or expects the four bytes of length: frames.py
does.

Rules for this file: pure; it knows headers, record_layouts.py knows what follows them. The server's direction comes
first, then the client's (tests, tools).
"""

from __future__ import annotations

import struct

from distsync._wire.codes import EVENT_XID
from distsync._wire.fields import read_buffer, write_buffer
from distsync._wire.frames import WireError
from distsync._wire.record_layouts import OPERATIONS, READERS, REQUESTS, read, write
from distsync._wire.records import (
    Body,
    ConnectRequest,
    ConnectResponse,
    CreateReply,
    MalformedRequest,
    Request,
    StatReply,
    UnknownRequest,
    WatcherEvent,
)

_REQUEST_HEADER = struct.Struct(">ii")
_REPLY_HEADER = struct.Struct(">iqi")
_FRAMED_REPLY = struct.Struct(">iiqi")
_FRAMED_PATH = struct.Struct(">iiqii")
_FRAMED_STAT = struct.Struct(">iiqiqqqqiiiqiiq")
_CONNECT = struct.Struct(">iqiq")
_CONNECTED = struct.Struct(">iiq")
_HEADER_BYTES = _REQUEST_HEADER.size
_read_header = _REQUEST_HEADER.unpack_from
_REQUEST_READERS = {int(op): READERS[kind] for op, kind in REQUESTS.items()}


def decode_connect(frame: bytes) -> ConnectRequest:
    """Raises WireError when the frame is no connect request."""
    try:
        protocol, zxid, timeout_ms, session = _CONNECT.unpack_from(frame)
        password, at = read_buffer(frame, _CONNECT.size)
    except struct.error:
        raise WireError(f"a connect request of {len(frame)} bytes") from None
    return ConnectRequest(protocol, zxid, timeout_ms, session, password, _read_only(frame, at))


def decode_request(frame: bytes) -> tuple[int, Request]:
    """The xid and the request; MalformedRequest where only the header can be read, WireError where not even that."""
    if len(frame) < _HEADER_BYTES:
        raise WireError(f"a request of {len(frame)} bytes")
    xid, op = _read_header(frame)
    reader = _REQUEST_READERS.get(op)
    if reader is None:
        return xid, UnknownRequest(op)
    try:
        return xid, reader(frame, _HEADER_BYTES)[0]
    except (struct.error, WireError):
        return xid, MalformedRequest(op)


def encode_connect_response(response: ConnectResponse) -> bytes:
    head = _CONNECTED.pack(response.protocol_version, response.timeout_ms, response.session_id)
    return head + write_buffer(response.password) + _write_read_only(response.read_only)


def encode_reply(xid: int, zxid: int, err: int, body: Body | None) -> bytes:
    header = _REPLY_HEADER.pack(xid, zxid, err)
    return header if body is None else header + write(body)


def framed_reply(xid: int, zxid: int, err: int, body: Body | None) -> bytes:
    """encode_reply() with its length in front: in one go, where that is possible."""
    if body is None:
        return _FRAMED_REPLY.pack(16, xid, zxid, err)
    kind = type(body)
    if kind is CreateReply:
        path = body[0].encode()  # type: ignore[union-attr]
        return _FRAMED_PATH.pack(20 + len(path), xid, zxid, 0, len(path)) + path
    if kind is StatReply:
        return _FRAMED_STAT.pack(84, xid, zxid, 0, *body[0])  # type: ignore[misc]
    written = write(body)
    return _FRAMED_REPLY.pack(16 + len(written), xid, zxid, err) + written


def encode_event(zxid: int, event: WatcherEvent) -> bytes:
    return _REPLY_HEADER.pack(EVENT_XID, zxid, 0) + write(event)


def encode_connect(request: ConnectRequest) -> bytes:
    return _CONNECT.pack(*request[:4]) + write_buffer(request.password) + _write_read_only(request.read_only)


def encode_request(xid: int, request: Request) -> bytes:
    if isinstance(request, (UnknownRequest, MalformedRequest)):
        return _REQUEST_HEADER.pack(xid, request.op)
    return _REQUEST_HEADER.pack(xid, OPERATIONS[type(request)]) + write(request)


def decode_connect_response(frame: bytes) -> ConnectResponse:
    protocol, timeout_ms, session = _CONNECTED.unpack_from(frame)
    password, at = read_buffer(frame, _CONNECTED.size)
    return ConnectResponse(protocol, timeout_ms, session, password, _read_only(frame, at))


def decode_reply(frame: bytes, body: type[Body] | None) -> tuple[int, int, int, Body | None]:
    """(xid, zxid, err, body), where a body of that type is expected when err is 0."""
    xid, zxid, err = _REPLY_HEADER.unpack_from(frame)
    return xid, zxid, err, None if err or body is None else read(body, frame, _REPLY_HEADER.size)[0]


def decode_event(frame: bytes) -> tuple[int, WatcherEvent]:
    """(zxid, event)."""
    _, zxid, _ = _REPLY_HEADER.unpack_from(frame)
    return zxid, read(WatcherEvent, frame, _REPLY_HEADER.size)[0]


def _read_only(frame: bytes, offset: int) -> bool | None:
    """The byte that old clients do not send, nor expect."""
    return bool(frame[offset]) if offset < len(frame) else None


def _write_read_only(value: bool | None) -> bytes:
    return b"" if value is None else bytes([value])
