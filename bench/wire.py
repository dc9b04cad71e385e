"""The wire beneath: pipelined creates and single reads, beside kazoo's and, for reads, a bare socket.

    python bench/wire.py [--hosts HOST:PORT] [--creates N] [--reads N] [--rounds N]

Without --hosts on a new embedded server, which is a process of its own. Each round measures all of them one after the
other; what is printed are medians over the rounds of the ratios within a round. "kazoo's wire" is distsync with
``fast_wire=False``.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kazoo.client import KazooClient

import distsync
from distsync.protocols.guard import ensure
from distsync.protocols.tree import remove_tree
from distsync.session.steps import Create, GetData, Step, Together
from distsync.testing import EmbeddedServer

DATA = b"an item of thirty-two bytes, say"
WIRES = ("kazoo", "distsync, kazoo's wire", "distsync")


class Bare:
    """A session that asks for one znode's data, with nothing around it."""

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


async def asked(step: Step[Any]) -> Any:
    return await step


def per_second(work: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    work(number)
    return number / (time.perf_counter() - began)


def median_us(work: Callable[[], object], number: int) -> float:
    times = []
    for _ in range(number):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


class Bench:
    """All who are compared, on one server."""

    def __init__(self, hosts: str) -> None:
        self.top = f"/bench-{uuid.uuid4().hex[:8]}"
        self.kazoo = KazooClient(hosts)
        self.kazoo.start()
        self.clients = [distsync.connect(hosts, default=False, fast_wire=fast) for fast in (False, True)]
        self.clients[0].run(ensure(self.top))
        self.bare = Bare(hosts, self.top)

    def close(self) -> None:
        self.clients[0].run(remove_tree(self.top))
        self.bare.close()
        for client in self.clients:
            client.close()
        self.kazoo.stop()
        self.kazoo.close()

    def _kazoo_creates(self, number: int) -> None:
        asked = [self.kazoo.create_async(f"{self.top}/k-", DATA, sequence=True) for _ in range(number)]
        for one in asked:
            one.get()

    def creates(self, number: int) -> list[float]:
        """Creates a second, of each of WIRES."""
        request = Create(f"{self.top}/d-", DATA, sequence=True)
        ours = [lambda n, c=client: c.run(asked(Together(*[request] * n))) for client in self.clients]
        return [per_second(work, number) for work in (self._kazoo_creates, *ours)]

    def reads(self, number: int) -> list[float]:
        """Microseconds for one getData that is waited for, of a bare socket and of each of WIRES."""
        ours = [lambda c=client: c.run(asked(GetData(self.top))) for client in self.clients]
        return [median_us(work, number) for work in (self.bare.get, lambda: self.kazoo.get(self.top), *ours)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts")
    parser.add_argument("--creates", type=int, default=2000)
    parser.add_argument("--reads", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with ExitStack() as stack:
        hosts = given.hosts or "{}:{}".format(*stack.enter_context(EmbeddedServer(process=True)).address)
        bench = Bench(hosts)
        stack.callback(bench.close)
        bench.creates(200)
        bench.reads(50)
        rounds = [(bench.creates(given.creates), bench.reads(given.reads)) for _ in range(given.rounds)]
        show(rounds)


def show(rounds: list[tuple[list[float], list[float]]]) -> None:
    creates, reads = [one for one, _ in rounds], [one for _, one in rounds]
    for place, wire in enumerate(WIRES):
        rate = statistics.median(one[place] for one in creates)
        times = statistics.median(one[place] / one[0] for one in creates)
        print(f"pipelined creates, {wire}: {rate:.0f} a second, {times:.2f} times kazoo's")
    for place, wire in enumerate(("bare socket", *WIRES)):
        cost = statistics.median(one[place] for one in reads)
        bare = statistics.median(one[place] / one[0] for one in reads)
        kazoos = statistics.median(one[place] / one[1] for one in reads)
        print(f"getData, {wire}: {cost:.0f} us, {bare:.2f} times the bare socket's, {kazoos:.2f} times kazoo's")


if __name__ == "__main__":
    main()
