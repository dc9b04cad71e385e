"""The transport: creates sent together, and single reads, compared with kazoo and a bare socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.harness import Done, Measure, Place, Work, for_seconds, so_often
from bench.measures.queues import ITEM
from bench.results import KAZOO, OURS, faster, slower
from distsync._protocols.retries import ensure
from distsync._protocols.steps import Create, GetData, Pipeline, Step

KAZOOS_WIRE, BARE = "distsync, kazoo's wire", "bare socket"


class Bare:
    """A session that reads one znode's data, with nothing around it."""

    def __init__(self, hosts: str, path: str) -> None:
        host, _, port = hosts.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(struct.pack("!iqiqi16s", 0, 0, 30_000, 0, 16, b"\0" * 16))
        self._body = struct.pack("!iii", 1, 4, len(path)) + path.encode() + b"\0"

    def _send(self, body: bytes) -> None:
        self._socket.sendall(struct.pack("!i", len(body)) + body)
        self._socket.recv(4096)

    def get(self) -> None:
        self._send(self._body)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def bare_socket(hosts: str, path: str) -> Iterator[Bare]:
    bare = Bare(hosts, path)
    try:
        yield bare
    finally:
        bare.close()


async def asked(step: Step[Any]) -> Any:
    return await step


def creates(place: Place, _: int) -> Mapping[str, Work]:
    clients, kazoo, number = (place.client(), place.client(fast_wire=False)), place.kazoo(), 2 * place.pace.items
    clients[0].run(ensure(place.top))
    together = Pipeline(*[Create(f"{place.top}/d-", ITEM, sequence=True)] * number)

    def kazoos() -> None:
        sent = [kazoo.create_async(f"{place.top}/k-", ITEM, sequence=True) for _ in range(number)]
        for one in sent:
            one.get()

    def of(client: Any) -> Work:
        return lambda: so_often(lambda: client.run(asked(together)), 1, number)

    return {OURS: of(clients[0]), KAZOO: lambda: so_often(kazoos, 1, number), KAZOOS_WIRE: of(clients[1])}


def reads(place: Place, _: int) -> Mapping[str, Work]:
    clients, kazoo, seconds = (place.client(), place.client(fast_wire=False)), place.kazoo(), place.pace.seconds
    clients[0].run(ensure(place.top))
    bare = place.stack.enter_context(bare_socket(place.hosts, place.top))

    def of(client: Any) -> Work:
        return lambda: for_seconds(lambda: client.run(asked(GetData(place.top))), seconds)

    def kazoos() -> Done:
        return for_seconds(lambda: kazoo.get(place.top), seconds)

    return {
        OURS: of(clients[0]),
        KAZOO: kazoos,
        KAZOOS_WIRE: of(clients[1]),
        BARE: lambda: for_seconds(bare.get, seconds),
    }


MEASURES = [
    Measure(
        "wire-creates",
        "creates that are sent together",
        creates,
        (faster(), faster(than=KAZOOS_WIRE)),
        "the server",
        operation="create",
    ),
    Measure(
        "wire-reads",
        "one getData, waited for",
        reads,
        (faster(), slower(1e9, than=BARE)),
        "the operating system's time for a write, a poll and a read, and Python's for what is asked and answered",
        operation="read",
    ),
]
