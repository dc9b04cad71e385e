"""Queues: no item is lost or duplicated, order and bound hold, and nobody waits while there are items.

An item contains its producer and a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from simulation.engine.call_frames import CLEAN_UP_MS, Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    is_disrupted,
    maybe_timeout,
    processes,
    receipts,
    sleepers,
    spawn,
    unsettled_calls,
    work,
)

from distsync._protocols.queues import fifo
from distsync._protocols.queues.bulk import Progress, feed, get_many, put_many
from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.queues.ordered import OrderedCore, PriorityCore, key_of
from distsync._protocols.queues.segments import SEGMENT
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Call, Create, GetData, Pipeline
from distsync.errors import Full, OutcomeUnknownError, ShutDown

PATH = f"{ROOT}/queue/q"

#: Items that are counted by one write; small, so that some bulk puts need both kinds of counts.
BULK = 2

#: Maximum number of items of a bulk get.
SEVERAL = 3

#: Share of the schedules in which the queue is shut down.
CLOSING = 0.15

Make = Callable[[str, Receipts], QueueCore]


def priority_core(path: str, made: Receipts) -> QueueCore:
    return PriorityCore(path, made, lambda _, data: json.loads(data))


class RestoredItems(Check):
    """Track the items that came back: they were in the queue, were taken, and a restore put them back."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.seen: set[tuple[Any, ...]] = set()
        self.restored: set[tuple[Any, ...]] = set()

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        items = tree.node(f"{PATH}/items")
        paths = set()
        for segment in items.children if items else ():
            node = tree.node(f"{PATH}/items/{segment}")
            paths |= {f"{PATH}/items/{segment}/{name}" for name in (node.children if node else ())}
        new, self.paths = paths - self.paths, paths
        for path in new:
            node = tree.node(path)
            item = tuple(json.loads((node and node.data) or b"[]"))
            (self.restored if item in self.seen else self.seen).add(item)


def record_refusal(world: Simulation, error: Exception, item: Any) -> None:
    if isinstance(error, ShutDown) and not world.history.events("shutting down"):
        world.fail(f"{item} was refused without a shutdown")
    world.record("unknown" if isinstance(error, OutcomeUnknownError) else "full", item=item)


async def shut_down(world: Simulation, core: QueueCore, maxsize: int) -> None:
    immediate = world.rng.random() < 0.5
    await Run(work(world))
    world.record("shutting down", immediate=immediate)
    with suppress(OutcomeUnknownError):
        await Run(core.shutdown(immediate, maxsize))
        world.record("shut down")


def may_have_discarded(world: Simulation) -> bool:
    """Return whether a shutdown may have discarded items."""
    return any(record.immediate for record in world.history.events("shutting down"))


