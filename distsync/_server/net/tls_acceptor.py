"""Connections that are to be encrypted: accepted here, so that they count before their handshake is over.

Rules for this file: asyncio's own server makes a connection known only after the handshake; whoever never ends it
would count for nothing. No more is done here than to accept, to shake hands, and to refuse.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from distsync._server.net.event_loop import backlog

log = logging.getLogger("distsync.server")

PAUSE_S = 1.0
"""When the system has no file descriptor left; asyncio's own servers wait as long."""


class TlsAcceptor:
    """Accepts on ``listening``. ``room()`` is how many more connections there may be, those in a handshake included."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        seconds: float,
        room: Callable[[], int],
    ) -> None:
        self._listening = listening
        self._make = make
        self._context = context
        self._seconds = seconds
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Nobody is accepted any more."""
        self._closed = True
        self._loop.remove_reader(self._listening)
        for task in self._handshakes:
            task.cancel()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(backlog()):
            try:
                client, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.info("accepting no connections for %.0f s: %s", PAUSE_S, error)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE_S, self._listen)
                return
            if len(self._handshakes) >= self._room():
                log.info("closing connection from %s:%s: connection limit reached", *address[:2])
                client.close()
            else:
                self._start_handshake(client)

    def _start_handshake(self, client: socket.socket) -> None:
        client.setblocking(False)
        task = self._loop.create_task(self._handshake(client))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, client, ssl=self._context, ssl_handshake_timeout=self._seconds
            )
        except OSError as error:  # ssl.SSLError is one, and the time-out too
            log.info("TLS handshake failed: %s", error)
