"""Who inherits the signal of a waiter that died as its time-out ends is told True or False, wherever the connection
goes."""

from __future__ import annotations

from distsync.protocols.condition import ConditionCore
from distsync.protocols.line import Place
from distsync.session.steps import Wait
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.faults import Exactly, Faults
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.base import receipts
from distsync.testing.simulation.world import World

PATH = "/distsync/condition/c"

#: When the second waiter gives up: it looks for itself every half session time-out, the last time just before,
#: when the session of the first one has ended.
TIMEOUT_S = 15.1
AWAY_MS = 7000


class Line:
    """Two wait; the first one is notified and dies at once."""

    def __init__(self, request: int | None) -> None:
        cut = () if request is None else (Exactly("cut", "second", request, AWAY_MS),)
        self.world = World(1, faults=Faults(exactly=cut))
        self.told: list[bool] = []

    def core(self, process: SimProcess) -> ConditionCore:
        return process.local(PATH, lambda: ConditionCore(PATH, receipts(process)))

    async def wait(self, process: SimProcess, after: float) -> None:
        await Wait(limit=after)
        places: list[Place] = []
        await Run(self.core(process).enlist(b"", places))
        self.told.append(await Run(self.core(process).wait(places[-1]), TIMEOUT_S))

    async def notify(self, process: SimProcess) -> None:
        await Wait(limit=1.0)
        assert await Run(self.core(process).notify(1)) == 1
        self.world.processes["first"].kill()

    def play(self) -> list[bool]:
        with self.world as world:
            for name, after in (("first", 0.0), ("second", 0.5)):
                process = world.process(name)
                process.spawn(self.wait(process, after))
            notifier = world.process("notifier")
            notifier.spawn(self.notify(notifier))
            world.run()
        return self.told


def test_who_inherits_a_signal_at_his_deadline_gets_no_error() -> None:
    told = [Line(request).play() for request in range(40)]
    assert Line(None).play() == [True]
    assert {tuple(each) for each in told} == {(True,), (False,)}
