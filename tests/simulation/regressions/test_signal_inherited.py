"""A waiter that inherits the notification of a killed one as its own timeout ends gets True or False,
at whatever moment the connection breaks. The notification of an interrupted waiter is passed on at
once, at whatever step.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.steps import Wait
from distsync._protocols.wait_queue import QueueEntry

PATH = "/distsync/condition/c"

#: When the second waiter gives up. It checks for itself every half session timeout, for the last
#: time just before, when the session of the first one has ended.
TIMEOUT_S = 15.1
AWAY_MS = 7000


class InheritedNotification:
    """Two waiters; the first one is notified, and killed at once."""

    def __init__(self, request: int | None) -> None:
        cut = () if request is None else (Exactly("cut", "second", request, AWAY_MS),)
        self.world = Simulation(1, faults=Faults(exactly=cut))
        self.results: list[bool] = []

    def core(self, process: SimProcess) -> ConditionCore:
        return process.local(PATH, lambda: ConditionCore(PATH, receipts(process)))

    async def wait(self, process: SimProcess, after: float) -> None:
        await Wait(limit=after)
        entries: list[QueueEntry] = []
        await Run(self.core(process).enlist(b"", entries))
        self.results.append(await Run(self.core(process).wait(entries[-1]), TIMEOUT_S))

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
        return self.results


def test_waiter_that_inherits_a_notification_at_its_deadline_gets_no_error() -> None:
    results = [InheritedNotification(request).play() for request in range(40)]
    assert InheritedNotification(None).play() == [True]
    assert {tuple(each) for each in results} == {(True,), (False,)}


#: Less than half a session timeout, after which a waiter would check for itself.
SOON_S = 3.0


class InterruptedWaiter:
    """Two waiters, of which one is notified; the first one is interrupted at one of its steps."""

    def __init__(self, step: int) -> None:
        self.world = Simulation(2, faults=Faults(exactly=(Exactly("interrupt", "first", step),)))
        self.results: dict[str, bool] = {}

    async def wait(self, process: SimProcess, after: float) -> None:
        await Wait(limit=after)
        core = process.local(PATH, lambda: ConditionCore(PATH, receipts(process)))
        entries: list[QueueEntry] = []
        try:
            await Run(core.enlist(b"", entries))
            notified = await Run(core.wait(entries[-1]), SOON_S)
            if notified:
                await Run(core.confirm(entries[-1]))
        except KeyboardInterrupt:
            for entry in entries:  # as the public classes do
                process.background(core.abandon_wait(entry))
            raise
        self.results[process.name] = notified

    async def notify(self, process: SimProcess) -> None:
        await Wait(limit=1.0)
        core = process.local(PATH, lambda: ConditionCore(PATH, receipts(process)))
        assert await Run(core.notify(1)) == 1

    def play(self) -> dict[str, bool]:
        with self.world as world:
            for name, after in (("first", 0.0), ("second", 0.5)):
                process = world.process(name)
                process.spawn(self.wait(process, after), expected=(KeyboardInterrupt,))
            notifier = world.process("notifier")
            notifier.spawn(self.notify(notifier))
            world.run()
        return self.results


def test_notification_of_an_interrupted_waiter_reaches_the_next_one_at_once() -> None:
    outcomes = [InterruptedWaiter(step).play() for step in range(40)]
    assert {"second": True} in outcomes
    assert {"first": True, "second": False} in outcomes
    for step, results in enumerate(outcomes):
        assert any(results.values()), f"interrupted at {step}: {results}"
