"""LEADER is deleted at the end of a term, even if the leader's candidate was deleted and the
connection breaks as well.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.election import PATH, core_of

from distsync._protocols.state.election import LEADER
from distsync._protocols.steps import Children, Delete, Listing, Wait
from distsync.errors import LockLostError, NoNodeError

REQUESTS = 26


async def lead(process: SimProcess, places: list[str]) -> None:
    """Run for leader, and resign as soon as elected."""
    core, owner = core_of(process), object()
    await Run(core.acquire(owner, b"{}", True))
    assert core.grant is not None
    places.append(core.grant.entry.path)
    with suppress(LockLostError):
        await Run(core.release(owner))


async def delete(path: str) -> None:
    await Delete(path)


async def delete_if_present(path: str) -> None:
    """Delete the znode, if it still exists."""
    with suppress(NoNodeError):
        await Run(delete(path))


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "cut"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_leader_whose_candidate_was_deleted_leaves_nothing(kind: str, request_number: int) -> None:
    for seed in range(12):
        places: list[str] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly(kind, "one", request_number),))) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead(one, places))
            world.run(lambda: bool(places))  # noqa: B023
            other.spawn(delete_if_present(places[0]))
            world.run()


async def delete_twice(path: str, pause_ms: int) -> None:
    """Delete the candidate, and after a pause the one that replaced it."""
    await delete_if_present(path)
    await Run(sleep(pause_ms / 1000))
    for name in (await Run(names())).names:
        if name != LEADER:
            await delete_if_present(f"{PATH}/{name}")


async def names() -> Listing:
    return await Children(PATH)


@pytest.mark.parametrize("pause_ms", range(12))
def test_leader_whose_candidate_was_deleted_twice_leaves_nothing(pause_ms: int) -> None:
    for seed in range(60):
        places: list[str] = []
        with Simulation(seed) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead(one, places))
            world.run(lambda: bool(places))  # noqa: B023
            other.spawn(delete_twice(places[0], pause_ms))
            world.run()


async def lead_for(process: SimProcess, seconds: float) -> None:
    """Lead for this number of seconds."""
    core, owner = core_of(process), object()
    await Run(core.acquire(owner, b"{}", True))
    await Run(sleep(seconds))
    with suppress(LockLostError):
        await Run(core.release(owner))


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def delete_later(path: str) -> None:
    await Run(sleep(1.0))
    await delete_if_present(path)


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "cut"])
@pytest.mark.parametrize("request_number", range(13, 18))
def test_leader_znode_recreated_as_the_term_ends_is_deleted(kind: str, request_number: int) -> None:
    for seed in range(100):
        with Simulation(seed, faults=Faults(exactly=(Exactly(kind, "one", request_number),))) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead_for(one, 1.001))
            other.spawn(delete_later(f"{PATH}/{LEADER}"))
            world.run()
