"""A long queue for one lock: the cost of a release and of an acquisition, by the number of waiters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import distsync
from bench.harness import Done, Measure, Place, Work, kazoo_client
from bench.results import KAZOO, OURS, constant, counted, faster
from bench.role_processes import Crew
from distsync._protocols.locks.lock import LockCore

SESSION_S = 10.0


class Alone:
    """A lock that is not shared by threads of this process: each is in the queue itself."""

    def __init__(self, client: distsync.Client, path: str) -> None:
        self._client, self._core, self._owner = client, LockCore(path), object()

    def acquire(self) -> None:
        self._client.run(self._core.acquire(self._owner, b""))

    def release(self) -> None:
        self._client.run(self._core.release(self._owner))


def maker(who: str, hosts: str, path: str, stack: ExitStack) -> Callable[[], Any]:
    """Return a function that creates contenders on one session."""
    if who == OURS:
        settings = {"session_timeout": SESSION_S, "default": False}
        client = stack.enter_context(distsync.connect(hosts, **settings))
        return lambda: Alone(client, path)
    kazoo = stack.enter_context(kazoo_client(hosts, timeout=SESSION_S))
    return lambda: kazoo.Lock(path)


@contextmanager
def queuing(who: str, hosts: str, path: str, number: int) -> Iterator[Callable[[str], None]]:
    """ "stand": this many threads wait for the lock; "passed": each has had it."""
    with ExitStack() as stack:
        make = maker(who, hosts, path, stack)
        threads: list[threading.Thread] = []

        def once(lock: Any) -> None:
            lock.acquire()
            lock.release()

        def act(command: str) -> None:
            if command == "stand":
                threads[:] = [threading.Thread(target=once, args=(make(),)) for _ in range(number)]
                for thread in threads:
                    thread.start()
            else:
                for thread in threads:
                    thread.join()

        yield act


def line_of(place: Place, size: int) -> Mapping[str, Work]:
    def works(who: str) -> Work:
        path = f"{place.top}/{who}-line"
        processes = place.pace.sides
        parts = [size // processes + (number < size % processes) for number in range(processes)]
        crew = place.stack.enter_context(Crew(queuing, [(who, place.hosts, path, part) for part in parts if part]))
        first = maker(who, place.observed, path, place.stack)()

        def turn() -> Done:
            first.acquire()
            crew.do("stand")
            place.until(path, size + 1)
            began = time.perf_counter()
            first.release()
            crew.do("passed")
            return Done(size, time.perf_counter() - began)

        return turn

    return {OURS: works(OURS), KAZOO: works(KAZOO)}


MEASURES = [
    Measure(
        "waiters",
        "1,000 waiters on one lock",
        line_of,
        (
            counted("events", "release", 1.01),
            constant("requests", "acquisition", 1.02),
            counted("requests", "acquisition", 1e9),
            faster(),
        ),
        "the requests do not grow, the bytes do: each woken waiter reads a list of all waiters",
        sizes=(10, 100, 1000),
        of_what="waiters",
        rounds=1,
        operation="acquisition",
    )
]
