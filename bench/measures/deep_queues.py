"""Deep queues: whether the last items cost as little as the first, and what many items cost a new
client.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple

import distsync
from bench.harness import Done, Measure, Place, Work, so_often
from bench.measures.queues import ITEM, SLICE, fill_kazoo
from bench.results import KAZOO, OURS, Goal, faster, figure
from distsync._protocols.steps import Exists, Stat
from distsync.testing import java_process

MIB = 1 << 20
KAZOO_ENTRY = len("entry-100-0000000000") + 4
"""Size in bytes of one name in kazoo's list."""

PUTS, GETS, MEMORY = "puts, last / first", "gets, last / first", "client's memory grown (MiB)"
PUTS_OF_READS, GETS_OF_READS = f"{PUTS}, in bare reads", f"{GETS}, in bare reads"
LEFT_OUT = "list of all names (MiB)"
NEWCOMER = "get of a newcomer, in gets"

LISTED, BROKEN = "items, which a Java client can still list", "items, which a Java client cannot list any more"
PROBED = range(42_000, 46_001, 1000)
"""Numbers of names at which the list may exceed 1 MiB, the most that Java's clients read at once."""

SESSION_S = 40.0
"""Session timeout in seconds: the embedded server does not answer while it writes a snapshot of a
million znodes.
"""

CLI = "org.apache.zookeeper.ZooKeeperMain"
JAVA_S = 60


class Rate(NamedTuple):
    """Operations per second, absolute and relative to bare reads per second, which other load affects
    less.
    """

    per_second: float
    of_reads: float


def resident() -> float:
    """Return the resident memory of this process (MiB)."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / MIB


async def look(path: str) -> Stat | None:
    return await Exists(path)


def rate(client: distsync.Client, work: Callable[[], object], times: int) -> Rate:
    spent = reading = 0.0
    for _ in range(0, times, SLICE):
        spent += so_often(work, SLICE).seconds
        reading += so_often(lambda: client.run(look("/")), SLICE // 10).seconds
    return Rate(times / spent, times / spent / (times / 10 / reading))


def deep(place: Place, items: int) -> Mapping[str, Work]:
    """The first and the last items are put, and got, one by one; those between, many at once."""
    client = place.client(session_timeout=SESSION_S)
    queue: distsync.Queue[bytes] = distsync.Queue(name="deep", client=client)
    window = place.pace.window

    def warm() -> None:
        queue.put_many([ITEM] * 2 * SLICE)
        for _ in range(2):
            queue.get_many(SLICE)

    def fill(memory: list[float]) -> None:
        left = items - 2 * window
        while left:
            queue.put_many([ITEM] * min(window, left))
            left -= min(window, left)
            memory.append(resident())

    def drain(memory: list[float]) -> None:
        left = items - 2 * window
        while left:
            left -= len(queue.get_many(min(SLICE, left)))
            memory.append(resident())

    def turn() -> Done:
        warm()
        memory = [resident()]
        first = rate(client, lambda: queue.put(ITEM), window)
        filling = so_often(lambda: fill(memory), 1)
        last = rate(client, lambda: queue.put(ITEM), window)
        first_got = rate(client, queue.get, window)
        draining = so_often(lambda: drain(memory), 1)
        last_got = rate(client, queue.get, window)
        figures = {
            PUTS: last.per_second / first.per_second,
            GETS: last_got.per_second / first_got.per_second,
            PUTS_OF_READS: last.of_reads / first.of_reads,
            GETS_OF_READS: last_got.of_reads / first_got.of_reads,
            MEMORY: max(memory) - memory[0],
        }
        return Done(items, filling.seconds + draining.seconds, figures)

    return {OURS: turn, KAZOO: lambda: deep_kazoo(place, items)}


def deep_kazoo(place: Place, items: int) -> Done:
    """As many in kazoo's Queue, all children of one znode, which are listed as a whole."""
    client, path, window = place.kazoo(timeout=SESSION_S), f"{place.top}/kazoo", place.pace.window
    fill, memory = partial(fill_kazoo, client, path), [resident()]

    def put() -> Done:
        return so_often(lambda: client.Queue(path).put(ITEM), window)

    def get() -> Done:
        """A get by a client that has not read the list yet."""
        getter = client.Queue(path)
        done = so_often(getter.get, window)
        memory.append(resident())
        return done

    first, first_got = put(), get()
    broken = where_it_breaks(place, path, fill) if items > PROBED[-1] else {}
    filling = so_often(lambda: fill(items - window - int(max(broken.values(), default=0))), 1)
    last, last_got = put(), get()
    figures = {
        PUTS: first.seconds / last.seconds,
        GETS: first_got.seconds / last_got.seconds,
        NEWCOMER: so_often(client.Queue(path).get, 1).seconds / (first_got.seconds / window),
        MEMORY: max(memory) - memory[0],
    }
    return Done(items, filling.seconds, {**figures, **broken})


