"""A ghost, a znode of an earlier session of this client which the servers keep alive, never counts as
another party.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts
from simulation.scenarios.group import PATH, core_of

from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.barriers.double import DoubleBarrierCore
from distsync._protocols.steps import Connected, Wait
from distsync.errors import BrokenBarrierError, LockLostError

BARRIER = "/distsync/barrier/b"
DOUBLE = "/distsync/double_barrier/d"
SEEDS = 6

ghosts = pytest.mark.parametrize("request_number", range(1, 16))


def world_with(kind: str, process: str, nth: int, seed: int, lasts_ms: int = 0) -> Simulation:
    return Simulation(seed, faults=Faults(exactly=(Exactly(kind, process, nth, lasts_ms),)))


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


@ghosts
def test_party_does_not_pass_a_barrier_with_its_own_ghost(request_number: int) -> None:
    async def party(process: SimProcess) -> None:
        core = BarrierCore(BARRIER, 2, receipts(process))
        await Run(core.state())
        for _ in range(2):
            with pytest.raises(BrokenBarrierError):
                await Run(core.wait(b""), 3.0)
            await Run(core.reset())

    for seed in range(SEEDS):
        with world_with("ghost", "one", request_number, seed) as world:
            process = world.process("one")
            process.spawn(party(process))
            world.run()


async def enter_twice(process: SimProcess) -> None:
    core = DoubleBarrierCore(DOUBLE, 2)
    await Run(core.state())
    for seconds in (2.0, 20.0):
        assert not await Run(core.enter(b"", core), seconds)


@ghosts
@pytest.mark.parametrize("kind", ["ghost", "cut"])
def test_party_does_not_enter_a_double_barrier_with_its_own_earlier_znode(kind: str, request_number: int) -> None:
    for seed in range(SEEDS):
        with world_with(kind, "one", request_number, seed, 6000) as world:
            process = world.process("one")
            process.spawn(enter_twice(process))
            world.run()


@ghosts
def test_leave_does_not_wait_for_a_ghost_inside(request_number: int) -> None:
    """It would otherwise wait until the session of the ghost ends."""

    async def party(world: Simulation, process: SimProcess) -> None:
        core = DoubleBarrierCore(DOUBLE, 2)
        with suppress(LockLostError):
            if not await Run(core.enter(b"", core), 60.0):
                return
            await Run(sleep(1.0))
            began = world.now
            await Run(core.leave(core), 60.0)
            assert world.now - began < 5.0

    for seed in range(SEEDS):
        with world_with("ghost", "one", request_number, seed) as world:
            for name in ("one", "two"):
                process = world.process(name)
                process.spawn(party(world, process))
            world.run()


@ghosts
def test_double_barrier_does_not_admit_a_ghost_that_arrived_late(request_number: int) -> None:
    """It arrived while the others were inside; in the next round they must meet each other."""

    async def party(process: SimProcess) -> None:
        core = DoubleBarrierCore(DOUBLE, 2)
        for _ in range(2):
            assert await Run(core.enter(b"", core), 5.0)
            await Run(sleep(4.0))
            assert await Run(core.leave(core), 5.0)

    async def late(process: SimProcess) -> None:
        await Connected()
        await Run(sleep(1.0))
        core = DoubleBarrierCore(DOUBLE, 2)
        assert not await Run(core.enter(b"", core), 2.0)

    for seed in range(SEEDS):
        with world_with("ghost", "late", request_number, seed) as world:
            for name, body in (("one", party), ("two", party), ("late", late)):
                process = world.process(name)
                process.spawn(body(process))
            world.run()


@ghosts
@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0])
def test_member_that_has_left_the_group_leaves_no_ghost(request_number: int, seconds: float) -> None:
    async def join_and_leave(world: Simulation, process: SimProcess) -> None:
        core = core_of(process)
        name = await Run(core.join(b"{}"))
        await Run(sleep(seconds))
        await Run(core.leave(name))
        assert f"{PATH}/{name}" not in world.leftovers()

    for seed in range(SEEDS):
        with world_with("ghost", "one", request_number, seed) as world:
            one = world.process("one")
            one.spawn(join_and_leave(world, one))
            world.run()
