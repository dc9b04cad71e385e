"""External deletions in queues and transactions: znodes are created again, and nothing is lost,
contradictory or stuck.

Of a queue, only empty folders are deleted. The outcome of a transaction whose znodes were deleted
may be unknown, but different answers never contradict each other, and the next transaction is not
affected.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    is_disrupted,
    processes,
    receipts,
    spawn,
    until_interrupted,
    work,
)

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.steps import Delete, Multi, Wait
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import ABORT, COMMIT, COORDINATOR, PEERS, TransactionConfig
from distsync.errors import CorruptNodeError, MismatchError, OutcomeUnknownError, ZnodeError

QUEUE = f"{ROOT}/queue/d"
PATH = f"{ROOT}/transaction/d"
SITES = ("bank", "hotel")

#: Longer than any session or pause.
LATER_MS = 60_000

#: Later faults are drawn separately, so that existing seeds keep their schedules.
TOLERATED_FAULTS = ("lost_request", "lost_reply", "cut", "expire_away", "expire_live", "slow", "pause", "late_event")
LATE_FAULTS = (*LATER_KINDS, *(kind for kind in KINDS if kind not in TOLERATED_FAULTS))


def below(world: Simulation, top: str) -> list[str]:
    """Return the paths that start with ``top``, deepest first."""
    return sorted((path for path in world.leftovers() if path.startswith(top)), reverse=True)


# A queue


class Queue:
    """A schedule of a queue whose empty folders are deleted."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.put: set[str] = set()
        self.putting: set[str] = set()
        self.got: list[str] = []
        self.unknown = 0

    def core(self, process: SimProcess) -> QueueCore:
        return process.local(QUEUE, lambda: QueueCore(QUEUE, receipts(process)))

    async def producer(self, process: SimProcess, name: str) -> None:
        for number in range(self.world.rng.randint(1, 4)):
            item = f"{name}.{number}"
            self.putting.add(item)
            with suppress(OutcomeUnknownError):
                await Run(self.core(process).put(item.encode(), True))
                self.put.add(item)
            await Run(work(self.world))

    async def consumer(self, process: SimProcess, count: int) -> None:
        for _ in range(count):
            try:
                item = await Run(self.core(process).get(b"", False))
            except OutcomeUnknownError:
                self.unknown += 1
                continue
            if item is not None:
                self.got.append(item.decode())
            await Run(work(self.world))

    async def administrator(self) -> None:
        """Delete empty folders a few times."""
        for _ in range(self.world.rng.randint(1, 5)):
            await Run(work(self.world))
            folders = [path for path in below(self.world, f"{QUEUE}/items") if "/i_" not in path]
            with suppress(ZnodeError):
                if folders:
                    self.world.external_client(Multi(tuple(map(Delete, folders))))

    def run(self) -> None:
        world = self.world
        for process in processes(world, 2, 3):
            spawn(process, self.producer(process, process.name))
            spawn(process, self.consumer(process, world.rng.randint(0, 3)))
        outside = world.process("outside")
        spawn(outside, self.administrator())
        world.run()
        observer = world.process(OBSERVER)
        spawn(observer, self.consumer(observer, len(self.putting) + 1))
        world.run()
        self.check_items()
        world.close()

    def check_items(self) -> None:
        lost = self.put - set(self.got)
        unsure = self.unknown + sum(is_disrupted(self.world, process) for process in self.world.processes.values())
        if len(lost) > unsure:
            self.world.fail(f"{sorted(lost)} were put, but never got")
        if len(set(self.got)) < len(self.got) or not set(self.got) <= self.putting:
            self.world.fail(f"got {self.got}, but put {sorted(self.putting)}")


# A transaction


