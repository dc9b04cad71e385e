"""Deep queues: whether the last items are as cheap as the first, and what many of them cost who comes anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple

import distsync
from bench.harness import Done, Measure, Place, Work, so_often
from bench.measures.queues import ITEM, SLICE, fill_kazoo
from bench.results import KAZOO, OURS, faster, figure
from distsync.session.steps import Exists, Stat

MIB = 1 << 20
KAZOO_ENTRY = len("entry-100-0000000000") + 4
"""Bytes of one name in kazoo's list."""

PUTS, GETS, MEMORY = "puts, last / first", "gets, last / first", "client's memory grown (MiB)"
PUTS_OF_READS, GETS_OF_READS = f"{PUTS}, in bare reads", f"{GETS}, in bare reads"
LEFT_OUT = "list of all names (MiB)"


class Rate(NamedTuple):
    """Operations a second, and as a part of bare reads a second: what else the machine does counts less."""

    per_second: float
    of_reads: float


def resident() -> float:
    """What this process has in memory (MiB)."""
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


def deep(place: Place, _: int) -> Mapping[str, Work]:
    """The first and the last are put, and got, one by one; those between, many at once."""
    client = place.client()
    queue: distsync.Queue[bytes] = distsync.Queue(name="deep", client=client)
    window, items = place.pace.window, place.pace.deep

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
            "items": items,
        }
        return Done(items, filling.seconds + draining.seconds, figures)

    return {OURS: turn}


def newcomer(place: Place, size: int) -> Mapping[str, Work]:
    """The first get of somebody who has not seen the queue before; the item is put again."""
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
            figure("items", unit=""),
        ),
        "nothing grows with the number of items but the server's own memory and journal",
        rounds=1,
        counted=False,
        operation="item",
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
