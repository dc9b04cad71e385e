"""Pool: every task that was surely put is answered, once, whoever dies when; and its end leaves nothing.

Rules for this file: an answer is the payload of its task; the observer, whom no fault strikes, works too, so that there
is always somebody who does.
"""

from __future__ import annotations

from distsync.errors import OutcomeUnknownError
from distsync.protocols.callers import Caller
from distsync.protocols.claims import Delivery
from distsync.protocols.many import Progress
from distsync.protocols.pool import DONE, PoolCore, Task
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.faults import KINDS
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.base import OBSERVER, ROOT, Scenario, processes, receipts, spawn, work
from distsync.testing.simulation.world import World

PATH = f"{ROOT}/pool/p"
GUID = "00000000-0000-4000-8000-000000000001"


class Play:
    """One schedule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.surely: set[tuple[int, int]] = set()
        self.heard: list[tuple[int, int]] = []
        self.is_over = False

    def core(self, process: SimProcess) -> PoolCore:
        return process.local(PATH, lambda: PoolCore(PATH, receipts(process)))

    async def caller(self, process: SimProcess) -> None:
        core, world = self.core(process), self.world
        caller = Caller(core, GUID, alone=False)
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
                if said.data != b"%d.%d" % (said.job, said.part):
                    world.fail(f"the answer to {said.job}.{said.part} is {said.data!r}")
                self.heard.append((said.job, said.part))
        await Run(caller.end())
        self.is_over = True

    async def worker(self, process: SimProcess) -> None:
        core, rng = self.core(process), self.world.rng
        while True:
            try:
                claimed = await Run(core.claim(b"{}", True, rng.choice((1, 2, 3)))) or []
            except OutcomeUnknownError:
                continue
            for delivery in claimed:
                await Run(work(self.world))
                if rng.random() < 0.2 and process.name != OBSERVER:
                    await Run(core.give_back(delivery))
                else:
                    await Run(self.finish(core, delivery))

    async def finish(self, core: PoolCore, delivery: Delivery) -> None:
        answer = await core.answer(delivery, DONE, (await core.payload(delivery)))
        while True:
            try:
                await core.finish([answer])
                return
            except OutcomeUnknownError:
                continue

    def play(self) -> None:
        world = self.world
        calling = world.process("caller")
        spawn(calling, self.caller(calling), "caller")
        for process in (*processes(world, 1, 3), world.process(OBSERVER)):
            spawn(process, self.worker(process), f"worker-{process.name}", daemon=True)
        world.run()
        if self.is_over:
            self.account()
        world.close()

    def account(self) -> None:
        doubled = sorted({each for each in self.heard if self.heard.count(each) > 1})
        if doubled:
            self.world.fail(f"answered twice: {doubled}")
        left = [path for path in self.world.leftovers() if GUID in path and "/claims/" not in path]
        unsure = len(self.heard) > len(self.surely) or any("/i_" in path for path in left)
        if left and not unsure:
            self.world.fail(f"the caller has ended, and there remain {left}")


#: A worker that is interrupted ends, with its session: that is the fault "kill".
POOL = Scenario(
    "pool", lambda world: Play(world).play(), tuple(kind for kind in KINDS if not kind.startswith("interrupt"))
)