def where_it_breaks(place: Place, path: str, fill: Callable[[int], None]) -> dict[str, float]:
    """Return how many names Java's own client can list, and how many it cannot."""
    found: dict[str, float] = {}
    there = 0
    for items in () if java_process.missing() else PROBED:
        fill(items - there)
        there = items
        words = java_process.command({}, CLI, "-server", place.observed, "ls", path)
        listed = subprocess.run(words, capture_output=True, timeout=JAVA_S, check=False).stdout.count(b"entry-")
        found[LISTED if listed == items else BROKEN] = items
        if listed != items:
            break
    return found


def newcomer(place: Place, size: int) -> Mapping[str, Work]:
    """The first get of a client that has not used the queue before; the item is put again."""
    filler = distsync.connect(place.observed, namespace=place.top, default=False)
    place.stack.enter_context(filler)
    distsync.Queue(name="q", client=filler).put_many([ITEM] * size)
    kazoo, path = place.kazoo(), f"{place.top}/kazoo"
    fill_kazoo(place.kazoo(place.observed), path, size)
    numbers = count()

    def ours() -> Done:
        client = place.client()
        other: distsync.Queue[bytes] = distsync.Queue(name=f"other-{next(numbers)}", client=client)
        other.put(ITEM)
        other.get()
        queue: distsync.Queue[bytes] = distsync.Queue(name="q", client=client)
        done = so_often(queue.get, 1)
        queue.put(ITEM)
        client.close()
        return done

    def theirs() -> Done:
        done = so_often(kazoo.Queue(path).get, 1)
        kazoo.Queue(path).put(ITEM)
        return Done(1, done.seconds, {LEFT_OUT: size * KAZOO_ENTRY / MIB})

    return {OURS: ours, KAZOO: theirs}


MEASURES = [
    Measure(
        "deep-queue",
        "queue of many items (`ITEMS=1000000`: as the goal says)",
        deep,
        (
            figure(PUTS, at_least=0.8),
            figure(GETS, at_least=0.8),
            figure(PUTS_OF_READS),
            figure(GETS_OF_READS),
            figure(MEMORY, at_most=8, unit=" MiB"),
            Goal("items", lambda results: [results[-1].size], unit=""),
            figure(PUTS, of=KAZOO),
            figure(GETS, of=KAZOO),
            figure(NEWCOMER, of=KAZOO, unit=""),
            figure(MEMORY, of=KAZOO, unit=" MiB"),
            figure(LISTED, of=KAZOO, unit=""),
            figure(BROKEN, of=KAZOO, unit=""),
        ),
        "nothing grows with the number of items but the server's own memory and journal. All of kazoo's are children "
        "of one znode: its list, which each getter reads first, is longer than the 1 MiB that ZooKeeper's Java clients "
        f"read from {MIB // KAZOO_ENTRY:,} items on; kazoo itself reads it however long, with the memory and the time "
        "that takes",
        rounds=1,
        counted=False,
        operation="item",
        of_what="items",
        deep=True,
    ),
    Measure(
        "queue-newcomer",
        "first get of a newcomer to a deep queue",
        newcomer,
        (faster(), figure(LEFT_OUT, of=KAZOO, unit=" MiB")),
        f"kazoo's getter reads the names of all items; from {MIB // KAZOO_ENTRY:,} on their list is longer than the 1 "
        "MiB that ZooKeeper's Java clients read",
        sizes=(10, 1000, 10_000, 50_000),
        of_what="items",
        rounds=5,
        operation="first get",
    ),
]
