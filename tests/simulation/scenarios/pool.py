"""Pool: every task that was certainly put is answered once, whichever process exits when; its end
leaves nothing, nor does an exited caller after a sweep.

An answer is the payload of its task; the observer, which no fault hits, works too, so that there is
always a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.engine.call_frames import Run
from simulation.engine.faults import BESIDES, KINDS
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

PATH = f"{ROOT}/pool/p"
GUID = "00000000-0000-4000-8000-000000000001"


class ScenarioRun:
    """One schedule."""

    def __init__(self, world: Simulation, most: int = 0, sweeps: bool = False) -> None:
        self.world = world
        self.most = most
        """A task is delivered at most so often (0: as often as need be)."""
        self.sweeps = sweeps
        self.surely: set[tuple[int, int]] = set()
        self.heard: list[tuple[int, int]] = []
        self.is_over = False

    def core(self, process: SimProcess) -> PoolCore:
        return process.local(PATH, lambda: PoolCore(PATH, receipts(process)))

    async def caller(self, process: SimProcess) -> None:
        core, world = self.core(process), self.world
        caller = Caller(core, GUID, is_private=False)
        await Run(caller.begin())
        for job in range(world.rng.randint(1, 3)):
            tasks = [(Task(GUID, job, part), b"%d.%d" % (job, part)) for part in range(world.rng.randint(1, 4))]
            progress = Progress()
            try:
                await Run(core.put_tasks([(task, data) for task, data in tasks], progress))
            except OutcomeUnknownError:
                pass
            self.surely |= {(task.job, task.part) for task, _ in tasks[: progress.put]}
            await Run(work(world))
        while self.surely - set(self.heard):
            for said in await Run(caller.receive()) or ():
                if said.kind == WORN and self.most and (world.faults.injected or world.history.events("released")):
                    pass  # the number of workers that exited, lost it, or refused it
                elif said.data == b"" and world.faults.injected and self.sweeps:
                    pass  # it was considered dead, and its parts are being removed: it will notice next
                elif said.data != b"%d.%d" % (said.job, said.part):
                    world.fail(f"the answer to {said.job}.{said.part} is {said.data!r}")
                self.heard.append((said.job, said.part))
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
                    self.heard_of_nobody()
                if rng.random() < 0.2 and process.name != OBSERVER:
                    if self.most and rng.random() < 0.5:  # the delivery counts
                        self.world.record("released")
                        await Run(core.release(delivery))
                    else:
                        await Run(core.give_back(delivery))
                else:
                    await Run(self.finish(core, delivery))

    async def finish(self, core: PoolCore, delivery: ClaimedItem) -> None:
        try:
            payload = await core.payload(delivery)
        except NoNodeError:  # with its parts: the task was ended, or its caller was removed
            payload = b""
        answer = await core.answer(delivery, DONE, payload)
        while True:
            try:
                await core.finish([answer])
                return
            except OutcomeUnknownError:
                continue

    def heard_of_nobody(self) -> None:
        if not self.world.faults.injected:
            self.world.fail("the caller was taken for dead, and nothing went wrong")

    async def call(self, process: SimProcess) -> None:
        """Act as a caller, which may be considered dead, but not while it runs."""
        try:
            await self.caller(process)
        except NoNodeError:
            self.heard_of_nobody()

    async def sweeper(self, process: SimProcess, pauses: tuple[float, ...] = (0.0, 0.5, 6.0)) -> None:
        """Remove what exited callers have left."""
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
            self.bury(observer)
        if self.is_over:
            self.account()
        world.close()

    def bury(self, observer: SimProcess) -> None:
        """Kill the caller; a sweep long enough after that removes all its znodes."""
        # for a caller that exited before it recorded its session timeout, a minute is assumed
        pause = 12.0
        spawn(observer, self.sweeper(observer, (pause,)), "last sweeper")
        self.world.run()
        left = [path for path in self.world.leftovers() if GUID in path and "/claims/" not in path]
        if left:
            self.world.fail(f"the caller is dead, and there remain {left}")

    def account(self) -> None:
        doubled = sorted({each for each in self.heard if self.heard.count(each) > 1})
        if doubled:
            self.world.fail(f"answered twice: {doubled}")
        left = [path for path in self.world.leftovers() if GUID in path and "/claims/" not in path]
        unsure = len(self.heard) > len(self.surely) or any("/i_" in path for path in left)
        if left and not unsure:
            self.world.fail(f"the caller has ended, and there remain {left}")


@contextmanager
def parts_of(size: int) -> Iterator[None]:
    """Split payloads into parts from a small size on."""
    usual, payload_chunks.PART_BYTES = payload_chunks.PART_BYTES, size
    try:
        yield
    finally:
        payload_chunks.PART_BYTES = usual


def play_swept(world: Simulation) -> None:
    """Split payloads, counted deliveries, callers that may exit."""
    with parts_of(world.rng.choice((1, 2, 100))):
        ScenarioRun(world, world.rng.choice((0, 1, 2)), sweeps=True).run()


#: Interrupts were added later: the seeds stay the same.
TOLERATED_FAULTS = tuple(kind for kind in KINDS if kind != "interrupt")

POOL = Scenario("pool", lambda world: ScenarioRun(world).run(), TOLERATED_FAULTS, (*BESIDES, "interrupt"))
SWEPT_POOL = Scenario("swept-pool", play_swept, TOLERATED_FAULTS, (*BESIDES, "interrupt"))
