"""A writer that also reads releases both while it is unknown whether its znode has become a reader's:
none is left.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.locks.shared_lock import SharedCore
from distsync.errors import DistsyncError

PATH = "/distsync/sharedlock/s"


@pytest.mark.parametrize("fault", ["lost_reply", "lost_request", "cut"])
@pytest.mark.parametrize("request_number", range(9, 12))
def test_downgrade_that_timed_out_leaves_no_znode(fault: str, request_number: int) -> None:
    async def work(process: SimProcess) -> None:
        core = SharedCore(PATH)
        await Run(core.writer.acquire("me", b"{}"))
        await Run(core.acquire("me", b"{}"))
        with suppress(DistsyncError):
            await Run(core.writer.release("me"), 0.0)
        with suppress(DistsyncError):
            await Run(core.release("me"))

    for seed in range(40):
        with Simulation(seed, faults=Faults(exactly=(Exactly(fault, "p", request_number),))) as world:
            process = world.process("p")
            process.spawn(work(process))
            world.run()
            assert [path for path in world.leftovers() if path.startswith(f"{PATH}/")] == [], seed
