"""Speed of the embedded server relative to ZooKeeper 3.8 on the same machine: ratios within one run,
in turn.

    python bench/server.py [--sync process|full] [--rounds N] [--requests N] [--only REQUEST] [--profile FILE]

The client is the same for both: a bare socket, frames encoded before the clock starts, replies that
are only counted. With ``--sync process`` neither waits for the disk (ZooKeeper: forceSync=no). With
``--sync full`` both do, which is ZooKeeper's default. ZooKeeper is warmed up; Java runs with its
own defaults. Rounds are short and many; each measures both servers, alternately one or the other
first. A latency is the median of the requests of a round, a ratio the median of those of the
rounds, so that other load affects both, or is left out. "Best rounds" is the ratio of the fastest
rounds of both, which is the result on a machine without other load. Requires Java and ZooKeeper's
jars, as the tests do.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect, encode_request

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.servers import LOOPBACK, EmbeddedProcess, ServerProcess, ZooKeeperProcess

DATA = bytes(100)
WARM_UP = 25
"""Number of unmeasured rounds at the start."""

PIPELINE = 10_000
CHUNK = 500
WINDOW = 2_000
NUMBERS = itertools.count(1)


class Embedded(EmbeddedProcess):
    """The embedded server with its defaults, or with --sync full."""

    sync = "process"
    profile = ""

    def command(self) -> list[str]:
        words = [*super().command(), "--sync", self.sync]
        return [words[0], "-m", "cProfile", "-o", self.profile, *words[1:]] if self.profile else words


class ZooKeeper(ZooKeeperProcess):
    """ZooKeeper with Java's defaults; the tests use options for quick starts."""

    sync = "process"

    def command(self) -> list[str]:
        words = [word for word in super().command() if not word.startswith("-XX:") and "forceSync" not in word]
        return [words[0], f"-Dzookeeper.forceSync={'yes' if self.sync == 'full' else 'no'}", *words[1:]]

    def _settings(self) -> dict[str, object]:
        """Make sessions outlive the turns of the other server."""
        return {**super()._settings(), "tickTime": 2000}


