"""A waiter for a lock or a permit is in the queue, at whatever moment its session ended, and not only
after another contender has moved or after its own periodic check.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts
from simulation.session_gap import with_new_session

from distsync._protocols.locks.lock import LockCore
from distsync._protocols.semaphores.foreign_layouts import KazooSemaphoreCore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._protocols.steps import Wait

PATH = "/distsync/line"

#: The waiter sends fewer requests, and takes fewer steps, before it waits.
REQUESTS, STEPS = 20, 40

#: A client that was cut off until its session expired is back after the first; the second is too
#: short for a periodic check.
QUIET_S, PROMPT_S = 60.0, 3.0


def acquiring(what: str, process: SimProcess) -> Coroutine[Any, Any, object]:
    if what == "lock":
        return LockCore(PATH).acquire(process, b"{}")
    if what == "kazoo":
        return KazooSemaphoreCore(PATH, 1).acquire(b"{}")
    return SemaphoreCore(PATH, 1, receipts(process)).acquire(b"{}")


async def call(work: Coroutine[Any, Any, object]) -> None:
    await Run(work)


async def sleep(seconds: float, passed: list[bool]) -> None:
    await Wait(limit=seconds)
    passed.append(True)


def wait(world: Simulation, seconds: float) -> None:
    passed: list[bool] = []
    world.process("clock").spawn(sleep(seconds, passed))
    world.run(lambda: bool(passed))


def ephemeral_owners(world: Simulation) -> list[int]:
    """Return the sessions of all ephemeral znodes in the queue, in any order."""
    nodes = [world.server.engine.tree.node(path) for path in world.leftovers() if path.startswith(PATH)]
    return [node.owner for node in nodes if node is not None and node.owner]


def start_others(world: Simulation, what: str, others: int) -> None:
    """Let one process hold, and the others wait."""
    for name in ("holder", "second")[:others]:
        process = world.process(name)
        process.spawn(call(acquiring(what, process)), daemon=True)
        wait(world, 1.0)


@pytest.mark.parametrize("how", ["expire_live", "expire_away"])
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("what", ["lock", "semaphore", "kazoo"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_waiter_whose_session_ends_is_queued_again(request_number: int, what: str, others: int, how: str) -> None:
    for seed in range(2):
        with Simulation(seed, faults=Faults(exactly=(Exactly(how, "waiter", request_number),))) as world:
            start_others(world, what, others)
            waiter = world.process("waiter")
            waiter.spawn(call(acquiring(what, waiter)), daemon=True)
            wait(world, PROMPT_S if how == "expire_live" else QUIET_S)
            assert waiter.session.session_id in ephemeral_owners(world), (request_number, seed)


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("what", ["lock", "semaphore", "kazoo"])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_waiter_whose_session_changes_between_two_steps_is_queued_again(step: int, what: str, others: int) -> None:
    with Simulation(step) as world:
        start_others(world, what, others)
        waiter = world.process("waiter")
        waiter.spawn(call(with_new_session(acquiring(what, waiter), waiter, step)), daemon=True)
        wait(world, PROMPT_S)
        assert waiter.session.session_id in ephemeral_owners(world)
