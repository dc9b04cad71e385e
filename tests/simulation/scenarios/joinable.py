"""JoinableQueue: each item is finished once, by a worker that had it alone, or becomes a dead letter,
whichever process is killed.

An item contains its producer and a number.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from simulation.engine.call_frames import CLEAN_UP_MS, Run
from simulation.engine.invariants import Check, holds
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    sleepers,
    spawn,
    work,
)
from simulation.scenarios.queues import may_have_discarded, record_refusal, segment_size, shut_down

from distsync._protocols.queues.bulk import Progress, put_many
from distsync._protocols.queues.claim_layout import ClaimedItem, ItemHeader, due_time
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.queues.segments import SEGMENT
from distsync._protocols.steps import GetData, Wait
from distsync.errors import Full, LockLostError, OutcomeUnknownError, ShutDown

PATH = f"{ROOT}/joinable_queue/q"

#: Longer than any session, pause or delay.
QUIET_S = 60.0

#: Maximum duration of a request; also how much later than due a delayed item may be delivered,
#: because the servers' clock is asked.
ROUND_TRIPS_MS = 100


class ExclusiveClaim(Check):
    """Check that no two workers provably have the same item, and that none gets it before it is due,
    or too often.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.holders: dict[Any, Record] = {}
        self.due: dict[Any, int] = {}
        self.seen: set[tuple[Any, int]] = set()

    def see(self, world: Simulation, record: Record) -> None:
        item = record.fields.get("item")
        if record.event == "putting":
            self.due[item] = record.at_ms + record.delay_ms
        elif record.event in ("nacking", "ending", "abandoned"):
            if item in self.holders and self.holders[item].task == record.task:
                del self.holders[item]
        elif record.event == "done" and item in self.holders:
            world.fail(f"{record.task} finished {item}, which {self.holders[item].task} has got since")
        elif record.event == "got":
            self._got(world, record, item)

    def _got(self, world: Simulation, record: Record, item: Any) -> None:
        before = self.holders.get(item)
        if before is not None and before.task != record.task and holds(world, before) and holds(world, record):
            world.fail(f"{record.task} gets {item}, which {before.task} has held since {before.at_ms} ms")
        if record.deliveries > max((each for one, each in self.seen if one == item), default=0):
            self.holders[item] = record  # a late reply may be recorded after that of the next worker
        if record.at_ms < self.due[item]:
            world.fail(f"{record.task} gets {item} {self.due[item] - record.at_ms} ms too early")
        if (item, record.deliveries) in self.seen or 0 < self.most < record.deliveries:
            world.fail(f"delivery {record.deliveries} of {item} is repeated or exceeds the limit")
        self.seen.add((item, record.deliveries))


