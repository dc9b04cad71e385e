"""A worker to which the loss of an item is reported has lost it: others get it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import receipts

from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync.errors import OutcomeUnknownError

PATH = "/distsync/joinable_queue/q"

#: The worker sends fewer requests before it has the item.
REQUESTS = 24


def expire_at(request: int, seed: int, how: str, workers: int) -> list[ClaimedItem]:
    """End the session of workers that put and claim an item at this request. Return what they got."""
    got: list[ClaimedItem] = []

    async def work(process: SimProcess) -> None:
        core = process.local(PATH, lambda: JoinableCore(PATH, receipts(process)))
        with suppress(OutcomeUnknownError):
            await Run(core.add(b"item"))
        with suppress(OutcomeUnknownError):
            got.extend(await Run(core.claim(b"{}", blocking=False)) or ())

    with Simulation(seed, faults=Faults(exactly=(Exactly(how, "worker", request),))) as world:
        worker = world.process("worker")
        for _ in range(workers):
            worker.spawn(work(worker))
        world.run()
        claims = [path for path in world.leftovers() if path.startswith(f"{PATH}/claims/")]
        held = sorted(delivery.claim for delivery in got if not delivery.loss.fired)
        assert sorted(claims) == held, (request, seed)
    return got


@pytest.mark.parametrize("request_number", range(1, REQUESTS))
def test_item_is_claimed_as_long_as_its_loss_has_not_fired(request_number: int) -> None:
    for seed in range(3):
        expire_at(request_number, seed, "expire_away", workers=1)


@pytest.mark.parametrize("request_number", range(38, 42))
def test_claim_made_beside_a_surviving_earlier_session_belongs_to_the_current_session(request_number: int) -> None:
    for seed in range(50, 60):
        expire_at(request_number, seed, "ghost", workers=2)


@pytest.mark.parametrize("request_number", range(30, 38))
def test_claim_requested_after_an_unnoticed_new_session_is_made_in_the_known_session(
    request_number: int,
) -> None:
    for seed in range(8):
        expire_at(request_number, seed, "expire_live", workers=2)
