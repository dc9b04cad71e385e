"""What a process has registered returns with its next session, unless somebody has taken the name meanwhile."""

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
"""Longer than a session lasts."""


#: The registrar asks no more often until it is told that it is registered.
REQUESTS = 15


async def register(process: SimProcess, data: bytes, after: float = 0.0) -> None:
    await Run(_sleep(after))
    assert await Run(core_of(process).put("name", data, False, replaces=False))


async def _sleep(seconds: float) -> None:
    await Wait(limit=seconds)


def play(seed: int, taken: bool) -> tuple[bytes, list[str], list[str]]:
    """What is registered in the end, and whose each of the two believes it to be."""
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
def test_entry_returns_unless_it_was_taken(seed: int) -> None:
    assert play(seed, False) == (b"first", ["name"], [])
    assert play(seed, True) == (b"second", [], ["name"])


def expire_at(request: int, seed: int) -> tuple[bool, bool]:
    """The session ends at this request, whose answer is lost, with those under way. Whether put said that the name is
    registered, and whether it is, in the next session."""
    told: list[bool] = []

    async def register(process: SimProcess) -> None:
        with suppress(OutcomeUnknownError):
            told.append(await Run(core_of(process).put("name", b"", False)))

    with Simulation(seed, faults=Faults(exactly=(Exactly("expire_away", "first", request),))) as world:
        first = world.process("first")
        first.spawn(register(first))
        world.run()
        node = world.server.engine.tree.node("/distsync/registry/r/name")
        assert first.session.ended == 1
        return told == [True], node is not None and node.owner == first.session.session_id


@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_what_was_registered_in_a_session_that_has_ended_is_registered_in_the_next(request_number: int) -> None:
    for seed in range(5):
        said, stands = expire_at(request_number, seed)
        assert stands or not said, seed