class ExternalDeleter:
    """Two sites that vote for commit, their coordinator, and an administrator that deletes parts of
    the transaction.
    """

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.terms = TransactionConfig(SITES, world.rng.choice((COORDINATOR, PEERS)))
        self.others = TransactionConfig(SITES, PEERS if self.terms.decided_by == COORDINATOR else COORDINATOR)
        self.outcomes: dict[str, set[str]] = {}
        self.begun: list[str] = []
        self.is_over = False
        self.serving: dict[str, tuple[str, Task]] = {}
        """By the name of the initial process: the site, and the task that serves it now."""

    def core(self, process: SimProcess) -> TransactionCore:
        return process.local(PATH, lambda: TransactionCore(PATH, self.terms))

    def report(self, transaction: str, outcome: str) -> None:
        outcomes = self.outcomes.setdefault(transaction, set())
        outcomes.add(outcome)
        if len(outcomes) > 1:
            self.world.fail(f"{transaction} was reported as {sorted(outcomes)}")

    async def serve(self, site: str, process: SimProcess) -> None:
        async def prepare() -> tuple[bool, str]:
            await work(self.world)
            return True, ""

        plan = ParticipantCallbacks(
            lambda *_: prepare(),
            lambda transaction, _: self.report(transaction, COMMIT),
            lambda transaction, _: self.report(transaction, ABORT),
        )
        while True:
            try:
                await Run(ParticipantCore(self.core(process), site).take_part(plan, b"{}"))
            except OutcomeUnknownError:
                pass
            except CorruptNodeError:
                await Wait(limit=1.0)

    def start(self, name: str, site: str, again: str = "") -> None:
        process = self.world.process(name + again)
        serve = partial(self.serve, site)
        self.serving[name] = site, spawn(process, until_interrupted(process, serve), name=name, daemon=True)

    def restart(self, times: int = 2) -> None:
        """Restart, after a while, sites whose process was killed or whose thread was ended by Ctrl-C."""
        for name, (site, task) in [*self.serving.items()]:
            if task.done or not task.process.alive:
                self.start(name, site, f"-{times}")
        if not self.ended():
            self.world.clockwork.after(LATER_MS, partial(self.restart, times + 1))

    async def coordinate(self, process: SimProcess) -> None:
        try:
            await self.decide_some(process)
        finally:
            self.is_over = True

    async def decide_some(self, process: SimProcess) -> None:
        core, world = self.core(process), self.world
        for number in range(world.rng.randint(1, 3)):
            transaction = ""
            with suppress(OutcomeUnknownError, CorruptNodeError):
                transaction = await Run(core.begin(b"%d" % number))
                self.begun.append(transaction)
                await Run(work(world))
                decision = await Run(core.decide(transaction, SITES))
                self.report(transaction, decision.outcome)
            await Wait(limit=2.0)
            self.clear()

    async def reader(self, process: SimProcess) -> None:
        """Query decisions and votes until the end."""
        core, rng = self.core(process), self.world.rng
        while not self.ended():
            await Wait(limit=rng.choice((0.0, 0.005, 0.5)))
            asked = rng.choice([None, *self.begun])
            with suppress(OutcomeUnknownError, CorruptNodeError):
                if rng.random() < 0.5:
                    decision = await Run(core.latest(asked))
                    if decision is not None:
                        self.report(decision.id, decision.outcome)
                        if asked not in (None, decision.id):
                            self.world.fail(f"a query for {asked} returned {decision.id}")
                elif not set(await Run(core.votes())) == set(SITES):
                    self.world.fail("votes of other sites")

    async def administrator(self) -> None:
        """Delete all or some of it, at once or one by one."""
        rng = self.world.rng
        for _ in range(rng.randint(0, 2)):
            await Wait(limit=rng.randint(0, 40) / 1000)
            found = below(self.world, rng.choice((f"{PATH}/t_", f"{PATH}/t_", PATH, f"{PATH}/sites")))
            if rng.random() < 0.5:
                with suppress(ZnodeError):
                    self.world.external_client(Multi(tuple(map(Delete, found)))) if found else None
            for path in found:
                with suppress(ZnodeError):
                    self.world.external_client(Delete(path))
                await Run(work(self.world))

    def clear(self) -> None:
        """Delete what is left if nothing can be decided any more."""
        left = below(self.world, f"{PATH}/t_")
        if left and not any(path.endswith(("/open", "/decision")) for path in left):
            self.world.external_client(Multi(tuple(map(Delete, left))))

    async def another(self, process: SimProcess) -> None:
        """Use other terms, which must be accepted if no participant with the first ones is left."""
        core = TransactionCore(PATH, self.others)
        while not self.ended():
            await Wait(limit=0.5)
        try:
            await Run(core.record())
        except MismatchError:
            if not self.sites_there() and not self.current() and not self.world.faults.injected:
                self.world.fail("other terms were refused although no participant is left")

    def ended(self) -> bool:
        """Return whether no further transaction will begin."""
        return self.is_over or not self.world.processes["coordinator"].alive

    def sites_there(self) -> bool:
        node = self.world.server.engine.tree.node(f"{PATH}/sites")
        return node is not None and bool(node.children)

    def current(self) -> bool:
        node = self.world.server.engine.tree.node(PATH)
        return node is not None and json.loads(node.data or b"")[2] is not None

    def run(self) -> None:
        world = self.world
        coordinator, outside = world.process("coordinator"), world.process("outside")
        spawn(coordinator, self.coordinate(coordinator))
        ends = world.rng.random() < 0.3
        for site in SITES:
            self.start(site, site)
        if world.rng.random() < 0.4:  # takes over when a site ends
            self.start("twin", SITES[0])
        self.restart()
        reader = world.process("reader")
        spawn(reader, self.reader(reader))
        spawn(outside, self.administrator())
        world.run()
        if ends:
            for _, task in self.serving.values():
                task.process.kill()
            self.serving.clear()
            world.run(lambda: not self.sites_there())
            spawn(outside, self.another(outside))
            world.run()
        world.close()


def run(world: Simulation) -> None:
    if world.rng.random() < 0.3:
        Queue(world).run()
    else:
        ExternalDeleter(world).run()


EXTERNAL_DELETES = Scenario("external-deletes", run, TOLERATED_FAULTS, LATE_FAULTS)
