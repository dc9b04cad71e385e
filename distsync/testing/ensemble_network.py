"""The wires between the servers of an ensemble: TCP proxies, all in one thread, that hold back or cut on demand.

Rules for this file: it passes bytes on and reads none of them but a greeting, which tells where to call back; what
clients say goes through faulty_proxy.py.

A server of an ensemble knows the others by their wires to it. But who calls on an election port begins with the address
where he is to be called back, his own, and the call back would go past his wire: so the wire writes itself there.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from distsync.testing.faulty_proxy import PIECE, ProxyMode
from distsync.testing.java_process import LOOPBACK

Result = TypeVar("Result")
Ends = tuple[int, int]
"""Who calls, and who is called."""

_GREETING = struct.Struct(">qqi")
"""Version, who calls, and how long the address is that follows."""

ANSWER_S = 10.0
CALL_AGAIN_S, CALLS = 0.02, 50

TURNS = 10
"""Of the loop: from the accepting of a connection to the beginning of its task, and from its end to its socket's."""


class NetworkLink:
    """From one server to a port of another one."""

    def __init__(self, ends: Ends, target: int) -> None:
        self.ends, self.target = ends, target
        self.back: Callable[[], str] | None = None
        self.mode = ProxyMode.PASSED
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.open: set[asyncio.StreamWriter] = set()

    def become(self, mode: ProxyMode) -> None:
        """Held back, refused or passed on from now on."""
        self.mode = mode
        if mode is ProxyMode.HELD:
            self.flowing.clear()
        else:
            self.flowing.set()
        if mode is ProxyMode.REFUSED:
            self.cut()

    def cut(self) -> None:
        """All its connections are broken."""
        for writer in tuple(self.open):
            writer.transport.abort()


class Pair(NamedTuple):
    """The wires from one server to another one: to its quorum port, and to its election port."""

    quorum: int
    election: int


class EnsembleNetwork:
    """All the wires of an ensemble."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._wires: list[NetworkLink] = []
        self._listening: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="distsync-wires", daemon=True)
        self._thread.start()

    def lay(self, ends: Ends, quorum: int, election: int, back: Callable[[], int]) -> Pair:
        """The ports that lead to these two; ``back()`` is the port by which who is called calls back."""
        return self._do(self._lay(ends, quorum, election, lambda: f"{LOOPBACK}:{back()}"))

    def set(self, mode_of: Callable[[int, int], ProxyMode]) -> None:
        """Each wire behaves as ``mode_of(who calls, who is called)`` says."""
        self._do(self._set(mode_of))

    def close(self) -> None:
        """All connections are broken, and nothing remains."""
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
                pass  # by _close(); before Python 3.12 asyncio complains of a connection whose task was cancelled
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
            self._loop.remove_reader(socket)  # nobody is accepted any more
        for wire in self._wires:
            wire.become(ProxyMode.REFUSED)
        for _ in range(TURNS):  # who was accepted just now must have begun, or nothing would close his socket
            await asyncio.sleep(0)
        for listening in self._listening:
            listening.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(TURNS):
            await asyncio.sleep(0)  # the transports that were aborted close their sockets


async def _carry(wire: NetworkLink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, to its end."""
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
    """A connection to who may be about to listen: his caller, who has us on the line, will not try again."""
    for _ in range(CALLS):
        with suppress(ConnectionRefusedError):
            return await asyncio.open_connection(LOOPBACK, port)
        await asyncio.sleep(CALL_AGAIN_S)
    return await asyncio.open_connection(LOOPBACK, port)


async def _greeting(reader: asyncio.StreamReader, back: str) -> bytes:
    """As it came, but for the address to call back."""
    version, who, length = _GREETING.unpack(await reader.readexactly(_GREETING.size))
    await reader.readexactly(length)
    return _GREETING.pack(version, who, len(back)) + back.encode()


async def _either(*works: Coroutine[Any, Any, None]) -> None:
    """One of them has ended, and the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(wire: NetworkLink, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        await wire.flowing.wait()
        sink.write(piece)
        await sink.drain()
    await wire.flowing.wait()
