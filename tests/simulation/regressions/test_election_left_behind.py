"""LEADER is deleted with its leader's term, even if another client has deleted its candidate and the
connection breaks.
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
    """Take part, and resign when asked."""
    core, owner = core_of(process), object()
    await Run(core.acquire(owner, b"{}", True))
    assert core.grant is not None
    places.append(core.grant.place.path)
    with suppress(LockLostError):
        await Run(core.release(owner))


async def delete(path: str) -> None:
    await Delete(path)


async def intrude(path: str) -> None:
    """Delete the candidate, if it is there in time."""
    with suppress(NoNodeError):
        await Run(delete(path))


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "cut"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_deleted_leader_leaves_nothing(kind: str, request_number: int) -> None:
    for seed in range(12):
        places: list[str] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly(kind, "one", request_number),))) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead(one, places))
            world.run(lambda: bool(places))  # noqa: B023
            other.spawn(intrude(places[0]))
            world.run()


async def intrude_again(path: str, pause_ms: int) -> None:
    """Delete the candidate, and a while later its successor."""
    await intrude(path)
    await Run(sleep(pause_ms / 1000))
    for name in (await Run(names())).names:
        if name != LEADER:
            await intrude(f"{PATH}/{name}")


async def names() -> Listing:
    return await Children(PATH)


@pytest.mark.parametrize("pause_ms", range(12))
def test_deleted_leader_leaves_nothing_even_if_its_next_candidate_is_deleted(pause_ms: int) -> None:
    for seed in range(60):
        places: list[str] = []
        with Simulation(seed) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead(one, places))
            world.run(lambda: bool(places))  # noqa: B023
            other.spawn(intrude_again(places[0], pause_ms))
            world.run()


async def lead_on(process: SimProcess, seconds: float) -> None:
    """Lead for this time."""
    core, owner = core_of(process), object()
    await Run(core.acquire(owner, b"{}", True))
    await Run(sleep(seconds))
    with suppress(LockLostError):
        await Run(core.release(owner))


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def delete_later(path: str) -> None:
    await Run(sleep(1.0))
    await intrude(path)


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "cut"])
@pytest.mark.parametrize("request_number", range(13, 18))
def test_leader_recreated_at_the_end_of_its_term_does_not_stay(kind: str, request_number: int) -> None:
    for seed in range(100):
        with Simulation(seed, faults=Faults(exactly=(Exactly(kind, "one", request_number),))) as world:
            world.checks.append(NothingLeft(f"{PATH}/"))
            one, other = world.process("one"), world.process("other")
            one.spawn(lead_on(one, 1.001))
            other.spawn(delete_later(f"{PATH}/{LEADER}"))
            world.run()
