"""Encoding and decoding of frames: a header, followed by a record (record_layouts.py).

No function except framed_reply adds or expects the length of the frame; see frames.py. The functions
for servers come first, then those for clients (tests and tools).
"""

from __future__ import annotations

import struct

from distsync._wire.codes import EVENT_XID
from distsync._wire.field_codec import read_buffer, write_buffer
from distsync._wire.frames import WireError
from distsync._wire.record_codec import OPERATIONS, READERS, REQUESTS, read, write
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
_CONNECT_REQUEST = struct.Struct(">iqiq")
_CONNECT_RESPONSE = struct.Struct(">iiq")
_HEADER_BYTES = _REQUEST_HEADER.size
_unpack_header = _REQUEST_HEADER.unpack_from
_REQUEST_READERS = {int(op): READERS[kind] for op, kind in REQUESTS.items()}


def decode_connect(frame: bytes) -> ConnectRequest:
    """Decode a connect request. Raises WireError if the frame is not one."""
    try:
        protocol, zxid, timeout_ms, session = _CONNECT_REQUEST.unpack_from(frame)
        password, at = read_buffer(frame, _CONNECT_REQUEST.size)
    except struct.error:
        raise WireError(f"invalid connect request of {len(frame)} bytes") from None
    return ConnectRequest(protocol, zxid, timeout_ms, session, password, _read_only(frame, at))


def decode_request(frame: bytes) -> tuple[int, Request]:
    """Return the xid and the request; a MalformedRequest if only its header is valid.

    Raises WireError if the frame is too short for a header.
    """
    if len(frame) < _HEADER_BYTES:
        raise WireError(f"request of only {len(frame)} bytes")
    xid, op = _unpack_header(frame)
    reader = _REQUEST_READERS.get(op)
    if reader is None:
        return xid, UnknownRequest(op)
    try:
        return xid, reader(frame, _HEADER_BYTES)[0]
    except (struct.error, WireError):
        return xid, MalformedRequest(op)


def encode_connect_response(response: ConnectResponse) -> bytes:
    head = _CONNECT_RESPONSE.pack(response.protocol_version, response.timeout_ms, response.session_id)
    return head + write_buffer(response.password) + _write_read_only(response.read_only)


def encode_reply(xid: int, zxid: int, err: int, body: Body | None) -> bytes:
    header = _REPLY_HEADER.pack(xid, zxid, err)
    return header if body is None else header + write(body)


def framed_reply(xid: int, zxid: int, err: int, body: Body | None) -> bytes:
    """Encode a reply with the length of its frame. Frequent replies are packed in one call."""
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
    return _CONNECT_REQUEST.pack(*request[:4]) + write_buffer(request.password) + _write_read_only(request.read_only)


def encode_request(xid: int, request: Request) -> bytes:
    if isinstance(request, (UnknownRequest, MalformedRequest)):
        return _REQUEST_HEADER.pack(xid, request.op)
    return _REQUEST_HEADER.pack(xid, OPERATIONS[type(request)]) + write(request)


def decode_connect_response(frame: bytes) -> ConnectResponse:
    protocol, timeout_ms, session = _CONNECT_RESPONSE.unpack_from(frame)
    password, at = read_buffer(frame, _CONNECT_RESPONSE.size)
    return ConnectResponse(protocol, timeout_ms, session, password, _read_only(frame, at))


def decode_reply(frame: bytes, body: type[Body] | None) -> tuple[int, int, int, Body | None]:
    """Return xid, zxid, err and body. A body of the given type is expected if err is 0."""
    xid, zxid, err = _REPLY_HEADER.unpack_from(frame)
    return xid, zxid, err, None if err or body is None else read(body, frame, _REPLY_HEADER.size)[0]


def decode_event(frame: bytes) -> tuple[int, WatcherEvent]:
    """Return the zxid and the event."""
    _, zxid, _ = _REPLY_HEADER.unpack_from(frame)
    return zxid, read(WatcherEvent, frame, _REPLY_HEADER.size)[0]


def _read_only(frame: bytes, offset: int) -> bool | None:
    """Return the read-only byte, which old clients neither send nor expect."""
    return bool(frame[offset]) if offset < len(frame) else None


def _write_read_only(value: bool | None) -> bytes:
    return b"" if value is None else bytes([value])
