"""Who tries for a lock that his process holds, and asks whether it was given back, is over in time in an outage too."""

from __future__ import annotations

from distsync.protocols import handed
from distsync.protocols.lock import LockCore
from distsync.session.steps import Sync, Together, Wait
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.faults import Exactly, Faults
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.world import Simulation

PATH = "/distsync/lock/l"

#: The request of the thread that holds it, after those that it takes to make the folder.
NTH = 10


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def hold(process: SimProcess, core: LockCore) -> None:
    """In the outage another thread tries; then it is released."""
    owner = object()
    assert await Run(handed.acquire(core, owner, b""))
    await Together(Sync())
    process.spawn(attempt(core), name="attempt")
    await Run(sleep(0.5))
    await Run(handed.release(core, owner))


async def attempt(core: LockCore) -> None:
    assert not await Run(handed.acquire(core, object(), b"", False), 0.0)


def test_attempt_in_an_outage_ends_in_time_though_the_holder_releases_meanwhile() -> None:
    """The simulator sees to the time-outs."""
    for seed in range(20):
        with Simulation(seed, faults=Faults(exactly=(Exactly("outage", "one", NTH, 4_000),))) as world:
            process = world.process("one")
            process.spawn(hold(process, LockCore(PATH)))
            world.run()
