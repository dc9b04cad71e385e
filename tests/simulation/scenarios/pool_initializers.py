"""Pool: callers with different initializers are never at work at the same time."""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import ROOT, Scenario, processes, receipts, spawn, until_interrupted

from distsync._protocols.pool.callers import Caller, Initializer
from distsync._protocols.pool.tasks import PoolCore
from distsync._protocols.steps import Wait
from distsync.errors import MismatchError

PATH = f"{ROOT}/pool/p"


class ScenarioRun:
    """One schedule."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.at_work: list[Caller] = []
        self.initializers: set[str] = set()

    async def call(self, process: SimProcess) -> None:
        """Begin, stay for a while, perhaps with several sessions, and end."""
        core = process.local(PATH, lambda: PoolCore(PATH, receipts(process)))
        for _ in range(self.world.rng.randint(1, 2)):
            text = self.world.rng.choice(("x", "y"))
            self.initializers.add(text)
            caller = Caller(core, self.world.guid(), Initializer(text, text.encode()))
            try:
                await Run(caller.begin())
            except MismatchError:
                self.check_refusal()
                continue
            self.check(caller)
            self.at_work.append(caller)
            spawn(process, self.stop(caller), "stop", daemon=True)
            try:
                await Run(caller.receive())
                self.check(caller)
            except MismatchError:
                self.check_refusal()
            self.at_work.remove(caller)
            await Run(caller.end())

    async def stop(self, caller: Caller) -> None:
        try:
            await Wait(limit=self.world.rng.choice((0.01, 0.1, 15.0)))
        finally:
            caller.stop.fire()

    def check_refusal(self) -> None:
        if len(self.initializers) == 1:
            self.world.fail("refused, although all callers have the same initializer")

    def check(self, caller: Caller) -> None:
        for other in self.at_work:
            if other.initializer != caller.initializer and self.is_alive(other) and self.is_alive(caller):
                self.world.fail(f"{caller.caller} and {other.caller} are at work with different initializers")

    def is_alive(self, caller: Caller) -> bool:
        node = self.world.server.engine.tree.node(f"{caller.path}/alive")
        return node is not None and node.owner == caller._session_id

    def run(self) -> None:
        for process in processes(self.world, 2, 4):
            spawn(process, until_interrupted(process, self.call), f"caller-{process.name}")
        self.world.run()
        self.world.close()


POOL_INITIALIZERS = Scenario("pool-initializers", lambda world: ScenarioRun(world).run(), KINDS, LATER_KINDS)
