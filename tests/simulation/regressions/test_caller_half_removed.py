"""A caller of a pool that was away too long, and whose removal was started by a process that exited,
notices it, and does not wait for its former tasks in vain.
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


async def call(process: SimProcess, told: list[str]) -> None:
    """Leave with tasks put and one of them answered, and return."""
    caller = Caller(core(process), GUID, is_private=False)
    await Run(caller.begin())
    await Run(core(process).put_tasks(TASKS, Progress()))
    await Wait(limit=1.0)
    process.cut(AWAY)
    try:
        answers = 0
        while answers < len(TASKS):
            answers += len(await Run(caller.receive()) or ())
        told.append("answered")
    except NoNodeError:
        told.append("taken for dead")


async def work(process: SimProcess, tasks: int) -> None:
    """Finish this many tasks."""
    for _ in range(tasks):
        for delivery in await Run(core(process).claim(b"{}", True, 1, 0)) or ():
            answer = await Run(core(process).answer(delivery, DONE, b"done"))
            await Run(core(process).finish([answer]))


async def sweeps(process: SimProcess) -> None:
    for _ in range(int(LATER / 5)):
        await Wait(limit=5.0)
        await Run(sweep(core(process)))


def play(dies_at: int) -> tuple[str, bool]:
    """Return what the caller gets, and whether the sweeping process was killed at this step."""
    told: list[str] = []
    with Simulation(1, faults=Faults(exactly=(Exactly("kill", "sweeper", dies_at),))) as world:
        calling, sweeper, observer = (world.process(name) for name in ("caller", "sweeper", OBSERVER))
        spawn(calling, call(calling, told), "caller")
        spawn(observer, work(observer, 1), "worker")
        spawn(sweeper, sweeps(sweeper), "sweeper")
        world.clockwork.after(int(LATER * 1000), lambda: spawn(observer, work(observer, 9), "late", daemon=True))
        world.run()
        (said,) = told
        return said, not sweeper.alive


def test_caller_notices_its_removal_by_a_process_that_exited() -> None:
    told = []
    for dies_at in itertools.count(1):
        said, died = play(dies_at)
        told.append(said)
        if not died:
            break
    assert {"answered", "taken for dead"} == set(told)
    assert "answered" not in told[told.index("taken for dead") :], "once it is being removed, it is"
