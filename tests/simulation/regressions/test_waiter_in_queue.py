"""A waiter for a lock or a permit is enqueued, whenever its session ends, and not only when another
one has moved or its own timeout has passed.
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

#: Maximum number of the waiter's requests until it waits.
REQUESTS, STEPS = 20, 40

#: Time until a client that was cut off from an expired session is back; no waiter checks by itself
#: before.
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


def standing(world: Simulation) -> list[int]:
    """Return the sessions of all ephemerals in the queue, in any order."""
    nodes = [world.server.engine.tree.node(path) for path in world.leftovers() if path.startswith(PATH)]
    return [node.owner for node in nodes if node is not None and node.owner]


def others_stand(world: Simulation, what: str, others: int) -> None:
    """One holds, and the others wait."""
    for name in ("holder", "second")[:others]:
        process = world.process(name)
        process.spawn(call(acquiring(what, process)), daemon=True)
        wait(world, 1.0)


@pytest.mark.parametrize("how", ["expire_live", "expire_away"])
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("what", ["lock", "semaphore", "kazoo"])
@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_waiter_whose_session_ends_is_enqueued(request_number: int, what: str, others: int, how: str) -> None:
    for seed in range(2):
        with Simulation(seed, faults=Faults(exactly=(Exactly(how, "waiter", request_number),))) as world:
            others_stand(world, what, others)
            waiter = world.process("waiter")
            waiter.spawn(call(acquiring(what, waiter)), daemon=True)
            wait(world, PROMPT_S if how == "expire_live" else QUIET_S)
            assert waiter.session.session_id in standing(world), (request_number, seed)


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("what", ["lock", "semaphore", "kazoo"])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_waiter_whose_session_changes_between_two_steps_is_enqueued(step: int, what: str, others: int) -> None:
    with Simulation(step) as world:
        others_stand(world, what, others)
        waiter = world.process("waiter")
        waiter.spawn(call(with_new_session(acquiring(what, waiter), waiter, step)), daemon=True)
        wait(world, PROMPT_S)
        assert waiter.session.session_id in standing(world)
