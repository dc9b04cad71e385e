"""The simulator finds planted bugs within a few hundred schedules, and finds none in a right lock."""

from __future__ import annotations

import re

import pytest
from simulation.toys import Lock, contend

from distsync.testing.simulation import Exclusion, Faults, NothingLeft, SimulationFailure, World

ALL = Faults(
    lost_request=0.01,
    lost_reply=0.01,
    cut=0.01,
    expire_away=0.005,
    expire_live=0.005,
    slow=0.005,
    kill=0.003,
    pause=0.003,
    interrupt=0.003,
    intruder=0.003,
    late_event=0.05,
)


def first_failure(schedules: int, faults: Faults, **lock: bool) -> SimulationFailure | None:
    for seed in range(schedules):
        world = World(seed, faults=faults, checks=[Exclusion("lock"), NothingLeft("/lock/")])
        contend(world, Lock(**lock))
        try:
            world.run()
            world.close()
        except SimulationFailure as failure:
            return failure
    return None


@pytest.mark.parametrize(
    ("faults", "lock", "message"),
    [
        (Faults(lost_reply=0.02), {"search": False}, "asleep|left"),
        (Faults(interrupt=0.02), {"relist": False}, "2 hold 'lock'"),
    ],
)
def test_a_planted_bug_is_found(faults: Faults, lock: dict[str, bool], message: str) -> None:
    failure = first_failure(500, faults, **lock)
    assert failure is not None
    assert re.search(message, failure.message)


def test_a_right_lock_passes_under_every_fault() -> None:
    failure = first_failure(300, ALL)
    assert failure is None, failure
