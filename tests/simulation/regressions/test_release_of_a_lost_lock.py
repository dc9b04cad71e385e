"""An interrupted release of a lost lock does not take it from its new holder."""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Delete

PATH = "/distsync/lock/a"


def test_interrupted_release_of_a_lost_lock_does_not_release_that_of_the_next_holder() -> None:
    async def work(process: SimProcess, core: LockCore) -> None:
        await Run(core.acquire("first", b""))
        assert core.grant is not None
        await Delete(core.grant.entry.path)
        core.grant.loss.fire()
        await Run(core.acquire("second", b""))
        was = core.snapshot
        for _ in range(2):
            await core.finish_release(was, "first")
        assert core.owner == "second"
        assert core.unreported_losses == []
        await Run(core.release("second"))

    with Simulation(0) as world:
        core = LockCore(PATH)
        process = world.process("p")
        process.spawn(work(process, core))
        world.run()
        assert core.idle
