"""A znode that is created in a later session than its queue entry, whose session lives on beside it,
does not remain.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.runner import faults_of, run_seed
from simulation.engine.simulation import Simulation
from simulation.scenarios import SCENARIOS, election, shared_lock

from distsync._protocols.locks.downgrade import into_reader
from distsync._protocols.locks.shared_lock import SharedCore
from distsync._protocols.steps import Wait
from distsync.errors import LockLostError

Body = Callable[[SimProcess], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(("name", "seed"), [("shared", 7001689), ("election", 7001381)])
def test_schedule_with_a_znode_of_a_later_session_leaves_nothing(name: str, seed: int) -> None:
    """The servers are unreachable, a thread gets no CPU time, and a leader fails that has just ended a
    session.
    """
    scenario = SCENARIOS[name]
    world = run_seed(scenario, seed, faults_of(scenario, seed))
    assert {placed.kind for placed in world.faults.injected} == {"outage", "stall", "ghost"}


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


async def downgrade(process: SimProcess, is_released: bool = False) -> None:
    """Downgrade in a thread of its own, which a stall may hit."""
    core = SharedCore(shared_lock.PATH)
    await Run(core.writer.acquire("me", b"{}"))
    await Run(core.acquire("me", b"{}"))
    (share,) = core.shares
    share.inside, share.downgrading = False, True
    if is_released:
        process.spawn(release(core), name="release")
    await Run(into_reader(share, core.name_suffixes.read))
    share.downgrading = False
    if not is_released:
        await Run(core.release("me"))


async def downgrade_and_release(process: SimProcess) -> None:
    """Release the reader while it is unknown whether the downgrade was made."""
    await downgrade(process, is_released=True)


async def release(core: SharedCore) -> None:
    await Run(sleep(2.0))
    with suppress(LockLostError):
        await Run(core.release("me"))


async def lead(process: SimProcess) -> None:
    """Give up before the earlier session has ended."""
    core = election.core_of(process)
    if await Run(core.acquire("me", b"{}"), 8.0):
        await Run(core.release("me"))


@pytest.mark.parametrize(
    ("body", "path"), [(downgrade, shared_lock.PATH), (downgrade_and_release, shared_lock.PATH), (lead, election.PATH)]
)
@pytest.mark.parametrize("doubt", ["", "lost_reply", "lost_request"])
@pytest.mark.parametrize("step", range(13, 20))
def test_znode_whose_session_ends_just_before_its_creation_does_not_remain(
    body: Body, path: str, doubt: str, step: int
) -> None:
    """One of the steps is the last one before the request that creates the znode; its reply may not
    arrive.
    """

    async def work(process: SimProcess) -> None:
        with suppress(LockLostError):
            await body(process)

    stall = Exactly("stall", "one", step, 5_000)
    for ghost in (10, 11):
        for request in range(ghost + 1, ghost + 3):
            others = (Exactly(doubt, "one", request),) if doubt else ()
            for seed in range(4):
                with Simulation(seed, faults=Faults(exactly=(stall, Exactly("ghost", "one", ghost), *others))) as world:
                    world.checks.append(NothingLeft(f"{path}/"))
                    process = world.process("one")
                    process.spawn(work(process))
                    world.run()
