"""How fast locks are: kept, not kept, handed over between threads, next to kazoo's Lock and multiprocessing's.

    python bench/locks.py [--hosts HOST:PORT] [--seconds S]

Without --hosts on those of DISTSYNC_HOSTS, or else on an embedded server in a thread of this process. A cycle is
``with lock: pass``. All take turns, and each figure is the median over the turns; the ratios are what is meant, the
times are of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kazoo.client import KazooClient

import distsync
from distsync.protocols.tree import remove_tree
from distsync.testing.embedded import EmbeddedServer

TURNS = 7
THREADS = 8
TOP = f"/bench-{uuid.uuid4().hex[:8]}"


def cycles(lock: Any, seconds: float) -> float:
    """Cycles a second of one thread."""
    with lock:
        pass
    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        for _ in range(20):
            with lock:
                pass
        done += 20
    return done / spent


def of_threads(locks: list[Any], seconds: float) -> float:
    """Cycles a second of so many threads together."""
    rates: list[float] = []
    threads = [threading.Thread(target=lambda lock=lock: rates.append(cycles(lock, seconds))) for lock in locks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(rates)


def bare(client: Any, seconds: float) -> float:
    """Pairs of a bare create and delete a second, through the same client."""
    from distsync.session.steps import Create, Delete

    async def pair() -> None:
        await Delete((await Create(f"{TOP}/n-", ephemeral=True, sequence=True)).path)

    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        client.run(pair())
        done += 1
    return done / spent


def measures(client: Any, kazoo: KazooClient) -> dict[str, Callable[[float], float]]:
    """What is measured, by its name."""
    kept = distsync.Lock(name="kept", client=client)
    own = distsync.Lock(name="own", client=client, keep=0)
    shared = distsync.Lock(name="shared", client=client)
    theirs = kazoo.Lock(f"{TOP}/kazoo")
    many = [kazoo.Lock(f"{TOP}/kazoos") for _ in range(THREADS)]
    processes = multiprocessing.Lock()
    return {
        "kept": lambda seconds: cycles(kept, seconds),
        "multiprocessing": lambda seconds: cycles(processes, seconds),
        "not kept": lambda seconds: cycles(own, seconds),
        "create + delete": lambda seconds: bare(client, seconds),
        "kazoo": lambda seconds: cycles(theirs, seconds),
        "8 threads": lambda seconds: of_threads([shared] * THREADS, seconds),
        "kazoo, 8 threads": lambda seconds: of_threads(many, seconds),
    }


RATIOS = [
    ("kept / kazoo", "kept", "kazoo", "at least 500"),
    ("multiprocessing / kept", "multiprocessing", "kept", "at most 15"),
    ("create + delete / not kept", "create + delete", "not kept", "at most 1.15"),
    ("not kept / kazoo", "not kept", "kazoo", "at least 1.4"),
    ("8 threads / kazoo's", "8 threads", "kazoo, 8 threads", "at least 100"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast locks are, next to others.")
    parser.add_argument("--hosts", default=os.environ.get("DISTSYNC_HOSTS"))
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measure in each turn")
    given = parser.parse_args()
    with ExitStack() as stack:
        hosts = given.hosts or stack.enter_context(EmbeddedServer()).hosts
        client = stack.enter_context(distsync.connect(hosts, namespace=TOP, default=False))
        kazoo = KazooClient(hosts)
        kazoo.start()
        stack.callback(kazoo.close)
        stack.callback(kazoo.stop)
        what = measures(client, kazoo)
        found: dict[str, list[float]] = {name: [] for name in what}
        for _ in range(TURNS):
            for name, measure in what.items():
                found[name].append(measure(given.seconds))
        client.run(remove_tree(TOP))
    for name, rates in found.items():
        print(f"{name:28} {statistics.median(rates):12.0f} a second")
    for name, one, other, bound in RATIOS:
        ratios = sorted(a / b for a, b in zip(found[one], found[other], strict=True))
        print(f"{name:28} {statistics.median(ratios):8.1f}   ({ratios[0]:.1f} to {ratios[-1]:.1f}; {bound})")


if __name__ == "__main__":
    main()
