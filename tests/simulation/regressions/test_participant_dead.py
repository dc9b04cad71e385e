"""No client waits for a site that was killed before its vote, however late the client looks."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.steps import Children, Wait
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import ABORT, COORDINATOR, PEERS, TransactionConfig

PATH = "/distsync/transaction/t"

#: Longer than a session, and than any call of a killed site.
LONG_S = 60.0


class Death:
    """The site "bank" is killed before it votes, and before the coordinator, or a site that comes
    later, looks.
    """

    def __init__(self, seed: int, decided_by: str, first: str) -> None:
        self.world = Simulation(seed)
        self.core = TransactionCore(PATH, TransactionConfig(("bank", "hotel"), decided_by))
        self.first = first
        self.outcomes: list[str] = []

    async def serve(self, site: str) -> None:
        hotel = site == "hotel"

        async def prepare() -> tuple[bool, str]:
            await Wait(limit=0.0 if hotel else LONG_S)
            return True, ""

        work = ParticipantCallbacks(lambda *_: prepare(), lambda *_: None, lambda *_: self.outcomes.append(ABORT))
        await Run(ParticipantCore(TransactionCore(PATH, self.core.terms), site).take_part(work, b"{}"))

    async def coordinate(self) -> None:
        transaction = await Run(self.core.begin(b"")) if self.first == "begin" else ""
        bank, hotel = (self.world.process(site) for site in self.core.terms.sites)
        bank.spawn(self.serve("bank"))
        if self.first == "bank":
            await self.core.record()
        while not (await Children(self.core.sites_path)).names:
            await Wait(limit=0.01)
        transaction = transaction or await Run(self.core.begin(b""))
        bank.kill()
        await Wait(limit=LONG_S)
        if self.core.terms.decided_by == COORDINATOR:
            deciding = self.core.decide(transaction, self.core.terms.sites)
            self.outcomes.append((await Run(deciding)).outcome)
        else:
            hotel.spawn(self.serve("hotel"))
            await Wait(limit=LONG_S)

    def play(self) -> list[str]:
        with self.world as world:
            process: SimProcess = world.process("coordinator")
            process.spawn(self.coordinate())
            world.run()
        return self.outcomes


@pytest.mark.parametrize("decided_by", [COORDINATOR, PEERS])
@pytest.mark.parametrize("first", ["bank", "begin"])
def test_transaction_aborts_without_waiting_for_a_site_killed_before_its_vote(decided_by: str, first: str) -> None:
    for seed in range(20):
        assert Death(seed, decided_by, first).play() == [ABORT], seed
