"""A site whose leave was interrupted, and that takes part again at once, is there and stays."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import COORDINATOR, TransactionConfig

PATH = "/distsync/transaction/t"
CALL_S = 30.0
STEPS, REQUESTS = 25, 15

WORK = ParticipantCallbacks(lambda *_: (True, ""), lambda *_: None, lambda *_: None)


class ReturningSite:
    """One schedule; the faults ``placed`` hit the site while it joins, leaves or returns."""

    def __init__(self, seed: int, *placed: Exactly) -> None:
        self.world = Simulation(seed, faults=Faults(exactly=placed))
        self.side = ParticipantCore(TransactionCore(PATH, TransactionConfig(("bank",), COORDINATOR)), "bank")
        self.is_back = False

    async def join(self) -> None:
        await Run(self.side.take_part(WORK, b"{}"), CALL_S)

    async def leave_and_return(self, process: SimProcess, times: int) -> None:
        """Leave ``times`` times in the background, as the public class does after an interrupt, and
        return.

        The end of a ``with`` block leaves twice. With 0, leave in the foreground, which may be
        interrupted.
        """
        try:
            if not times:
                await Run(self.side.leave())
        except KeyboardInterrupt:
            times = 1
        for _ in range(times):
            process.background(self.side.left())
        await Run(self.side.take_part(WORK, b"{}"), CALL_S)
        self.is_back = True

    def play(self, times: int) -> bool:
        """Return whether the site is there in the end, or was interrupted when it returned."""
        with self.world as world:
            process = world.process("one")
            for each in (self.join(), self.leave_and_return(process, times)):
                process.spawn(each)
                world.run()
            node = world.server.engine.tree.node(f"{PATH}/sites/s_bank")
            assert self.side.core.idle or not self.is_back
            return not self.is_back or (node is not None and node.owner == process.session.session_id)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "expire_live"])
def test_site_that_returns_while_it_leaves_in_the_background_stays(kind: str, times: int) -> None:
    for request in range(1, REQUESTS):
        for seed in range(20):
            assert ReturningSite(seed, Exactly(kind, "one", request)).play(times), (request, seed)


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply"])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_site_that_returns_after_an_interrupted_leave_stays(step: int, kind: str) -> None:
    for request in range(1, REQUESTS):
        for seed in range(3):
            placed = Exactly("interrupt", "one", step), Exactly(kind, "one", request)
            assert ReturningSite(seed, *placed).play(0), (request, seed)
