"""Ctrl-C at each step of a change of an own entry: it has its old or new value, and is restored in the
next session.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.registry import core_of

from distsync._protocols.steps import Wait

AWAY = 30.0
"""Longer than a session."""

STEPS = 40


async def register(process: SimProcess, data: bytes, results: list[bytes]) -> None:
    await Run(core_of(process).put("name", data, False))
    results.append(data)


async def sleep(seconds: float) -> None:
    await Wait(limit=seconds)


@pytest.mark.parametrize("step", range(1, STEPS))
def test_entry_exists_after_an_interrupted_change(step: int) -> None:
    for seed in range(5):
        results: list[bytes] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly("interrupt", "one", step),))) as world:
            one = world.process("one")
            for data in (b"old", b"new"):
                one.spawn(register(one, data, results))
                world.run()
            if b"old" not in results:
                continue
            before = world.server.engine.tree.node("/distsync/registry/r/name")
            assert before is not None
            assert before.data in ((b"new",) if b"new" in results else (b"old", b"new"))
            one.cut(away=AWAY)
            one.spawn(sleep(2 * AWAY))
            world.run(lambda: world.tasks_open == 0)
            after = world.server.engine.tree.node("/distsync/registry/r/name")
            assert after is not None
            assert (after.data, after.owner) == (before.data, one.session.session_id)
            assert core_of(one).mine == ["name"]


async def register_unless_taken(process: SimProcess, results: list[bool]) -> None:
    results.append(await Run(core_of(process).put("name", b"mine", False, replaces=False)))


async def register_persistently(process: SimProcess) -> None:
    await Run(core_of(process).put("name", b"others", True))


@pytest.mark.parametrize("step", range(1, STEPS))
def test_persistent_entry_of_another_process_is_not_taken_over_after_an_interrupt(step: int) -> None:
    for seed in range(3):
        results: list[bool] = []
        with Simulation(seed, faults=Faults(exactly=(Exactly("interrupt", "one", step),))) as world:
            other, one = world.process("other"), world.process("one")
            other.spawn(register_persistently(other))
            world.run()
            for _ in range(2):
                one.spawn(register_unless_taken(one, results))
            world.run()
        node = world.server.engine.tree.node("/distsync/registry/r/name")
        assert node is not None
        assert node.data == b"others"
        assert results in ([False], [False, False])
