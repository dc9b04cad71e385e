"""An attempt on a lock that its own process holds, which asks whether it was released, ends in time in
an outage too.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Pipeline, Sync, Wait

PATH = "/distsync/lock/l"

#: The request of the holder at which the outage begins, after those that create the folder.
NTH = 10


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def hold(process: SimProcess, core: LockCore) -> None:
    """Hold the lock while another thread tries to acquire it in the outage, then release it."""
    owner = object()
    assert await Run(multiprocessing_lock.acquire(core, owner, b""))
    await Pipeline(Sync())
    process.spawn(attempt(core), name="attempt")
    await Run(sleep(0.5))
    await Run(multiprocessing_lock.release(core, owner))


async def attempt(core: LockCore) -> None:
    assert not await Run(multiprocessing_lock.acquire(core, object(), b"", False), 0.0)


def test_attempt_in_an_outage_ends_in_time_while_the_holder_releases() -> None:
    """The simulator checks the timeouts."""
    for seed in range(20):
        with Simulation(seed, faults=Faults(exactly=(Exactly("outage", "one", NTH, 4_000),))) as world:
            process = world.process("one")
            process.spawn(hold(process, LockCore(PATH)))
            world.run()
