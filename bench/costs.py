"""What each operation costs, next to kazoo's own recipe: requests counted, times as ratios within one run.

    python bench/costs.py [--hosts HOST:PORT] [--times N]

Without --hosts on those of DISTSYNC_HOSTS, or else on this user's embedded server. Everything is warm: the parents are
there, the session is open.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

import distsync
from distsync.protocols.tree import remove_tree
from distsync.server.startup import find_or_start

Operation = Callable[[], object]
SETTLE_SECONDS = 0.01
TOP = f"/bench-{uuid.uuid4().hex[:8]}"


class CountingKazoo(KazooClient):
    """Counts what it sends."""

    sent = 0

    def _call(self, request: Any, async_object: Any) -> Any:
        self.sent += 1
        return super()._call(request, async_object)


class Cost(NamedTuple):
    """Of one operation, on average."""

    requests: float
    round_trips: float
    seconds: float


class Place:
    """A server, with two clients of each make, and an observer that is not counted."""

    def __init__(self, hosts: str | None) -> None:
        address = None if hosts else find_or_start()
        auth = [address.credential] if address else []
        self.kazoos = [CountingKazoo(hosts or address.hosts, auth_data=auth) for _ in range(2)]
        self.observer = KazooClient(hosts or address.hosts, auth_data=auth)
        for kazoo in (*self.kazoos, self.observer):
            kazoo.start()
        self.clients = [distsync.connect(hosts, namespace=TOP, default=False) for _ in range(2)]

    def close(self) -> None:
        self.clients[0].run(remove_tree(TOP), timeout=30)
        for each in (*self.clients, *self.kazoos, self.observer):
            each.close() if isinstance(each, distsync.Client) else (each.stop(), each.close())

    def until(self, path: str, children: int) -> None:
        """So many stand in the line, and who came last has looked who is ahead."""
        while len(self.observer.get_children(path)) != children:
            time.sleep(0.001)
        time.sleep(SETTLE_SECONDS)


def alone(lock: Any) -> Operation:
    def once() -> None:
        lock.acquire()
        lock.release()

    return once


def contended(place: Place, path: str, holder: Any, waiter: Any) -> Operation:
    """The waiter's acquire and release; what the holder does is not counted."""

    def once() -> None:
        holder.acquire()
        thread = threading.Thread(target=alone(waiter))
        thread.start()
        place.until(path, 2)
        holder.release()
        thread.join()

    return once


def put_and_get(queue: Any) -> tuple[Operation, Operation]:
    return (lambda: queue.put(b"item")), queue.get


def locks(place: Place) -> list[tuple[str, Operation, Operation | None]]:
    ours = [distsync.Lock(name="l", client=client) for client in place.clients]
    theirs = [kazoo.Lock(f"{TOP}/kazoo-lock", str(number)) for number, kazoo in enumerate(place.kazoos)]
    return [
        ("Lock alone, both ways", alone(ours[1]), alone(theirs[1])),
        (
            "Lock contended, both ways",
            contended(place, ours[0].path, *ours),
            contended(place, f"{TOP}/kazoo-lock", *theirs),
        ),
    ]


def others(place: Place) -> list[tuple[str, Operation, Operation | None]]:
    client, kazoo = place.clients[1], place.kazoos[1]
    semaphore, event = distsync.Semaphore(2, name="s", client=client), distsync.Event(name="e", client=client)
    put, get = put_and_get(distsync.Queue(name="q", client=client))
    kazoo_put, kazoo_get = put_and_get(kazoo.Queue(f"{TOP}/kazoo-queue"))
    barrier = distsync.Barrier(1, name="b", client=client)
    return [
        ("Semaphore, both ways", alone(semaphore), alone(kazoo.Semaphore(f"{TOP}/kazoo-leases", "1", 2))),
        ("Event.is_set", event.is_set, lambda: kazoo.exists(f"{TOP}/kazoo-event")),
        ("Queue.put", put, kazoo_put),
        ("Queue.get, items waiting", get, kazoo_get),
        ("Barrier.wait, last to arrive", barrier.wait, None),
    ]


def measure(operation: Operation, times: int, spent: Callable[[], tuple[int, int]]) -> Cost:
    requests, round_trips = spent()
    started = time.perf_counter()
    for _ in range(times):
        operation()
    seconds = time.perf_counter() - started
    now = spent()
    return Cost((now[0] - requests) / times, (now[1] - round_trips) / times, seconds / times)


def table(place: Place, times: int) -> Table:
    def ours() -> tuple[int, int]:
        statistics = place.clients[1].statistics()
        return sum(statistics.requests.values()), statistics.round_trips

    def theirs() -> tuple[int, int]:
        return place.kazoos[1].sent, place.kazoos[1].sent

    shown = Table(caption="both ways: acquire and release")
    shown.add_column("operation", no_wrap=True)
    for title in ("requests", "round trips", "kazoo requests", "time / kazoo"):
        shown.add_column(title, justify="right")
    for name, mine, other in [*locks(place), *others(place)]:
        for warm in filter(None, (mine, other)):
            if ".get" not in name:
                warm()
        cost = measure(mine, times, ours)
        kazoo = measure(other, times, theirs) if other else None
        compared = [f"{kazoo.requests:.2f}", f"{cost.seconds / kazoo.seconds:.2f}"] if kazoo else ["", ""]
        shown.add_row(name, f"{cost.requests:.2f}", f"{cost.round_trips:.2f}", *compared)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="What each operation costs, next to kazoo's own recipe.")
    parser.add_argument(
        "--hosts",
        default=os.environ.get("DISTSYNC_HOSTS"),
        help="default: DISTSYNC_HOSTS, or else this user's embedded server",
    )
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    place = Place(options.hosts)
    try:
        Console().print(table(place, options.times))
    finally:
        place.close()


if __name__ == "__main__":
    main()
