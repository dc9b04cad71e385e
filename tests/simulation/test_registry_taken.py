"""What a process has registered returns with its next session, unless somebody has taken the name meanwhile."""

from __future__ import annotations

import pytest

from distsync.session.steps import Wait
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.registry import core_of
from distsync.testing.simulation.world import World

AWAY = 30.0
"""Longer than a session lasts."""


async def register(process: SimProcess, data: bytes, after: float = 0.0) -> None:
    await Run(_sleep(after))
    assert await Run(core_of(process).put("name", data, False, replaces=False))


async def _sleep(seconds: float) -> None:
    await Wait(limit=seconds)


def play(seed: int, taken: bool) -> tuple[bytes, list[str], list[str]]:
    """What is registered in the end, and whose each of the two believes it to be."""
    world = World(seed)
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
