"""A site that had prepared, and was disconnected until the decision was made without it, learns it on
its return.
"""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.steps import Wait
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import ABORT, COORDINATOR, PEERS, TransactionConfig

#: Duration of a call of take_part; shorter than the disconnection.
CALL_S = 2.0
SHORTER_THAN_A_SESSION, LONGER = 4.0, 30.0


class Outage:
    """One site, which is disconnected while it prepares."""

    def __init__(self, seed: int, decided_by: str, away: float) -> None:
        self.world = Simulation(seed)
        self.terms = TransactionConfig(("bank",), decided_by)
        self.away = away
        self.outcomes: list[str] = []

    def core(self, process: SimProcess) -> TransactionCore:
        return TransactionCore("/distsync/transaction/t", self.terms)

    async def serve(self, process: SimProcess) -> None:
        site = ParticipantCore(self.core(process), "bank")

        def prepare(transaction: str, data: bytes) -> tuple[bool, str]:
            process.cut(self.away)
            return True, ""

        work = ParticipantCallbacks(
            prepare, lambda *_: self.outcomes.append("commit"), lambda *_: self.outcomes.append(ABORT)
        )
        while self.world.now < 3 * self.away:
            if await Run(site.take_part(work, b"{}"), CALL_S) is None:
                await Wait(limit=CALL_S)

    async def coordinate(self, process: SimProcess) -> None:
        core = self.core(process)
        decision = await Run(core.decide(await Run(core.begin(b"")), core.terms.sites), CALL_S)
        assert decision.outcome == ABORT

    def play(self) -> list[str]:
        with self.world as world:
            for name, body in (("site", self.serve), ("coordinator", self.coordinate)):
                process = world.process(name)
                process.spawn(body(process))
            world.run()
        return self.outcomes


@pytest.mark.parametrize("decided_by", [COORDINATOR, PEERS])
@pytest.mark.parametrize("away", [SHORTER_THAN_A_SESSION, LONGER])
def test_site_disconnected_during_the_vote_learns_of_the_abort(decided_by: str, away: float) -> None:
    for seed in range(20):
        assert Outage(seed, decided_by, away).play() == [ABORT], seed