class Wire:
    """A session that sends frames and counts replies."""

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self.socket = socket.create_connection((LOOPBACK, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = b""
        self.socket.sendall(framed(encode_connect(r.ConnectRequest(timeout_ms=30_000))))
        self.take(1)

    def take(self, answers: int) -> int:
        """Wait for at least this many replies. Return how many have arrived."""
        taken, pending = 0, self._pending
        while taken < answers:
            pending += self.socket.recv(1 << 16)
            at = 0
            while len(pending) - at >= 4:
                end = at + 4 + int.from_bytes(pending[at : at + 4], "big")
                if end > len(pending):
                    break
                at, taken = end, taken + 1
            pending = pending[at:]
        self._pending = pending
        return taken

    def latencies(self, frames: list[bytes]) -> float:
        """Return the median seconds of a request and its reply, one at a time."""
        send, take, now, times = self.socket.sendall, self.take, time.perf_counter, []
        for frame in frames:
            started = now()
            send(frame)
            take(1)
            times.append(now() - started)
        return statistics.median(times)

    def pipelined(self, frames: list[bytes]) -> float:
        """Return the seconds per request with many outstanding."""
        chunks = [b"".join(frames[at : at + CHUNK]) for at in range(0, len(frames), CHUNK)]
        sent = taken = 0
        started = time.perf_counter()
        for chunk in chunks:
            self.socket.sendall(chunk)
            sent += CHUNK
            if sent - taken >= WINDOW:
                taken += self.take(CHUNK)
        self.take(len(frames) - taken)
        return (time.perf_counter() - started) / len(frames)

    def close(self) -> None:
        self.socket.sendall(framed(encode_request(0, r.CloseSessionRequest())))
        self.take(1)
        self.socket.close()


def encoded(requests: Iterator[r.Request]) -> list[bytes]:
    return [framed(encode_request(1, request)) for request in requests]


def paths(count: int, top: str = "/bench/n") -> list[str]:
    return [f"{top}{next(NUMBERS):09d}" for _ in range(count)]


Measure = Callable[[Wire, int], float]


def reads(request: r.Request) -> Measure:
    return lambda wire, count: wire.latencies(encoded(itertools.repeat(request, count)))


def creates(wire: Wire, count: int) -> float:
    return wire.latencies(encoded(r.CreateRequest(path, DATA) for path in paths(count)))


def deletes(wire: Wire, count: int) -> float:
    names = paths(count)
    wire.pipelined(encoded(r.CreateRequest(path, DATA) for path in names))
    return wire.latencies(encoded(r.DeleteRequest(path, -1) for path in names))


def multis(wire: Wire, count: int) -> float:
    """Transactions of check, create, setData, and delete of the created znode."""
    groups = (
        (
            r.CheckVersionRequest("/bench", -1),
            r.CreateRequest(path, DATA),
            r.SetDataRequest("/bench/data", DATA, -1),
            r.DeleteRequest(path, -1),
        )
        for path in paths(count)
    )
    return wire.latencies(encoded(r.MultiRequest(group) for group in groups))


def pipelined_creates(wire: Wire, count: int) -> float:
    return wire.pipelined(encoded(r.CreateRequest(path, DATA) for path in paths(PIPELINE, f"/bench/p{next(NUMBERS)}-")))


def pipelined_processor_time(wire: Wire, count: int) -> float:
    """Return the processor time of the server per pipelined create, in all its threads, which other
    load hardly affects.
    """
    before = processor_seconds(wire.pid)
    pipelined_creates(wire, count)
    return (processor_seconds(wire.pid) - before) / PIPELINE


def processor_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


MEASURES: dict[str, tuple[Measure, float]] = {
    "exists": (reads(r.ExistsRequest("/bench/data")), 1.5),
    "getData": (reads(r.GetDataRequest("/bench/data")), 1.5),
    "create": (creates, 1.5),
    "setData": (reads(r.SetDataRequest("/bench/data", DATA, -1)), 1.5),
    "delete": (deletes, 1.5),
    "multi of 4": (multis, 1.5),
    "pipelined create": (pipelined_creates, 5.0),
    "its processor time": (pipelined_processor_time, 5.0),
}
"""The measures, and the desired ratios."""


class Row(NamedTuple):
    """Microseconds per request, and the ratio: the median of all rounds, and in the best rounds of
    each.
    """

    name: str
    embedded: float
    zookeeper: float
    ratio: float
    best: float
    wanted: float


def prepare(server: ServerProcess) -> Wire:
    server.start()
    wire = Wire(server.port, server.pid or 0)
    wire.latencies(encoded(iter([r.CreateRequest("/bench", b""), r.CreateRequest("/bench/data", DATA)])))
    return wire


def measure(servers: list[ServerProcess], rounds: int, count: int, names: Iterable[str]) -> Iterator[Row]:
    wires = [prepare(server) for server in servers]
    for name in names:
        run, wanted = MEASURES[name]
        for wire in WARM_UP * wires:
            run(wire, count)
        pairs = [one_round(run, wires, count, number % 2) for number in range(rounds)]
        ratio = statistics.median(zookeeper / embedded for embedded, zookeeper in pairs)
        ours, theirs = zip(*pairs, strict=True)
        yield Row(name, statistics.median(ours), statistics.median(theirs), ratio, min(theirs) / min(ours), wanted)
    for wire in wires:
        wire.close()


def one_round(run: Measure, wires: list[Wire], count: int, first: int) -> tuple[float, float]:
    """Return the microseconds of both, whichever is measured first."""
    taken = {place: run(wires[place], count) * 1e6 for place in (first, 1 - first)}
    return taken[0], taken[1]


def show(rows: Iterator[Row], sync: str) -> None:
    heads = "request", "distsync µs", "ZooKeeper µs", "times faster", "best rounds", "wanted"
    table = Table(*heads, title=f"--sync {sync}")
    with Live(table, console=Console(width=90), auto_refresh=False) as live:
        for row in rows:
            sides = f"{row.embedded:.1f}", f"{row.zookeeper:.1f}"
            table.add_row(row.name, *sides, f"{row.ratio:.2f}", f"{row.best:.2f}", f"{row.wanted:.1f}")
            live.refresh()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sync", choices=["process", "full"], default="process")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--requests", type=int, default=100, help="of one kind, in one round")
    parser.add_argument("--only", choices=MEASURES, action="append", help="measure only this; may be given again")
    parser.add_argument("--profile", default="", help="write the embedded server's profile to this file")
    given = parser.parse_args()
    missing = ZooKeeperProcess.missing()
    if missing:
        parser.exit(1, f"{missing}\n")
    with tempfile.TemporaryDirectory() as folder:
        servers: list[ServerProcess] = [Embedded(Path(folder) / "embedded"), ZooKeeper(Path(folder) / "zookeeper")]
        for server in servers:
            server.sync = given.sync  # type: ignore[attr-defined]
        servers[0].profile = given.profile  # type: ignore[attr-defined]
        try:
            show(measure(servers, given.rounds, given.requests, given.only or MEASURES), given.sync)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
