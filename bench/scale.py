"""Scalability of the embedded server: many watches, many znodes, many operations.

    python bench/scale.py [--clients N] [--watches N] [--nodes N] [--operations N]

Each part has a server of its own, started like `distsync serve`. The client is a bare socket in
this process, so that the rates are those of both together. Fails if a write fires wrong watches, a
znode costs more than 700 bytes in addition to its data, a start takes 10 s or more, or memory grows
during operations by more than a tenth.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.frame_client import linked
from helpers.server_load import Crowd, busy, grow, many_files, pour, resident_bytes
from helpers.servers import EmbeddedProcess

from distsync._wire import records as r

DATA = bytes(100)
NODE_BYTES = 700
OPEN_S = 10.0
GROWTH = 1.1
SAMPLES = 10
NUMBERS = range(0, 1000, 97)
FAILURES: list[str] = []


@contextmanager
def running() -> Iterator[EmbeddedProcess]:
    with tempfile.TemporaryDirectory(prefix="distsync-scale-") as folder:
        server = EmbeddedProcess(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def processor_seconds(pid: int | None) -> float:
    """Return the processor time that the process has used so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def tell(line: str, good: bool = True) -> None:
    print(line if good else f"{line}  TOO MUCH", flush=True)
    if not good:
        FAILURES.append(line)


def watches(clients: int, each: int) -> None:
    """A write fires only the watches of its znode."""
    with many_files(), running() as server, closing(Crowd(server.port, clients, each, 1000)) as crowd:
        armed = timed(crowd.arm)
        figures = server.figures()
        count, memory = int(figures["zk_watch_count"]), resident_bytes(server.pid)
        tell(f"{clients} clients: {count} watches, armed in {armed:.1f} s, {memory >> 20} MiB", count == clients * each)
        wrong = [number for number in NUMBERS if crowd.told(number) != crowd.watchers(number)]
        fired = sum(len(crowd.watchers(number)) for number in NUMBERS)
        tell(f"{len(NUMBERS)} writes fired {fired} watches, wrong ones for {len(wrong)} writes", not wrong)
        with linked(server.port) as other:
            took = timed(lambda: pour(other, (r.ExistsRequest("/crowd") for _ in range(10_000))))
        tell(f"another client at that time: {10_000 / took:,.0f} reads/s")


def nodes(count: int) -> None:
    """Znodes take little memory, and a start with many takes little time."""
    with running() as server:
        cost = 0.0

        def fill() -> None:
            nonlocal cost
            cost = grow(server, count, DATA)

        took = timed(fill)
        tell(f"{count} nodes of {len(DATA)} bytes: {cost:.0f} bytes each beyond that, path and all", cost <= NODE_BYTES)
        tell(f"made in {took:.0f} s, {count / took:,.0f}/s; {resident_bytes(server.pid) >> 20} MiB")
        for how in ("stopped", "killed"):
            server.kill() if how == "killed" else server.stop()
            opened = timed(server.start)
            worked = processor_seconds(server.pid)
            tell(f"opened in {opened:.1f} s ({worked:.1f} s of work) after it was {how}", opened < OPEN_S)
            tell(f"{resident_bytes(server.pid) >> 20} MiB then, {server.figures()['zk_znode_count']} nodes")


def operations(count: int) -> None:
    """Memory does not grow after the first tenth of the operations."""
    with running() as server:
        sizes, done, started = [], 0, time.perf_counter()
        for sample in range(1, SAMPLES + 1):
            done += busy(server, count * sample // SAMPLES - done, first=done)
            sizes.append(resident_bytes(server.pid))
            rate = done / (time.perf_counter() - started)
            tell(f"{done} operations, {rate:,.0f}/s: {sizes[-1] / (1 << 20):.1f} MiB")
        tell(f"grown to {sizes[-1] / sizes[0]:.2f} times", sizes[-1] <= sizes[0] * GROWTH)


def main() -> int:
    parser = argparse.ArgumentParser(description="How the embedded server bears numbers.")
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--watches", type=int, default=100, help="of each client")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--operations", type=int, default=10_000_000)
    given = parser.parse_args()
    if given.clients:
        watches(given.clients, given.watches)
    if given.nodes:
        nodes(given.nodes)
    if given.operations:
        operations(given.operations)
    print(f"{len(FAILURES)} too much" if FAILURES else "all within bounds")
    return bool(FAILURES)


if __name__ == "__main__":
    sys.exit(main())
