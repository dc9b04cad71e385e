"""multiprocessing.Queue's put, through its feeder, next to kazoo's Queue.put: how many times as many items a second.

    python bench/feeder.py [--hosts HOST:PORT] [--items N] [--rounds N]

Without --hosts on a new embedded server, which is a process of its own, with its journal in a temporary folder. Both
put the same items, one call each, and are done when the server has answered for all of them; the rounds alternate. What
put alone takes, for the caller, is printed beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack

from kazoo.client import KazooClient

import distsync
from distsync.multiprocessing.queues import Queue
from distsync.protocols.tree import remove_tree
from distsync.testing import EmbeddedServer

ITEM = b"an item of thirty-two bytes, say"
KAZOO_SHARE = 20
"""Kazoo puts so many times fewer items in a round, which takes about as long."""


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def put_all(put: Callable[[bytes], object], items: int) -> None:
    for _ in range(items):
        put(ITEM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with ExitStack() as stack:
        hosts = given.hosts or "{}:{}".format(*stack.enter_context(EmbeddedServer(process=True)).address)
        measure(hosts, given.items, given.rounds)


def measure(hosts: str, items: int, rounds: int) -> None:
    top = f"/bench-{uuid.uuid4().hex[:8]}"
    client, kazoo = distsync.connect(hosts, namespace=top, default=False), KazooClient(hosts)
    kazoo.start()
    ours, theirs = Queue[bytes](name="q", client=client), kazoo.Queue(f"{top}/kazoo")
    for _ in range(2):
        put_all(ours.put, 200)
        ours.qsize()
        put_all(theirs.put, 20)
    ratios, calls = [], []
    for number in range(rounds):
        few = items // KAZOO_SHARE
        call = seconds(lambda: put_all(ours.put, items))
        fed = (call + seconds(ours.qsize)) / items
        each = seconds(lambda few=few: put_all(theirs.put, few)) / few
        ratios.append(each / fed)
        calls.append(each / (call / items))
        print(
            f"round {number + 1}: {ratios[-1]:.1f} times kazoo's puts a second ({calls[-1]:.0f} for the caller alone)"
        )
    print(f"median: {statistics.median(ratios):.1f} times ({statistics.median(calls):.0f} for the caller alone)")
    client.run(remove_tree(top))
    client.close()
    kazoo.stop()
    kazoo.close()


if __name__ == "__main__":
    main()
