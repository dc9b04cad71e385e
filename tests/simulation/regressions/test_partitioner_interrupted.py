"""An interrupted join of a Partitioner takes nothing from another thread that joins at the same time."""

from __future__ import annotations

from functools import partial

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.partitioner import SHARES, children, core_of

from distsync._protocols.state.partitioner import Callbacks


def nothing(share: str, token: int) -> None:
    """Do nothing."""


async def join(process: SimProcess) -> None:
    await Run(core_of(process).join(b"{}", Callbacks(nothing, nothing)))


@pytest.mark.parametrize("step", range(1, 30))
def test_thread_that_joins_while_another_one_is_interrupted_holds_what_it_claims(step: int) -> None:
    for seed in range(6):
        with Simulation(seed, faults=Faults(exactly=(Exactly("interrupt", "one", step),))) as world:
            process = world.process("one")
            for _ in range(2):
                process.spawn(join(process))
            world.run()
            core, claimed = core_of(process), partial(children, world, "claims")
            held = {grant.entry.name for grant in core.held.values()}
            assert held == claimed(), (step, seed)
            assert set(core.held) == (SHARES if core.member else set())
            assert children(world, "members") == ({core.member} if core.member else set())