class ScenarioRun:
    """One schedule."""

    def __init__(self, world: Simulation, bounded: bool) -> None:
        self.world = world
        self.maxsize = world.rng.randint(1, 3) if bounded else 0
        world.clean_up_ms = CLEAN_UP_MS if bounded else 0  # a late put removes its item again
        self.most = world.rng.choice((0, 0, 1, 2, 3))
        self.ahead = self.most != 1 and world.rng.random() < 0.4
        self.latest: dict[str, ClaimedItem] = {}
        """The last delivery of each claim."""
        self.abandoned: dict[str, SimProcess] = {}
        """Claims that were reported as lost, which their worker then ignored, and which nobody else
        has.
        """
        world.checks.append(ExclusiveClaim(self.most))

    def core(self, process: SimProcess) -> JoinableCore:
        return process.local(PATH, lambda: JoinableCore(PATH, receipts(process)))

    async def producer(self, process: SimProcess, name: str) -> None:
        world, core, rng = self.world, self.core(process), self.world.rng
        for number in range(rng.randint(1, 3)):
            item = (name, number)
            if rng.random() < 0.2:
                await self.put_several(core, [(name, 100 * (number + 1) + each) for each in range(3)])
            timeout, delay = maybe_timeout(world), rng.choice((0.0, 0.0, 0.0, 0.02, 5.0))
            key = rng.choice((None, None, None, "key", "other"))
            world.record("putting", item=item, delay_ms=round(delay * 1000), key=key)
            try:
                adding = core.add(json.dumps(item).encode(), timeout != 0.0, delay, key, self.maxsize, timeout is None)
                new = await Run(adding, timeout)
            except (Full, ShutDown, OutcomeUnknownError) as error:
                record_refusal(world, error, item)
                continue
            world.record("put" if new else "known", item=item)
            await Run(work(world))

    async def put_several(self, core: JoinableCore, items: list[Any]) -> None:
        world, progress = self.world, Progress()
        for item in items:
            world.record("putting", item=item, delay_ms=0, key=None)
        encoded = [("", ItemHeader().before(json.dumps(item).encode())) for item in items]
        try:
            await Run(put_many(core, encoded, True, progress, self.maxsize), maybe_timeout(world))
        except (Full, ShutDown, OutcomeUnknownError) as error:
            for item in items[progress.put :]:
                record_refusal(world, error, item)
        for item in items[: progress.put]:
            world.record("put", item=item)

    async def worker(self, process: SimProcess) -> None:
        world, core, rng = self.world, self.core(process), self.world.rng
        for _ in range(rng.randint(1, 4)):
            timeout = maybe_timeout(world)
            world.record("claiming")
            try:
                claimed = await self.claimed(process, core, timeout)
            except OutcomeUnknownError:
                continue
            except ShutDown:
                world.record("shut out")
                return
            for delivery in claimed or ():
                self.got(process, delivery)
            for delivery in claimed or ():
                await Run(work(world))
                if rng.random() < 0.1:
                    await Run(a_long_while(world))
                if delivery.loss.fired and rng.random() < 0.5:
                    world.record("abandoned", item=item_of(delivery), claim=delivery.claim)
                    if self.latest[delivery.claim] is delivery:
                        self.abandoned[delivery.claim] = process
                    continue
                await self.finish(core, delivery)

    async def claimed(self, process: SimProcess, core: JoinableCore, timeout: float | None) -> list[ClaimedItem] | None:
        """Claim one or two items, as get and get_many do, and sometimes prefetch more for the next
        calls.
        """
        most, prefetch = self.world.rng.choice((1, 1, 2)), self.world.rng.choice((0, 0, 1, 2)) if self.ahead else 0
        claimed: list[ClaimedItem] = []
        try:
            await Run(core.claim_into(claimed, b"{}", timeout != 0.0, most, self.most, prefetch), timeout)
        except BaseException:
            for each in claimed:
                process.background(core.give_back(each))
            raise
        return claimed

    def got(self, process: SimProcess, delivery: ClaimedItem) -> None:
        self.latest[delivery.claim] = delivery
        self.abandoned.pop(delivery.claim, None)
        self.world.record(
            "got",
            item=item_of(delivery),
            session_id=process.session.session_id or 0,
            loss=delivery.loss,
            deliveries=delivery.label.deliveries,
        )

    async def finish(self, core: JoinableCore, delivery: ClaimedItem) -> None:
        world, item = self.world, item_of(delivery)
        delay = world.rng.choice((None, None, None, 0.0, 0.02, 5.0))
        try:
            if delay is None:
                world.record("ending", item=item)
                await Run(core.done(delivery))
                world.record("done", item=item)
            else:
                world.record("nacking", item=item)
                await Run(core.nack(delivery, delay, self.most))
        except LockLostError as error:
            world.record("lost", item=item)
            if not world.faults.injected:
                world.fail(f"a loss without a fault: {error}")
        except OutcomeUnknownError:
            world.record("unknown end", item=item)

    async def drain(self, process: SimProcess) -> None:
        """Finish the remaining items as soon as possible."""
        core = self.core(process)
        while True:
            try:
                claimed = await Run(core.claim(b"{}", max_deliveries=self.most), QUIET_S)
            except ShutDown:
                return
            if not claimed:
                return
            for delivery in claimed:
                self.got(process, delivery)
                self.world.record("drained", item=item_of(delivery), folder=delivery.path.split("/")[-2])
                self.world.record("ending", item=item_of(delivery))
                await Run(core.done(delivery))
                self.world.record("done", item=item_of(delivery))

    def run(self) -> None:
        world, rng, number = self.world, self.world.rng, 0
        for process in processes(world, 2, 3):
            for _ in range(rng.choice((1, 1, 2))):
                number += 1
                spawn(process, self.producer(process, f"p{number}"), f"producer{number}", daemon=bool(self.maxsize))
            for each in range(rng.choice((0, 1, 1, 2))):
                spawn(process, self.worker(process), name=f"worker{each}", daemon=True)
        if rng.random() < 0.2:
            spawn(process, shut_down(world, self.core(process), self.maxsize), name="closer")
        elif separate_rng(world, "joinable").random() < 0.1:
            spawn(process, self.shut_down_prefetched(self.core(process)), name="closer")
        world.run()
        self.check_sleepers()
        self.check_abandoned()
        for process in list(world.processes.values()):
            if process.alive:
                process.kill()
        world.run(until=lambda: not self.claims())
        observer = world.process(OBSERVER)
        left = [self.item(path) for path in self.items() if "/d_" not in path]
        spawn(observer, self.drain(observer), name="drain")
        world.run()
        self.check_order(left)
        self.check_items()
        world.close()

    async def shut_down_prefetched(self, core: JoinableCore) -> None:
        """Discard what is queued, and what was prefetched."""
        for _ in range(50):
            if not core.ahead:
                await Wait(limit=0.005)
        self.world.record("shutting down", immediate=True)
        with suppress(OutcomeUnknownError):
            await Run(core.shutdown(True, self.maxsize))
            self.world.record("shut down")

    def items(self, top: str = PATH) -> list[str]:
        """Return the paths of the items in the order of their arrival."""
        paths = [path for path in self.world.leftovers() if path.startswith((f"{top}/items/", f"{top}/delayed/"))]
        return sorted((path for path in paths if path.count("/") > top.count("/") + 2 or "/d_" in path), key=arrival)

    def claims(self) -> set[str]:
        """Return the names of the claims."""
        return {path.rpartition("/")[2] for path in self.world.leftovers() if path.startswith(f"{PATH}/claims/")}

    def check_sleepers(self) -> None:
        """Check that no worker waits for an available item, and no producer while there is room."""
        claims = self.claims()
        free = [path for path in self.items() if "~".join(path.split("/")[-2:]) not in claims]
        due = [path for path in free if "/d_" not in path or due_time(path) + ROUND_TRIPS_MS <= self.world.now_ms]
        last = {record.task: record for record in self.world.history.records}
        asked = [record for record in last.values() if record.event in ("claiming", "putting")]  # not working
        since_ms = self.world.now_ms - ROUND_TRIPS_MS  # a recent call may still get its reply
        names = {record.task for record in asked if record.at_ms < since_ms}
        waiting = [name for name in sleepers(self.world) if name in names]
        if self.world.history.events("shut down"):
            waiting = [name for name in waiting if "producer" in name or not self.items()]
            if waiting:
                self.world.fail(f"{waiting} wait although the queue was shut down")
            return
        if due and any("worker" in name for name in waiting):
            self.world.fail(f"{waiting} wait while {due} are available")
        inside = [path for path in free if "/d_" not in path]
        if any("producer" in name for name in waiting) and len(inside) <= self.maxsize:
            self.world.fail(f"{waiting} wait while the queue of {self.maxsize} has only {inside}")

    def check_abandoned(self) -> None:
        """Check that a process does not own a claim whose loss was reported to its worker."""
        tree = self.world.server.engine.tree
        for claim, process in self.abandoned.items():
            node = tree.node(claim)
            if node is not None and process.alive and node.owner == process.session.session_id:
                self.world.fail(f"{claim} was reported as lost, but {process.name} still owns it")

    def check_order(self, left: list[Any]) -> None:
        """Check that the remaining items were delivered in the order of their arrival, whichever
        worker had them before.
        """
        drained = [record.item for record in self.world.history.events("drained") if record.folder != "delayed"]
        dead = {self.item(path) for path in self.items(f"{PATH}/dead")}
        expected = [item for item in left if item not in dead]
        if drained != expected:
            self.world.fail(f"the remaining items were delivered as {drained}, not as {expected}")

    def item(self, path: str) -> Any:
        node = self.world.external_client(GetData(path))
        return tuple(json.loads(ItemHeader.split(node.data)[1]))

    def check_items(self) -> None:
        """Check that each item is finished once or a dead letter, and that nothing else is finished or
        left.
        """
        history, world = self.world.history, self.world
        dead = [self.item(path) for path in self.items(f"{PATH}/dead")]
        done = [record.item for record in history.events("done")]
        ended = done + dead
        doubled = sorted({item for item in ended if ended.count(item) > 1})
        if doubled:
            world.fail(f"done twice, or done and dead: {doubled}")
        unsure = {record.item for record in history.events("ending")}
        lost = sorted({record.item for record in history.events("put")} - set(ended) - unsure)
        if lost and not may_have_discarded(world):
            world.fail(f"lost: {lost}")
        never = {record.item for record in history.events("full") + history.events("known")}
        if never & set(ended):
            world.fail(f"done although put was refused: {sorted(never & set(ended))}")
        if dead and not self.most:
            world.fail(f"dead letters without a limit: {dead}")
        left = [path for path in world.leftovers() if path.startswith((f"{PATH}/claims/", f"{PATH}/keys/"))]
        if left or self.items():
            world.fail(f"left: {left + self.items()}")


def arrival(path: str) -> tuple[str, str]:
    return path.rpartition("/")[0], path[-10:]


def item_of(delivery: ClaimedItem) -> Any:
    return tuple(json.loads(delivery.payload))


async def a_long_while(world: Simulation) -> None:
    """Pause, possibly until a session ends."""
    await Wait(limit=world.rng.randint(0, 20))


def run(world: Simulation, bounded: bool) -> None:
    with segment_size(world.rng.choice((2, 3, SEGMENT))):
        ScenarioRun(world, bounded).run()


JOINABLE = Scenario("joinable", lambda world: run(world, world.rng.random() < 0.3))
