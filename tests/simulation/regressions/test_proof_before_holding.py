"""A lock granted after a long wait comes with a proof that lasts until the keeper renews it."""

from __future__ import annotations

import itertools

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.locks.lock import LockCore
from distsync._protocols.steps import Wait

PATH = "/distsync/lock/a"
LEASE_S = 6.0
"""For how long after its last proof a session of 10 s is relied upon."""


def test_lock_granted_as_the_last_proof_expires_is_not_lost() -> None:
    async def hold(seconds: float) -> None:
        core = LockCore(PATH)
        await Run(core.acquire("first", b"{}"))
        await Wait(limit=seconds)
        await Run(core.release("first"))

    async def follow(process: SimProcess, got: list[bool]) -> None:
        core = LockCore(PATH)
        await Wait(limit=0.05)
        await Run(core.acquire("second", b"{}"))
        await Wait(limit=1.0)
        await Run(core.release("second"))
        got.append(True)

    for seed, milliseconds in itertools.product(range(10), range(40, 60)):
        with Simulation(seed) as world:
            got: list[bool] = []
            world.process("p").spawn(hold(LEASE_S + milliseconds / 1000))
            process = world.process("q")
            process.spawn(follow(process, got))
            world.run()
            assert got == [True], (seed, milliseconds)
