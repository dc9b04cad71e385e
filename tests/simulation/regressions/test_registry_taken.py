"""An entry is created again in the next session, unless another client has taken the name since."""

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


#: Maximum number of the registrar's requests until the registration is acknowledged.
REQUESTS = 15


async def register(process: SimProcess, data: bytes, after: float = 0.0) -> None:
    await Run(_sleep(after))
    assert await Run(core_of(process).put("name", data, False, replaces=False))


async def _sleep(seconds: float) -> None:
    await Wait(limit=seconds)


def play(seed: int, taken: bool) -> tuple[bytes, list[str], list[str]]:
    """Return the entry in the end, and what each of the two believes it to be."""
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
    """End the session at this request, whose reply is lost, with the outstanding ones.

    Returns whether put reported success, and whether the entry exists in the next session.
    """
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
def test_entry_registered_in_an_ended_session_is_registered_in_the_next(request_number: int) -> None:
    for seed in range(5):
        said, stands = expire_at(request_number, seed)
        assert stands or not said, seed
