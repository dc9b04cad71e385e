"""A client of few words: frames over one TCP connection, made and read with distsync._wire."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import (
    decode_connect_response,
    decode_reply,
    encode_connect,
    encode_request,
)
from helpers.timing import PATIENCE

LOOPBACK = "127.0.0.1"
HELLO = r.ConnectRequest()


class Link:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=PATIENCE)
        self._stream = self.socket.makefile("rb")

    def send(self, *payloads: bytes) -> None:
        """All frames in one segment."""
        self.socket.sendall(b"".join(map(framed, payloads)))

    def frame(self) -> bytes:
        """The next frame; empty when the server has closed the connection."""
        head = self._stream.read(4)
        return self._stream.read(int.from_bytes(head, "big")) if head else b""

    def greet(self, request: r.ConnectRequest = HELLO) -> r.ConnectResponse:
        self.send(encode_connect(request))
        return decode_connect_response(self.frame())

    def ask(self, xid: int, request: r.Request, body: type | None = None) -> tuple[int, int, int, object]:
        self.send(encode_request(xid, request))
        return self.answer(body)

    def answer(self, body: type | None = None) -> tuple[int, int, int, object]:
        """xid, zxid, err, body."""
        return decode_reply(self.frame(), body)

    def at_end(self) -> bool:
        """Whether the server closes the connection without another byte."""
        try:
            return self._stream.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


@contextmanager
def linked(port: int, *, greeted: bool = True) -> Iterator[Link]:
    """A connection, with a session of its own that is closed at the end if ``greeted``."""
    link = Link(port)
    try:
        if greeted:
            link.greet()
        yield link
        if greeted:
            link.send(encode_request(0, r.CloseSessionRequest()))
            while link.frame():
                pass
    finally:
        link.close()


def says(port: int, sent: bytes) -> bytes:
    """All that the server answers to these bytes until it closes the connection."""
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE) as link:
        link.sendall(sent)
        return b"".join(iter(lambda: link.recv(65536), b""))
