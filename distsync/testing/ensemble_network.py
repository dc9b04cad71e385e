"""TCP proxies between the servers of an ensemble, all in one thread, which can hold or cut
connections.

Clients connect through faulty_proxy.py instead. Each server knows the others by the proxies' ports.
A connection to an election port begins with the address at which to call the sender back. That
address would bypass the proxy, so the proxy replaces it with its own; it looks at no other bytes.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from distsync.testing.faulty_proxy import RECV_BYTES, ProxyMode
from distsync.testing.java_process import LOOPBACK

Result = TypeVar("Result")
Ends = tuple[int, int]
"""Numbers of the connecting and of the accepting server."""

_GREETING = struct.Struct(">qqi")
"""Protocol version, number of the connecting server, length of the address that follows."""

ANSWER_S = 10.0
CALL_AGAIN_S, CALLS = 0.02, 50

TURNS = 10
"""Iterations of the loop from accepting a connection to the start of its task, and from the task's end
to the closing of its socket.
"""


class NetworkLink:
    """The connections from one server to a port of another."""

    def __init__(self, ends: Ends, target: int) -> None:
        self.ends, self.target = ends, target
        self.back: Callable[[], str] | None = None
        self.mode = ProxyMode.PASSED
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.open: set[asyncio.StreamWriter] = set()

    def become(self, mode: ProxyMode) -> None:
        """Hold, refuse or pass all traffic from now on."""
        self.mode = mode
        if mode is ProxyMode.HELD:
            self.flowing.clear()
        else:
            self.flowing.set()
        if mode is ProxyMode.REFUSED:
            self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for writer in tuple(self.open):
            writer.transport.abort()


class Pair(NamedTuple):
    """Ports of the proxies from one server to another."""

    quorum: int
    election: int


class EnsembleNetwork:
    """All proxies of an ensemble."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._wires: list[NetworkLink] = []
        self._listening: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="distsync-wires", daemon=True)
        self._thread.start()

    def lay(self, ends: Ends, quorum: int, election: int, back: Callable[[], int]) -> Pair:
        """Add proxies to these two ports, and return their ports. ``back()`` returns the port for
        calling back.
        """
        return self._do(self._lay(ends, quorum, election, lambda: f"{LOOPBACK}:{back()}"))

    def set(self, mode_of: Callable[[int, int], ProxyMode]) -> None:
        """Set the mode of each link to ``mode_of(connecting server, accepting server)``."""
        self._do(self._set(mode_of))

    def close(self) -> None:
        """Break all connections and stop the thread."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    # ---- in the thread of the wires

    async def _lay(self, ends: Ends, quorum: int, election: int, back: Callable[[], str]) -> Pair:
        return Pair(
            await self._listen(NetworkLink(ends, quorum), None), await self._listen(NetworkLink(ends, election), back)
        )

    async def _listen(self, wire: NetworkLink, back: Callable[[], str] | None) -> int:
        wire.back = back
        self._wires.append(wire)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await _carry(wire, reader, writer)
            except asyncio.CancelledError:
                # cancelled by _close(): before Python 3.12 asyncio logs an error about a connection
                # whose task was cancelled
                pass
            finally:
                self._tasks.discard(task)

        listening = await asyncio.start_server(serve, LOOPBACK, 0)
        self._listening.append(listening)
        port: int = listening.sockets[0].getsockname()[1]
        return port

    async def _set(self, mode_of: Callable[[int, int], ProxyMode]) -> None:
        for wire in self._wires:
            wire.become(mode_of(*wire.ends))

    async def _close(self) -> None:
        for socket in [each for listening in self._listening for each in listening.sockets]:
            self._loop.remove_reader(socket)  # accept no further connection
        for wire in self._wires:
            wire.become(ProxyMode.REFUSED)
        # the task of a connection accepted just now must have started, or its socket would not be
        # closed
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for listening in self._listening:
            listening.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(TURNS):
            await asyncio.sleep(0)  # aborted transports close their sockets


async def _carry(wire: NetworkLink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until it ends."""
    wire.open.add(writer)
    onward: asyncio.StreamWriter | None = None
    try:
        await wire.flowing.wait()
        if wire.mode is not ProxyMode.REFUSED:
            answers, onward = await _called(wire.target)
            wire.open.add(onward)
            if wire.back is not None:
                onward.write(await _greeting(reader, wire.back()))
            await _either(_pump(wire, reader, onward), _pump(wire, answers, writer))
    except (OSError, EOFError):
        pass
    finally:
        for each in filter(None, (writer, onward)):
            wire.open.discard(each)
            each.transport.abort()


async def _called(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server that may not listen yet: the server that connects to us will not try again."""
    for _ in range(CALLS):
        with suppress(ConnectionRefusedError):
            return await asyncio.open_connection(LOOPBACK, port)
        await asyncio.sleep(CALL_AGAIN_S)
    return await asyncio.open_connection(LOOPBACK, port)


async def _greeting(reader: asyncio.StreamReader, back: str) -> bytes:
    """Return the greeting with the address for calling back replaced."""
    version, who, length = _GREETING.unpack(await reader.readexactly(_GREETING.size))
    await reader.readexactly(length)
    return _GREETING.pack(version, who, len(back)) + back.encode()


async def _either(*works: Coroutine[Any, Any, None]) -> None:
    """Run these until one ends, then cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(wire: NetworkLink, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(RECV_BYTES):
        await wire.flowing.wait()
        sink.write(data)
        await sink.drain()
    await wire.flowing.wait()
