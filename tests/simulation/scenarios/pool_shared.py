"""Pools with workers of their own: each task of a caller that lives is settled once, by a local worker or by one
elsewhere.

The threads of `WorkingPoolClient` are played with the same protocols and the same `TaskClaims`. A local worker is a
thread of its caller: it ends with it, or alone, and then the caller sees that at once. The observer, which is exempt
from faults, is a worker elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import OBSERVER, ROOT, Scenario, receipts, spawn, until_interrupted, work

from distsync._protocols.pool.callers import Caller
from distsync._protocols.pool.tasks import DONE, PoolCore, Task
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.retries import read
from distsync._protocols.steps import Children, Exists, Signal, Wait, Watch
from distsync.errors import NoNodeError, OutcomeUnknownError
from distsync.multiprocessing._pool.pipe_codec import TASK, split_shared_task
from distsync.multiprocessing._pool.pipe_feed import PipeTask
from distsync.multiprocessing._pool.pool_worker import FinishedTask
from distsync.multiprocessing._pool.task_claims import TaskClaims
from distsync.multiprocessing._pool.working_client import NoLongerIdleError

PATH = f"{ROOT}/pool/p"


class LocalTask(NamedTuple):
    """A task that local workers may run: of this caller, or claimed."""

    task: Task
    payload: bytes
    delivery: ClaimedItem | None = None


class Pool:
    """One caller with local workers."""

    def __init__(self, world: Simulation, process: SimProcess, guid: str) -> None:
        self.world, self.process, self.guid = world, process, guid
        self.core = process.local(PATH, lambda: PoolCore(PATH, receipts(process)))
        self.claims = TaskClaims(self.core, None)
        self.waiting: deque[LocalTask] = deque()
        self.under_way: set[Task] = set()
        self.exported: set[Task] = set()
        self.settled: Counter[Task] = Counter()
        self.window = self.running = 0
        self.may_export = world.rng.random() < 0.8
        self.changed = Signal()
        self.is_claiming = self.is_closing = self.is_over = self.has_received = False

    def change(self) -> None:
        """Wake the threads."""
        changed, self.changed = self.changed, Signal()
        changed.fire()

    def settle(self, task: Task, payload: bytes | None) -> None:
        """Give the caller the result of a task, or an error."""
        self.under_way.remove(task)
        self.exported.discard(task)
        self.settled[task] += 1
        if payload not in (None, self.payload(task)):
            self.world.fail(f"the answer to {task} is {payload!r}")
        self.change()

    @staticmethod
    def payload(task: Task) -> bytes:
        return f"{task.caller}.{task.job}.{task.part}".encode()

    # ---- threads

    async def call(self, process: SimProcess) -> None:
        """Put tasks, wait for their results, and end."""
        world, caller = self.world, Caller(self.core, self.guid)
        await Run(caller.begin())
        slots = world.rng.randint(1, 2)
        for number in range(slots):
            spawn(process, until_interrupted(process, self.work), f"slot-{number}", daemon=True)
        for thread in (self.put, self.look):
            spawn(process, until_interrupted(process, thread), thread.__name__, daemon=True)
        self.claiming = spawn(process, until_interrupted(process, self.claim), "claim", daemon=True)
        spawn(process, self.receive(caller), "receive", daemon=True)
        for job in range(world.rng.randint(1, 3)):
            for part in range(world.rng.randint(1, 5)):
                task = Task(self.guid, job, part)
                self.under_way.add(task)
                self.waiting.append(LocalTask(task, self.payload(task)))
            self.change()
            self.interrupt_claim()
            await Run(work(world))
        while self.under_way:
            await Wait(self.changed)
        if world.rng.random() < 0.5:  # an idle pool works for others
            await Wait(limit=1.0)
        self.is_closing = True
        self.give_back()
        while self.running or self.claims.count:
            await Wait(self.changed, limit=0.5)
            self.give_back()
        caller.stop.fire()
        while not self.has_received:
            await Wait(self.changed)
        await Run(caller.end())
        self.is_over = True
        process.close()

    def interrupt_claim(self) -> None:
        """Claim no more, because the local workers have something to do."""
        if self.is_claiming:
            self.is_claiming = False
            self.claiming.throw(NoLongerIdleError("a claim"))

    def give_back(self) -> None:
        self.claims.unused += [each.delivery for each in self.waiting if each.delivery is not None]
        self.waiting.clear()
        self.change()

    async def work(self, process: SimProcess) -> None:
        """Be a local worker, which may exit and be replaced."""
        while True:
            if not self.waiting:
                await Wait(self.changed)
                continue
            each = self.waiting.popleft()
            self.running += 1
            await Run(work(self.world))
            self.running -= 1
            dies = self.world.rng.random() < 0.15
            if each.delivery is None and dies:
                self.waiting.appendleft(each)
            elif each.delivery is None:
                self.settle(each.task, each.payload)
            elif dies:
                self.claims.broken.append(each.delivery)
            else:
                self.claims.finished.append(FinishedTask(each.delivery, DONE, each.payload))
            self.change()

    async def put(self, process: SimProcess) -> None:
        """End claims, and put tasks into the queue."""
        while True:
            changed = self.changed
            if self.claims.has_ended_some:
                await Run(self.claims.end(*self.claims.taken()))
                self.change()
            own = [each for each in self.waiting if each.delivery is None]
            some = own[: max(0, self.window - len(self.exported))]
            if not some:
                await Wait(changed)
                continue
            for each in some:
                self.waiting.remove(each)
                self.exported.add(each.task)
            progress = Progress()
            try:
                await Run(self.core.put_tasks([(each.task, each.payload) for each in some], progress))
            except OutcomeUnknownError:
                for each in some[progress.put :]:
                    if each.task in self.under_way:
                        self.settle(each.task, None)

    async def look(self, process: SimProcess) -> None:
        """See whether workers elsewhere wait while the local ones have no room."""
        while True:
            changed = self.changed
            if not self.waiting or not self.may_export:
                await Wait(changed)
                continue
            self.interrupt_claim()
            watch = Watch()
            try:
                count = len((await Run(read(Children(self.core.getters, watch)))).names)
            except NoNodeError:
                count = int(await Run(read(Exists(self.core.getters, watch))) is not None)
            self.window = max(self.window, len(self.exported) + count)
            self.change()
            await Wait(watch)

    async def claim(self, process: SimProcess) -> None:
        """Claim tasks for idle local workers."""
        while not self.is_closing:
            changed = self.changed
            if self.waiting or self.running:
                await Wait(changed)
                continue
            claimed: list[ClaimedItem] = []
            tasks: list[PipeTask] = []
            ended: list[FinishedTask] = []
            self.is_claiming = True
            try:
                await Run(self.core.claim_into(claimed, b"{}", True, self.world.rng.choice((1, 2, 3))))
                tasks, ended = await Run(self.claims.read(claimed, self.guid))
            except (NoLongerIdleError, OutcomeUnknownError):
                pass
            self.is_claiming = False
            known = [task.delivery for task in tasks] + [each.delivery for each in ended]
            self.claims.count += len(claimed)
            self.claims.unused += [each for each in claimed if each not in known]
            if any(task.caller == self.guid for task in tasks):
                self.window = 0
            self.claims.finished += ended
            for task in tasks:
                assert task.delivery is not None
                payload = split_shared_task(task.frame[TASK.size :])[2]
                self.waiting.append(LocalTask(Task(task.caller, task.job, task.part), payload, task.delivery))
            if self.is_closing:
                self.give_back()
            self.change()

    async def receive(self, caller: Caller) -> None:
        while (answers := await Run(caller.receive())) is not None:
            for answer in answers:
                task = Task(self.guid, answer.job, answer.part)
                if task in self.exported:
                    self.settle(task, answer.data)
        self.has_received = True
        self.change()


async def work_elsewhere(world: Simulation, core: PoolCore) -> None:
    """Be a worker of the command line."""
    while True:
        try:
            claimed = await Run(core.claim(b"{}", True, world.rng.choice((1, 2, 3))))
        except OutcomeUnknownError:
            continue
        for each in claimed:
            await Run(work(world))
            try:
                payload = await Run(core.payload(each))
            except NoNodeError:
                payload = b""
            answer = await Run(core.answer(each, DONE, payload))
            while True:
                try:
                    await Run(core.finish([answer]))
                    break
                except OutcomeUnknownError:
                    continue


def play(world: Simulation) -> None:
    pools = []
    for number in range(world.rng.randint(1, 2)):
        process = world.process(f"caller-{number}")
        pools.append(Pool(world, process, f"00000000-0000-4000-8000-00000000000{number}"))
        spawn(process, until_interrupted(process, pools[-1].call), process.name)
    names = ["elsewhere"] * world.rng.randint(0, 1) + [OBSERVER]
    for name in names:
        process = world.process(name)
        core = process.local(PATH, lambda: PoolCore(PATH, receipts(process)))  # noqa: B023  # called at once
        spawn(process, work_elsewhere(world, core), f"worker-{name}", daemon=True)
    world.run()
    for pool in pools:
        twice = [task for task, times in pool.settled.items() if times > 1]
        if twice:
            world.fail(f"settled twice: {twice}")
        if pool.is_over and pool.under_way:
            world.fail(f"the caller has ended without the results of {pool.under_way}")
        left = [path for path in world.leftovers() if f"/callers/{pool.guid}" in path]
        if pool.is_over and left and not world.faults.injected:
            world.fail(f"the caller has ended, but these znodes remain: {left}")
    world.close()


POOL_SHARED = Scenario("pool-shared", play, tuple(kind for kind in KINDS if kind != "interrupt"), LATER_KINDS)