class ScenarioRun:
    """One schedule of one kind of queue."""

    def __init__(
        self,
        world: Simulation,
        make: Make,
        maxsize: int,
        several: bool = False,
        crowd: int = 0,
        closing: float = CLOSING,
    ) -> None:
        self.world = world
        self.several = several
        #: Number of additional producers in each process, which put at the same time.
        self.crowd = crowd
        self.closing = closing
        self.make = make
        self.maxsize = maxsize
        self.acknowledged: set[tuple[Any, ...]] = set()
        self.returns = RestoredItems()
        if maxsize or closing == 1:
            world.checks.append(self.returns)

    def core(self, process: SimProcess) -> QueueCore:
        core = process.local(PATH, lambda: self.make(PATH, receipts(process)))
        core.znodes.batch_size = BULK
        return core

    async def bulk_producer(self, process: SimProcess, name: str) -> None:
        """Put several items at once, a few times."""
        world, core = self.world, self.core(process)
        for turn in range(world.rng.randint(1, 2)):
            items = [(world.rng.randint(0, 2), name, 10 * turn + number) for number in range(world.rng.randint(2, 4))]
            for item in items:
                world.record("putting", item=item)
            progress = Progress()
            encoded = [("", json.dumps(item).encode()) for item in items]
            try:
                if world.rng.random() < 0.5:
                    await Run(feed(core, [data for _, data in encoded], progress, world.rng.randint(1, 2)))
                else:
                    await Run(put_many(core, encoded, True, progress, self.maxsize), maybe_timeout(world))
            except (Full, ShutDown, OutcomeUnknownError) as error:
                for item in items[progress.put :]:
                    record_refusal(world, error, item)
            for item in items[: progress.put]:
                world.record("put", item=item)
            self.acknowledged.update(items)
            await Run(work(world))

    async def producer(self, process: SimProcess, name: str) -> None:
        world, core = self.world, self.core(process)
        for number in range(world.rng.randint(1, 3)):
            item = (world.rng.randint(0, 2), name, number)
            timeout = maybe_timeout(world)
            world.record("putting", item=item)
            try:
                data = json.dumps(item).encode()
                key = key_of(item) if self.make is priority_core else ""
                await Run(core.put(data, timeout != 0.0, key, self.maxsize, timeout is None), timeout)
            except (Full, ShutDown, OutcomeUnknownError) as error:
                record_refusal(world, error, item)
                continue
            except KeyboardInterrupt:
                world.record("gave up", data=data)
                raise
            world.record("put", item=item)
            self.check_bound(item)
            await Run(work(world))

    def check_bound(self, item: tuple[Any, ...]) -> None:
        """Check that the queue never has more acknowledged items than the bound, apart from those that
        a restore put back.
        """
        self.acknowledged.add(item)
        counted = self.acknowledged - self.returns.restored
        inside = [each for each in self.present() if each in counted]
        if self.maxsize and len(inside) > self.maxsize:
            self.world.fail(f"{len(inside)} items are in a queue of {self.maxsize}: {inside}")

    def check_over(self) -> None:
        """Check that a queue is empty after a getter got ShutDown: it was seen empty then, and nothing
        can have been put since.
        """
        left = [item for item in self.present() if item not in self.returns.restored]
        if left and self.returns in self.world.checks and not may_have_discarded(self.world):
            self.world.fail(f"ShutDown was raised although items are left: {left}")

    async def consumer(self, process: SimProcess) -> None:
        world, core = self.world, self.core(process)
        for _ in range(world.rng.randint(1, 3)):
            timeout = maybe_timeout(world)
            world.record("getting")
            many = self.several and world.rng.random() < 0.5
            getting = (
                get_many(core, SEVERAL, b"", timeout != 0.0, self.maxsize)
                if many
                else core.get(b"", timeout != 0.0, self.maxsize)
            )
            try:
                data = await Run(getting, timeout)
            except OutcomeUnknownError:
                world.record("unknown get")
                continue
            except ShutDown:
                world.record("empty")
                self.check_over()
                return
            if data is None:
                world.record("empty")
            else:
                for each in data if many else [data]:
                    world.record("got", item=tuple(json.loads(each)))
                world.record("served")
            await Run(work(world))

    def present(self) -> list[tuple[Any, ...]]:
        """Return the items in the queue, read from the server's tree, in the order of their arrival."""
        paths = [path for path in self.world.leftovers() if path.startswith(f"{PATH}/items/") and "/i_" in path]
        paths.sort(key=lambda path: (path.rpartition("/")[0], int(path[-10:])))
        return [tuple(json.loads(self.world.external_client(GetData(path)).data)) for path in paths]

    async def drain(self, process: SimProcess) -> None:
        """Get the remaining items."""
        core = self.core(process)
        with suppress(ShutDown):
            while (data := await Run(core.get(b"", False, self.maxsize))) is not None:
                self.world.record("drained", item=tuple(json.loads(data)))

    def run(self) -> None:
        world, number = self.world, 0
        for process in processes(world, 2, 3):
            for _ in range(self.crowd + world.rng.choice((1, 1, 2))):
                number += 1
                producer = (self.bulk_producer if self.several else self.producer)(process, f"p{number}")
                spawn(process, producer, name=f"producer{number}", daemon=bool(self.maxsize))
            for each in range(world.rng.choice((0, 1, 1, 2))):
                spawn(process, self.consumer(process), name=f"consumer{each}", daemon=True)
        if world.rng.random() < self.closing:
            spawn(process, shut_down(world, self.core(process), self.maxsize), name="closer")
        world.run()
        waiting, left = sleepers(world), self.present()
        self.check_sleepers(waiting, left)
        observer = world.process(OBSERVER)
        spawn(observer, self.drain(observer), name="drain")
        world.run()
        drained = [record.item for record in world.history.events("drained")]
        if not waiting and drained != self.in_order(left):
            world.fail(f"the remaining items were delivered as {drained}, not as {self.in_order(left)}")
        self.check_items(drained + self.present())
        check_given_up(world)
        world.close()

    def in_order(self, left: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the order in which items that arrived in this order are delivered."""
        if self.make is priority_core:
            return sorted(left)
        return left[::-1] if self.make is OrderedCore else left

    def check_sleepers(self, waiting: list[str], left: list[tuple[Any, ...]]) -> None:
        """Check that nobody waits for what is available."""
        if waiting and self.world.history.events("shut down"):
            self.world.fail(f"{waiting} wait although the queue was shut down")
        consumers = [name for name in waiting if "consumer" in name]
        producers = [name for name in waiting if "producer" in name]
        if consumers and left:
            self.world.fail(f"{', '.join(consumers)} wait while the queue has {left}")
        if producers and len(left) <= self.maxsize:
            self.world.fail(f"{', '.join(producers)} wait while the queue of {self.maxsize} has only {left}")

    def check_items(self, rest: list[tuple[Any, ...]]) -> None:
        """Check that each item that was put was delivered once, or is present."""
        world, history = self.world, self.world.history
        got = [record.item for record in history.events("got")] + rest
        doubled = sorted({item for item in got if got.count(item) > 1})
        if doubled:
            world.fail(f"got twice: {doubled}")
        lost = sorted({record.item for record in history.events("put")} - set(got))
        if len(lost) > self.unsure() and not may_have_discarded(world):
            world.fail(f"lost: {lost}")
        never = sorted(set(got) - {record.item for record in history.events("putting")})
        refused = sorted(set(got) & {record.item for record in history.events("full")})
        if never or refused:
            world.fail(f"got although never put: {never}; got although put was refused: {refused}")

    def unsure(self) -> int:
        """Return how many items may be lost with getters that were killed, lost their session or were
        interrupted before they returned the item.
        """
        disrupted = {process.name for process in self.world.processes.values() if is_disrupted(self.world, process)}
        events = [record.event for record in self.world.history.records if record.process in disrupted]
        late = [task for task, at in self.world.interrupts if isinstance(at, Call)]
        answered = events.count("served") + events.count("empty")
        unsure = events.count("getting") - answered + len(late) + unsettled_calls(self.world)
        return unsure * (SEVERAL if self.several else 1)


def check_given_up(world: Simulation) -> None:
    """Check that a put sends nothing after it was ended by Ctrl-C."""
    given_up: set[bytes] = set()
    for _, _, what, about in world.history.notes:
        if what == "*" and about[0] == "gave up":
            given_up.add(about[1]["data"])
        elif what == ">" and isinstance(about, Pipeline):
            asked = [each for request in about.requests for each in getattr(request, "operations", ())]
            if any(isinstance(each, Create) and each.sequence and each.data in given_up for each in asked):
                world.fail(f"an item was sent although its put had ended: {given_up}")


@contextmanager
def segment_size(size: int) -> Iterator[None]:
    """Make segments so small that a short schedule uses several."""
    usual, fifo.SEGMENT = fifo.SEGMENT, size  # type: ignore[attr-defined]
    try:
        yield
    finally:
        fifo.SEGMENT = usual  # type: ignore[attr-defined]


def run(
    world: Simulation, make: Make, bounded: bool, several: bool = False, crowd: int = 0, closing: float = CLOSING
) -> None:
    maxsize = world.rng.randint(1, 3) if bounded else 0
    world.clean_up_ms = CLEAN_UP_MS if bounded else 0  # a late put removes its item again
    with segment_size(world.rng.choice((2, 3, SEGMENT))):
        ScenarioRun(world, make, maxsize, several, crowd, closing).run()


FIFO = Scenario("fifo", partial(run, make=QueueCore, bounded=False))
BOUNDED = Scenario("bounded", partial(run, make=QueueCore, bounded=True))
SHUTDOWN = Scenario("shutdown", partial(run, make=QueueCore, bounded=True, crowd=1, closing=1.0))
SHUTDOWN_BULK = Scenario("shutdown-bulk", partial(run, make=QueueCore, bounded=False, several=True, closing=1.0))
BULK_PUTS = Scenario("bulk-puts", partial(run, make=QueueCore, bounded=False, several=True))
CONCURRENT_PUTS = Scenario("concurrent-puts", partial(run, make=QueueCore, bounded=False, crowd=2))
LIFO = Scenario("lifo", partial(run, make=OrderedCore, bounded=False))
PRIORITY = Scenario("priority", partial(run, make=priority_core, bounded=False))
