"""Many locks held by one client: the cost of one more, and how many survive a lost connection."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient

import distsync
from bench.harness import Done, Measure, Place, Work
from bench.measures.locks import cycles
from bench.results import KAZOO, OURS, Goal, Result, faster, figure

#: A short session: its locks are lost if they are not proven to be held within 60 % of that time.
SESSION_S = 3.0

SURVIVORS = "held after a cut / held before"


def holding(place: Place, number: int) -> Mapping[str, Work]:
    client, kazoo = place.client(session_timeout=SESSION_S), place.kazoo(timeout=SESSION_S)
    ours = [distsync.Lock(name=f"held {one}", client=client) for one in range(number)]
    theirs = [kazoo.Lock(f"{place.top}/kazoo-{one}") for one in range(number)]
    for lock in (*ours, *theirs):
        lock.acquire()

    def work(one_more: Any, kazoo_client: Callable[[], KazooClient], held: Callable[[], int]) -> Work:
        def turn() -> Done:
            done, before = cycles(one_more, place.pace.seconds), held()
            cut(kazoo_client())
            time.sleep(SESSION_S)
            return Done(done.operations, done.seconds, {SURVIVORS: held() / before if before else 0.0})

        return turn

    return {
        OURS: work(
            distsync.Lock(name="one more", client=client, linger=0),
            lambda: client._runtime.zk_session._kazoo,  # type: ignore[union-attr]
            lambda: sum(lock.held for lock in ours),
        ),
        KAZOO: work(
            kazoo.Lock(f"{place.top}/one more"), lambda: kazoo, lambda: sum(lock.is_acquired for lock in theirs)
        ),
    }


def cut(client: KazooClient) -> None:
    """Cut the client's connection. It reconnects at once."""
    client._connection._socket.shutdown(socket.SHUT_RDWR)


def grown(of: str, at_most: float | None = None) -> Goal:
    """Return a goal: at the largest size, a cycle takes this many times as long as at the smallest."""

    def seen(results: Sequence[Result]) -> list[float]:
        first = statistics.median(results[0].rates[of])
        return [first / rate for rate in results[-1].rates[of]]

    what = "time of a cycle, largest to smallest"
    return Goal(what if of == OURS else f"{of}: {what}", seen, at_most=at_most)


MEASURES = [
    Measure(
        "held-locks",
        "Lock cycle not kept, while its client holds 10,000 locks",
        holding,
        (faster(), grown(OURS, at_most=1.3), grown(KAZOO), figure(SURVIVORS, at_least=1.0)),
        "as a cycle not kept: nothing in it depends on how many locks are held. After a cut, the znodes of all held "
        "locks are read again, in batches. kazoo reads none, and takes its locks for held",
        sizes=(1, 250, 1_500, 3_500, 10_000),
        of_what="held locks",
        rounds=3,
        counted=False,
        operation="cycle",
    )
]
