"""Pool: each acknowledged task is answered once, whichever process is killed; ending a caller leaves
no znodes, and sweeping removes those of a dead caller.

An answer is the payload of its task. The observer, which is exempt from faults, is a worker too, so
that there always is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    processes,
    receipts,
    spawn,
    until_interrupted,
    work,
)

from distsync._protocols import payload_chunks
from distsync._protocols.pool.callers import Caller, sweep, sweep_all
from distsync._protocols.pool.tasks import DONE, WORN, PoolCore, Task
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.steps import Wait
from distsync.errors import NoNodeError, OutcomeUnknownError
from distsync.multiprocessing._pool.pool_worker import FinishedTask, put_results

PATH = f"{ROOT}/pool/p"
GUID = "00000000-0000-4000-8000-000000000001"


class ScenarioRun:
    """One schedule."""

    def __init__(self, world: Simulation, most: int = 0, sweeps: bool = False) -> None:
        self.world = world
        self.most = most
        """Maximum number of deliveries of a task; 0 is unlimited."""
        self.sweeps = sweeps
        self.certain: set[tuple[int, int]] = set()
        self.answered: list[tuple[int, int]] = []
        self.is_over = False

    def core(self, process: SimProcess) -> PoolCore:
        return process.local(PATH, lambda: PoolCore(PATH, receipts(process)))

    async def caller(self, process: SimProcess) -> None:
        core, world = self.core(process), self.world
        caller = Caller(core, GUID)
        await Run(caller.begin())
        for job in range(world.rng.randint(1, 3)):
            tasks = [(Task(GUID, job, part), b"%d.%d" % (job, part)) for part in range(world.rng.randint(1, 4))]
            progress = Progress()
            try:
                await Run(core.put_tasks([(task, data) for task, data in tasks], progress))
            except OutcomeUnknownError:
                pass
            self.certain |= {(task.job, task.part) for task, _ in tasks[: progress.put]}
            await Run(work(world))
        while self.certain - set(self.answered):
            for answer in await Run(caller.receive()) or ():
                if answer.kind == WORN and self.most and (world.faults.injected or world.history.events("released")):
                    pass  # its deliveries were used up: by killed workers, losses, or releases
                elif answer.data == b"" and world.faults.injected and self.sweeps:
                    # the caller was presumed dead and its chunks are being deleted, which its next
                    # call reports
                    pass
                elif answer.data != b"%d.%d" % (answer.job, answer.part):
                    world.fail(f"the answer to {answer.job}.{answer.part} is {answer.data!r}")
                self.answered.append((answer.job, answer.part))
        await Run(caller.end())
        self.is_over = True

    async def worker(self, process: SimProcess) -> None:
        core, rng = self.core(process), self.world.rng
        while True:
            try:
                claimed = await Run(core.claim(b"{}", True, rng.choice((1, 2, 3)), self.most)) or []
            except OutcomeUnknownError:
                continue
            for delivery in claimed:
                await Run(work(self.world))
                if self.sweeps and not await Run(core.is_there(GUID)) and not self.is_over:
                    self.presumed_dead()
                if rng.random() < 0.2 and process.name != OBSERVER:
                    if self.most and rng.random() < 0.5:  # this counts as a delivery
                        self.world.record("released")
                        await Run(core.release(delivery))
                    else:
                        await Run(core.give_back(delivery))
                else:
                    await Run(self.finish(core, delivery))

    async def finish(self, core: PoolCore, delivery: ClaimedItem) -> None:
        try:
            payload = await core.payload(delivery)
        except NoNodeError:  # the chunks are deleted: the task was finished, or its caller was swept
            payload = b""
        await put_results(core, [FinishedTask(delivery, DONE, payload)])

    def presumed_dead(self) -> None:
        if not self.world.faults.injected:
            self.world.fail("the caller was presumed dead without a fault")

    async def call(self, process: SimProcess) -> None:
        """Run the caller, which may be presumed dead, but only after a fault."""
        try:
            await self.caller(process)
        except NoNodeError:
            self.presumed_dead()

    async def sweeper(self, process: SimProcess, pauses: tuple[float, ...] = (0.0, 0.5, 6.0)) -> None:
        """Remove what dead callers left."""
        core = self.core(process)
        for _ in range(8):
            await Run(sweep_all(core, f"{ROOT}/pool") if self.world.rng.random() < 0.3 else sweep(core))
            await Wait(limit=self.world.rng.choice(pauses))

    def run(self) -> None:
        world = self.world
        calling = world.process("caller")
        spawn(calling, until_interrupted(calling, self.call if self.sweeps else self.caller), "caller")
        if self.sweeps:
            for name in ("sweeper", OBSERVER):
                process = world.process(name)
                spawn(process, self.sweeper(process), "sweeper")
        observer = world.processes.get(OBSERVER) or world.process(OBSERVER)
        for process in (*processes(world, 1, 3), observer):
            spawn(process, until_interrupted(process, self.worker), f"worker-{process.name}", daemon=True)
        world.run()
        if self.sweeps and calling.session.closed:
            self.check_swept(observer)
        if self.is_over:
            self.check_answers()
        world.close()

    def check_swept(self, observer: SimProcess) -> None:
        """Check that repeated sweeps remove everything of the dead caller."""
        # a caller killed before it recorded its session timeout is removed only after a minute
        pause = 12.0
        spawn(observer, self.sweeper(observer, (pause,)), "last sweeper")
        self.world.run()
        left = [path for path in self.world.leftovers() if GUID in path and "/claims/" not in path]
        if left:
            self.world.fail(f"the caller is dead, but these znodes remain: {left}")

    def check_answers(self) -> None:
        doubled = sorted({each for each in self.answered if self.answered.count(each) > 1})
        if doubled:
            self.world.fail(f"answered twice: {doubled}")
        left = [path for path in self.world.leftovers() if GUID in path and "/claims/" not in path]
        unsure = len(self.answered) > len(self.certain) or any("/i_" in path for path in left)
        if left and not unsure:
            self.world.fail(f"the caller has ended, but these znodes remain: {left}")


@contextmanager
def chunk_size(size: int) -> Iterator[None]:
    """Reduce the size of a chunk, so that small payloads take several."""
    usual, payload_chunks.PART_BYTES = payload_chunks.PART_BYTES, size
    try:
        yield
    finally:
        payload_chunks.PART_BYTES = usual


def play_swept(world: Simulation) -> None:
    """Play with chunked payloads, counted deliveries and callers that may be dead."""
    with chunk_size(world.rng.choice((1, 2, 100))):
        ScenarioRun(world, world.rng.choice((0, 1, 2)), sweeps=True).run()


#: Interrupts were added later: they are drawn separately, so that existing seeds keep their
#: schedules.
TOLERATED_FAULTS = tuple(kind for kind in KINDS if kind != "interrupt")

POOL = Scenario("pool", lambda world: ScenarioRun(world).run(), TOLERATED_FAULTS, (*LATER_KINDS, "interrupt"))
POOL_SWEEP = Scenario("pool-sweep", play_swept, TOLERATED_FAULTS, (*LATER_KINDS, "interrupt"))
