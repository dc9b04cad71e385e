"""What a process has registered is restored in its next session, unless another process has taken the
name.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.registry import core_of

from distsync._protocols.steps import Wait
from distsync.errors import OutcomeUnknownError

AWAY = 30.0
"""Longer than a session."""


#: The registrar sends fewer requests before its registration is acknowledged.
REQUESTS = 15


async def register(process: SimProcess, data: bytes, after: float = 0.0) -> None:
    await Run(_sleep(after))
    assert await Run(core_of(process).put("name", data, False, replaces=False))


async def _sleep(seconds: float) -> None:
    await Wait(limit=seconds)


def play(seed: int, taken: bool) -> tuple[bytes, list[str], list[str]]:
    """Return what is registered in the end, and which entries each of the two processes considers its
    own.
    """
    world = Simulation(seed)
    first, second = world.process("first"), world.process("second")
    first.spawn(register(first, b"first"))
    world.run(lambda: world.tasks_open == 0)
    first.cut(away=AWAY)
    second.spawn(register(second, b"second", after=AWAY / 2) if taken else _sleep(AWAY))
    second.spawn(_sleep(2 * AWAY))
    world.run(lambda: world.tasks_open == 0)
    node = world.server.engine.tree.node("/distsync/registry/r/name")
    mine = core_of(first).mine, core_of(second).mine
    world.close()
    assert node is not None
    return node.data or b"", *mine


@pytest.mark.parametrize("seed", range(20))
def test_entry_is_restored_in_the_next_session_unless_it_was_taken(seed: int) -> None:
    assert play(seed, False) == (b"first", ["name"], [])
    assert play(seed, True) == (b"second", [], ["name"])


def expire_at(request: int, seed: int) -> tuple[bool, bool]:
    """End the session at this request, whose reply is lost, as are those in progress.

    Return whether put was acknowledged, and whether the entry exists in the next session.
    """
    results: list[bool] = []

    async def register(process: SimProcess) -> None:
        with suppress(OutcomeUnknownError):
            results.append(await Run(core_of(process).put("name", b"", False)))

    with Simulation(seed, faults=Faults(exactly=(Exactly("expire_away", "first", request),))) as world:
        first = world.process("first")
        first.spawn(register(first))
        world.run()
        node = world.server.engine.tree.node("/distsync/registry/r/name")
        assert first.session.ended == 1
        return results == [True], node is not None and node.owner == first.session.session_id


@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_entry_registered_in_a_session_that_has_ended_exists_in_the_next_one(request_number: int) -> None:
    for seed in range(5):
        acknowledged, exists = expire_at(request_number, seed)
        assert exists or not acknowledged, seed
