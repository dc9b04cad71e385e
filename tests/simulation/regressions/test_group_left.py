"""A member that has left a group does not reappear, even if it was returning after the end of its
session.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.group import PATH, core_of

from distsync._protocols.steps import Connected, Create, Pipeline, Sync, Wait

REQUESTS = 15
POLLS = 300


async def join_and_leave(world: Simulation, process: SimProcess, left: list[bool]) -> None:
    """Leave while the member is being created again, if it is."""
    core = core_of(process)
    name = await Run(core.join(b"{}"))
    for _ in range(POLLS):
        if core.joined[name]._creating is not None:
            break
        await Run(sleep(0.0))
    await Run(core.leave(name))
    node = world.server.engine.tree.node(PATH)
    left.append(node is None or name not in node.children)


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_member_that_leaves_while_it_returns_does_not_reappear(request_number: int) -> None:
    for seed in range(30):
        left: list[bool] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly("expire_live", "one", request_number),))) as world:
            one = world.process("one")
            one.spawn(join_and_leave(world, one, left))
            world.run()
        assert left == [True], seed


@pytest.mark.parametrize("kind", ["expire_live", "ghost"])
def test_member_created_by_a_stalled_thread_in_a_later_session_does_not_outlive_its_leave(kind: str) -> None:
    placed = Exactly("stall", "one", 3, 20_000), Exactly(kind, "one", 1)
    for seed in range(20):
        with Simulation(seed, faults=Faults(exactly=placed)) as world:
            for path in ("/distsync", "/distsync/group", PATH):
                world.external_client(Create(path))
            one = world.process("one")
            joiner = one.spawn(join_when_connected(one))
            world.run(lambda joiner=joiner: joiner.stalls > 0)
            leaver = one.spawn(leave_in_the_next_session(one))
            world.run()
            assert leaver.result
            node = world.server.engine.tree.node(PATH)
            assert node is None or not node.children, seed


async def join_when_connected(process: SimProcess) -> None:
    await Connected()
    await Run(core_of(process).join(b"{}"))


async def leave_in_the_next_session(process: SimProcess) -> bool:
    core, before = core_of(process), process.session.session_id
    await Pipeline(Sync())
    (name,) = core.joined
    await Connected()
    await Run(core.leave(name))
    return process.session.session_id != before
