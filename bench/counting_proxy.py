"""A TCP proxy that counts the requests, events and bytes of ZooKeeper clients; pings and handshakes do
not count.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import NamedTuple

from distsync._wire.codes import OpCode
from distsync._wire.frames import FrameSplitter

LOOPBACK = "127.0.0.1"
LARGEST_FRAME = 1 << 27
PIECE = 1 << 16
EVENT_XID, PING_XID = -1, -2
UNCOUNTED = (OpCode.PING, OpCode.AUTH)
_HEAD = struct.Struct(">ii")


class Counts(NamedTuple):
    """Numbers of requests, events, and bytes in both directions."""

    requests: int = 0
    events: int = 0
    bytes: int = 0

    def since(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Listens on loopback, forwards everything to ``upstream`` ("host:port"), and counts it."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self.counts = Counts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bench-meter", daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, LOOPBACK, 0, backlog=1024)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.hosts = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- in the proxy's thread

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server, on = await asyncio.open_connection(*self._upstream)
        try:
            await asyncio.gather(self._pump(client, on, True), self._pump(server, back, False))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            on.close()
            back.close()
            self._tasks.discard(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, upwards: bool) -> None:
        splitter, greeted = FrameSplitter(LARGEST_FRAME), False
        while piece := await source.read(PIECE):
            sink.write(piece)
            for frame in splitter.feed(piece):
                if greeted:
                    self._count(frame, upwards)
                greeted = True
            await sink.drain()
        sink.close()

    def _count(self, frame: bytes, upwards: bool) -> None:
        xid, opcode = _HEAD.unpack_from(frame)
        if xid == PING_XID or upwards and opcode in UNCOUNTED:
            return
        requests, events, size = self.counts
        self.counts = Counts(
            requests + upwards, events + (not upwards and xid == EVENT_XID), size + len(frame) + _HEAD.size // 2
        )
