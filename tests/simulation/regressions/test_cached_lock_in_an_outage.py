"""A reader whose own process caches the write lock times out at its deadline, in an outage too."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.simulation import Simulation

from distsync._protocols.locks.shared_lock import SharedCore
from distsync._protocols.steps import Pipeline, Sync, Wait

PATH = "/distsync/sharedlock/s"


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 20.0])
def test_reader_in_a_process_that_caches_the_write_lock_times_out_in_an_outage(seconds: float) -> None:
    """The simulator checks the timeouts."""

    async def read() -> None:
        core, owner = SharedCore(PATH), object()
        assert await Run(core.writer.acquire(owner, b"", linger=90.0))
        await Run(core.writer.release(owner))
        assert core.writer.cached is not None
        while world.server.back_ms is None:
            await Run(sleep(0.0))
        if core.writer.cached is not None:
            cached.append(world.seed)
        assert not await Run(core.acquire(owner, b""), seconds)

    async def clock() -> None:
        await Wait(limit=0.05)
        await Pipeline(Sync())

    cached: list[int] = []
    for seed in range(20):
        with Simulation(seed, faults=Faults(exactly=(Exactly("outage", "clock", 1, 60_000),))) as world:
            world.process("reader").spawn(read())
            world.process("clock").spawn(clock())
            world.run()
    assert len(cached) > 5
