"""A queue of many items: whether the last puts and gets are as fast as the first, and what a deep one costs kazoo.

    python bench/deep_queue.py [--hosts HOST:PORT] [--items N] [--window N] [--kazoo N]

Without --hosts on a new embedded server, which is a process of its own. The first and the last ``--window`` items are
put, and got, one by one; those between with put_many and get_many. Beside each rate stands the same in units of a bare
read by the same client in the same moments, so that what else the machine does counts less.

kazoo's Queue has all its items in one znode. It is filled with ``--kazoo`` items, and printed is what a getter who
comes anew pays for his first item, which is a list of all; and from how many on that list is longer than 1 MiB, the
most that ZooKeeper's own clients take (jute.maxbuffer): no Java client can read, or clear, such a queue any more. kazoo
reads any length.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from kazoo.client import KazooClient

import distsync
from distsync.protocols.tree import remove_tree
from distsync.session.steps import Exists, Stat
from distsync.testing import EmbeddedServer

ITEM = b"an item of thirty-two bytes, say"
MIB = 1 << 20
SLICE = 100
"""So many operations are timed at once, then a tenth as many reads."""


class Rate(NamedTuple):
    """Operations a second, and as a part of bare reads a second."""

    per_second: float
    of_reads: float


def resident() -> float:
    """What this process has in memory (MiB)."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / MIB


def seconds(work: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - began


async def look(path: str) -> Stat | None:
    return await Exists(path)


def rate(client: distsync.Client, work: Callable[[], object], times: int) -> Rate:
    spent = reading = 0.0
    for _ in range(0, times, SLICE):
        spent += seconds(work, SLICE)
        reading += seconds(lambda: client.run(look("/")), SLICE // 10)
    return Rate(times / spent, times / spent / (times / 10 / reading))


def compare(what: str, first: Rate, last: Rate) -> None:
    times, fair = last.per_second / first.per_second, last.of_reads / first.of_reads
    print(f"{what}: first {first.per_second:.0f} a second, last {last.per_second:.0f}: {times:.2f} times as fast")
    print(f"{what}, in units of a bare read: {fair:.2f} times as fast", flush=True)


def ours(hosts: str, items: int, window: int) -> None:
    client = distsync.connect(hosts, namespace=f"/deep-{uuid.uuid4().hex[:8]}", default=False)
    queue: distsync.Queue[bytes] = distsync.Queue(name="deep", client=client)
    queue.put_many([ITEM] * 2 * SLICE)
    queue.get_many(SLICE)
    queue.get_many(SLICE)
    memory = [resident()]
    first = rate(client, lambda: queue.put(ITEM), window)
    between = items - 2 * window
    began = time.perf_counter()
    for start in range(0, between, window):
        queue.put_many([ITEM] * min(window, between - start))
        memory.append(resident())
    print(f"put_many: {between / (time.perf_counter() - began):.0f} items a second")
    compare(f"put, {items} items", first, rate(client, lambda: queue.put(ITEM), window))
    first, left = rate(client, queue.get, window), between
    began = time.perf_counter()
    while left:
        left -= len(queue.get_many(min(SLICE, left)))
        memory.append(resident())
    print(f"get_many: {between / (time.perf_counter() - began):.0f} items a second")
    compare(f"get, {items} items", first, rate(client, queue.get, window))
    print(f"client's memory: {memory[0]:.1f} MiB at first, {max(memory):.1f} at most, {memory[-1]:.1f} at the end")
    client.run(remove_tree(client.namespace))
    client.close()


def kazoos(hosts: str, items: int) -> None:
    kazoo = KazooClient(hosts)
    kazoo.start()
    path = f"/deep-{uuid.uuid4().hex[:8]}"
    kazoo.ensure_path(path)
    mark = 1000
    for start in range(0, items, 500):
        transaction = kazoo.transaction()
        for _ in range(500):
            transaction.create(f"{path}/entry-100-", ITEM, sequence=True)
        transaction.commit()
        if start + 500 >= mark or start + 500 >= items:
            mark *= 4
            names = kazoo.get_children(path)
            size = sum(len(name) + 4 for name in names)
            took = min(seconds(kazoo.Queue(path).get, 1) for _ in range(3))
            print(
                f"kazoo, {len(names)} items: list of {size / MIB:.2f} MiB, a new getter's first get {took * 1e3:.1f} ms"
            )
    print(f"kazoo's list is longer than 1 MiB from {MIB // (len('entry-100-0000000000') + 4)} items on")
    kazoo.delete(path, recursive=True)
    kazoo.stop()
    kazoo.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=10_000)
    parser.add_argument("--kazoo", type=int, default=60_000)
    given = parser.parse_args()
    if given.items < 2 * given.window or given.window % SLICE:
        parser.error(f"--items must be twice --window or more, and --window a multiple of {SLICE}")
    with ExitStack() as stack:
        hosts = given.hosts or "{}:{}".format(*stack.enter_context(EmbeddedServer(process=True)).address)
        ours(hosts, given.items, given.window)
        if given.kazoo:
            kazoos(hosts, given.kazoo)


if __name__ == "__main__":
    main()
