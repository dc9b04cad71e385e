"""Queue.task_done and join: each item is finished once, and join returns as soon as all are, not
before.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    processes,
    receipts,
    sleepers,
    spawn,
    work,
)

from distsync._protocols.queues.fifo import QueueCore
from distsync.errors import DeadlineError, OutcomeUnknownError

PATH = f"{ROOT}/queue/u"


def core_of(process: SimProcess) -> QueueCore:
    core = process.local(PATH, lambda: QueueCore(PATH, receipts(process)))
    core.znodes.batch_size = 2
    return core


class Counts:
    """What the threads know: the puts begun and acknowledged, and the calls of task_done begun and
    due.
    """

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.putting = self.put = self.doing = self.done = self.unknown = 0

    async def producer(self, process: SimProcess, items: int) -> None:
        for _ in range(items):
            self.putting += 1
            try:
                await Run(core_of(process).put(b"{}", True))
            except OutcomeUnknownError:
                continue
            self.put += 1
            await Run(work(self.world))

    async def worker(self, process: SimProcess) -> None:
        """Get bursts of items, and call task_done for each of them, in this or another process."""
        world = self.world
        while True:
            got = 0
            for _ in range(world.rng.randint(1, 3)):
                try:
                    got += await Run(core_of(process).get(b"", got == 0)) is not None
                except OutcomeUnknownError:
                    self.unknown += 1
            await Run(work(world))
            others = [each for each in world.processes.values() if each.alive and each.name != OBSERVER]
            for _ in range(got):
                doer = process if world.rng.random() < 0.7 else world.rng.choice(others)
                if world.rng.random() < 0.5 or doer is not process:
                    spawn(doer, self.finish(doer), name="done")
                else:
                    await Run(self.finish(doer))

    async def finish(self, process: SimProcess, due: bool = True) -> None:
        """Call task_done for one item. Unless there were surplus calls, it was due."""
        self.doing += 1
        try:
            was_due = await core_of(process).task_done()
        except OutcomeUnknownError:
            return
        self.done += was_due
        if due and not was_due and not self.world.history.events("meddles") and not self.world.faults.injected:
            self.world.fail("task_done of a received item was rejected as surplus")
        if self.done > self.putting:
            self.world.fail(f"{self.done} items were finished, but only {self.putting} were put")

    async def meddler(self, process: SimProcess) -> None:
        """Call task_done without having got an item."""
        await Run(work(self.world))
        self.world.record("meddles")
        await Run(self.finish(process, due=False))

    async def joiner(self, process: SimProcess) -> None:
        """Join a few times. At some moment of the call all items were finished."""
        world = self.world
        for _ in range(world.rng.randint(1, 3)):
            await Run(work(world))
            unfinished = await Run(core_of(process).znodes.unfinished())
            if unfinished > self.putting:
                world.fail(f"{unfinished} are unfinished, of {self.putting} put")
            put, timeout = self.put, world.rng.choice((None, None, 0.0, 0.05, 30.0))
            try:
                joined = await Run(core_of(process).join(), timeout)
            except DeadlineError:
                joined = False
            if joined and self.doing < put and not world.history.events("meddles") and not self.unknown:
                world.fail(f"joined when task_done had been called {self.doing} times, after {put} puts")
            if not joined and timeout is None:
                world.fail("join returned False without a deadline")

    async def last(self, process: SimProcess) -> int:
        """Join at the end. Return the number of unfinished items."""
        core = core_of(process)
        unfinished = await Run(core.znodes.unfinished())
        joined = await Run(core.join(), 5.0)
        if joined is not (unfinished == 0) and unfinished == await Run(core.znodes.unfinished()):
            self.world.fail(f"{unfinished} are unfinished, but join returned {joined}")
        if unfinished and not self.world.faults.injected and not self.world.history.events("meddles"):
            self.world.fail(f"{unfinished} are unfinished at the end without a fault")
        if unfinished > max(0, self.putting - self.done):
            self.world.fail(f"{unfinished} are unfinished, of {self.putting} put and {self.done} finished")
        return int(unfinished)


def run(world: Simulation) -> None:
    rng, counts = world.rng, Counts(world)
    made = list(processes(world, 2, 3))
    for process in made:
        if rng.random() < 0.8 or process is made[0]:
            spawn(process, counts.producer(process, rng.randint(1, 4)), name="producer")
        for _ in range(rng.choice((0, 1, 1, 2)) if process is not made[-1] else 1):
            spawn(process, counts.worker(process), name="worker", daemon=True)
        if rng.random() < 0.5:
            spawn(process, counts.joiner(process), name="joiner", daemon=True)
    if rng.random() < 0.3:
        spawn(made[0], counts.meddler(made[0]), name="meddler")
    world.run()
    joining = [name for name in sleepers(world) if "joiner" in name]
    observer = world.process(OBSERVER)
    looking = spawn(observer, counts.last(observer), name="last")
    world.run(lambda: looking.done)
    if joining and looking.result == 0:
        world.fail(f"{', '.join(joining)} wait although all items are finished")
    world.close()


QUEUE_JOIN = Scenario("queue-join", run)
