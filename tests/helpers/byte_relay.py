"""A relay between a client and a server that decides in which pieces answers come, and when."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Relay:
    """Forwards connections to ``hosts``, one after the other.

    Replies are forwarded in pieces of ``piece`` bytes, up to a number of bytes in all (None for no
    limit), and then nothing more, or the end. With ``in_turn``, a lock, it reads nothing while it
    has something to write.
    """

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.piece = 1 << 16
        self.most: int | None = None
        self.hangs_up = False
        self.in_turn: Any = nullcontext()
        self.connections = 0
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
            except OSError:
                return
            self.connections += 1
            self._sockets += [client, server]
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._up, client, server)
            self._start(self._down, server, client)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(1 << 16):
                server.sendall(data)
                with self.in_turn:
                    pass
        except OSError:
            pass
        self._end(client, server)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                for start in range(0, len(data), self.piece):
                    self._pass_on(client, data[start : start + self.piece])
        except OSError:
            pass
        self._end(client, server)

    def _pass_on(self, client: socket.socket, piece: bytes) -> None:
        if self.most is None:
            with self.in_turn:
                client.sendall(piece)
            return
        passed = piece[: self.most]
        self.most -= len(passed)
        client.sendall(passed)
        if self.hangs_up and not self.most:
            self.most = None
            raise OSError("the connection is over")

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for one in ends:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._end(*self._sockets)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()
