"""A reader that is released without a proof of its session leaves no hold behind."""

from __future__ import annotations

import pytest
from simulation.engine.runner import run_seed
from simulation.scenarios import SCENARIOS


@pytest.mark.parametrize(("scenario", "seed"), [("shared", 2179), ("shared-wait", 885)])
def test_lock_whose_release_reported_the_loss_is_held_no_longer(scenario: str, seed: int) -> None:
    """The release fired the loss. The hold of another reader, or that of a downgrade in progress, stayed for good."""
    world = run_seed(SCENARIOS[scenario], seed)
    assert all(not process.keeper.holds for process in world.processes.values())
