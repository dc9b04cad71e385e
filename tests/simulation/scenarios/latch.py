"""CountDownLatch: nobody passes before it reaches zero, each step counts once, and at zero all waiters
wake.

Whether the latch is closed is judged by the server's tree.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    sleepers,
    spawn,
    work,
)
from simulation.scenarios.gate import Closed

from distsync._protocols.state.count_down_latch import LatchCore, record_in
from distsync._protocols.steps import Exists, GetData, Node
from distsync.errors import OutcomeUnknownError

PATH = f"{ROOT}/latch/l"


class Steps(Check):
    """Check that waiters pass only after as many steps as the count."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begun = 0

    def see(self, world: Simulation, record: Record) -> None:
        if record.event == "counting":
            self.begun += record.steps
        elif record.event == "setting":
            self.count += record.count
        elif record.event == "passed" and self.begun < self.count and not world.history.events("setting"):
            world.fail(f"{record.task} passes after {self.begun} steps of {self.count}")


class Party:
    """A thread at the latch."""

    def __init__(self, world: Simulation, process: SimProcess, count: int) -> None:
        self.world = world
        self.core = process.local(PATH, lambda: LatchCore(PATH, count, receipts(process)))

    async def wait(self) -> None:
        for _ in range(self.world.rng.randint(1, 2)):
            self.world.record("waiting")
            if await Run(self.core.wait(), maybe_timeout(self.world)):
                self.world.record("passed")

    async def count_down(self, times: int) -> None:
        for _ in range(times):
            await Run(work(self.world))
            steps = self.world.rng.choice((1, 1, 1, 2))
            self.world.record("counting", steps=steps)
            try:
                await Run(self.core.count_down(steps))
            except OutcomeUnknownError:
                continue
            self.world.record("counted", steps=steps)

    async def set_count(self) -> None:
        await Run(work(self.world))
        count = self.world.rng.randint(1, 2)
        self.world.record("setting", count=count)
        try:
            await Run(self.core.try_set_count(count))
        except OutcomeUnknownError:
            return


def run(world: Simulation) -> None:
    rng = world.rng
    count = rng.randint(0, 5)
    world.checks += [Closed(f"{PATH}/closed"), Steps(count)]
    for number, process in enumerate(processes(world, 2, 3)):
        party = Party(world, process, count)
        spawn(process, party.wait(), name=f"waiter{number}", daemon=True)
        for _ in range(rng.randint(1, 2)):
            spawn(process, party.count_down(rng.randint(1, 3)))
        if rng.random() < 0.2:
            spawn(process, party.set_count())
    world.run()
    judge(world, count)
    world.close()


def judge(world: Simulation, count: int) -> None:
    """Check that each step counted once, and that nobody waits at an open latch."""
    if world.external_client(Exists(PATH)) is None:
        return
    node: Node = world.external_client(GetData(PATH))
    left = record_in(PATH, node).remaining
    closed = world.external_client(Exists(f"{PATH}/closed")) is not None
    if closed != (left > 0):
        world.fail(f"{left} are left, but the latch is {'closed' if closed else 'open'}")
    if left == 0 and sleepers(world):
        world.fail(f"{', '.join(sleepers(world))} wait at an open latch")
    history = world.history
    begun, done = (sum(record.steps for record in history.events(event)) for event in ("counting", "counted"))
    if not history.events("setting") and not max(0, count - begun) <= left <= max(0, count - done):
        world.fail(f"{left} of {count} are left after {done} acknowledged steps of {begun}")


LATCH = Scenario("latch", run)
