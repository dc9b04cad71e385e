"""Accept loop for TLS connections.

asyncio's servers report a connection only after its TLS handshake. Here it counts for the connection
limit from the start, also if the client never completes the handshake.
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
"""Pause in seconds if no file descriptor is left, as in asyncio's servers."""


class TlsAcceptor:
    """Accepts connections on ``listening``.

    ``free_slots()`` returns the number of further connections allowed, including those in a handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        seconds: float,
        free_slots: Callable[[], int],
    ) -> None:
        self._listening = listening
        self._make = make
        self._context = context
        self._seconds = seconds
        self._free_slots = free_slots
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop accepting, and cancel the handshakes."""
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
            if len(self._handshakes) >= self._free_slots():
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
        except OSError as error:  # includes ssl.SSLError and timeouts
            log.info("TLS handshake failed: %s", error)
