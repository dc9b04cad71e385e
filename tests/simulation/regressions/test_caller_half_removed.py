"""A pool's caller that was away for too long, and whose removal was begun by a process that was then
killed, learns of it, and does not wait for its tasks in vain.
"""

from __future__ import annotations

import itertools

from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import OBSERVER, receipts, spawn

from distsync._protocols.pool.callers import Caller, sweep
from distsync._protocols.pool.tasks import DONE, PoolCore, Task
from distsync._protocols.queues.bulk import Progress
from distsync._protocols.steps import Wait
from distsync.errors import NoNodeError

PATH = "/distsync/pool/p"
GUID = "00000000-0000-4000-8000-000000000001"
AWAY, LATER = 60.0, 80.0
TASKS = [(Task(GUID, 1, part), b"=%d" % part) for part in range(2)]


def core(process: SimProcess) -> PoolCore:
    return process.local(PATH, lambda: PoolCore(PATH, receipts(process)))


async def call(process: SimProcess, outcomes: list[str]) -> None:
    """Put tasks, be disconnected when one of them is answered, and return."""
    caller = Caller(core(process), GUID)
    await Run(caller.begin())
    await Run(core(process).put_tasks(TASKS, Progress()))
    await Wait(limit=1.0)
    process.cut(AWAY)
    try:
        answers = 0
        while answers < len(TASKS):
            answers += len(await Run(caller.receive()) or ())
        outcomes.append("answered")
    except NoNodeError:
        outcomes.append("presumed dead")


async def work(process: SimProcess, tasks: int) -> None:
    """Finish this number of tasks."""
    for _ in range(tasks):
        for delivery in await Run(core(process).claim(b"{}", True, 1, 0)) or ():
            answer = await Run(core(process).answer(delivery, DONE, b"done"))
            await Run(core(process).finish([answer]))


async def sweep_repeatedly(process: SimProcess) -> None:
    for _ in range(int(LATER / 5)):
        await Wait(limit=5.0)
        await Run(sweep(core(process)))


def play(kill_at: int) -> tuple[str, bool]:
    """Kill the sweeper at this step. Return what the caller learns, and whether the sweeper was
    killed.
    """
    outcomes: list[str] = []
    with Simulation(1, faults=Faults(exactly=(Exactly("kill", "sweeper", kill_at),))) as world:
        calling, sweeper, observer = (world.process(name) for name in ("caller", "sweeper", OBSERVER))
        spawn(calling, call(calling, outcomes), "caller")
        spawn(observer, work(observer, 1), "worker")
        spawn(sweeper, sweep_repeatedly(sweeper), "sweeper")
        world.clockwork.after(int(LATER * 1000), lambda: spawn(observer, work(observer, 9), "late", daemon=True))
        world.run()
        (outcome,) = outcomes
        return outcome, not sweeper.alive


def test_caller_learns_of_its_removal_if_the_sweeper_was_killed_halfway() -> None:
    outcomes = []
    for kill_at in itertools.count(1):
        outcome, killed = play(kill_at)
        outcomes.append(outcome)
        if not killed:
            break
    assert {"answered", "presumed dead"} == set(outcomes)
    assert "answered" not in outcomes[outcomes.index("presumed dead") :], "a removal that has begun is final"
