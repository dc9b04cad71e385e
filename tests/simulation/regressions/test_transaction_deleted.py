"""Parts of a transaction are deleted externally: no task spins or sleeps forever, nothing is committed
without all votes, all decisions reported are equal, and the next transaction is not affected.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import work

from distsync._protocols.steps import Delete, GetData, Multi, Wait
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import ABORT, COMMIT, COORDINATOR, PEERS, TransactionConfig
from distsync.errors import CorruptNodeError, OutcomeUnknownError, ZnodeError

PATH = "/distsync/transaction/t"
SITES = ("bank", "hotel")

#: Deleted parts: the whole transaction at once or one by one, the whole object, or one znode.
WHOLE = ("transaction", "one by one", "object")
PARTS = ("open", "decision", "coordinator", "ballot-bank", "commit-bank", "seen-bank")

#: When (milliseconds): during the vote, after the decision, or after the end.
MOMENTS = range(20)


class Sabotage:
    """Two sites that vote for commit, their coordinator, and an administrator."""

    def __init__(self, seed: int, decided_by: str, what: str) -> None:
        self.world = Simulation(seed)
        self.moment = seed
        self.terms = TransactionConfig(SITES, decided_by)
        self.what = what
        self.outcomes: dict[str, set[str]] = {}
        #: The transaction that was open when a part of it was deleted.
        self.struck: str | None = None

    def core(self, process: SimProcess) -> TransactionCore:
        return process.local(PATH, lambda: TransactionCore(PATH, self.terms))

    def report(self, transaction: str, outcome: str) -> None:
        self.outcomes.setdefault(transaction, set()).add(outcome)

    async def serve(self, process: SimProcess, site: str) -> None:
        async def prepare() -> tuple[bool, str]:
            await work(self.world)
            return True, ""

        def record(outcome: str) -> ParticipantCallbacks:
            return lambda transaction, _: self.report(transaction, outcome)

        plan = ParticipantCallbacks(lambda *_: prepare(), record(COMMIT), record(ABORT))
        while True:
            try:
                await Run(ParticipantCore(self.core(process), site).take_part(plan, b"{}"))
            except OutcomeUnknownError:
                pass
            except CorruptNodeError:
                await Wait(limit=1.0)

    async def coordinate(self, process: SimProcess) -> None:
        core = self.core(process)
        for _ in range(2):
            transaction = await Run(core.begin(b""))
            await Run(work(self.world))
            with suppress(OutcomeUnknownError, CorruptNodeError):
                decision = await Run(core.decide(transaction, SITES))
                self.report(transaction, decision.outcome)
            await Wait(limit=2.0)
            self.clear(transaction)
        last = await Run(core.begin(b""))
        assert (await Run(core.decide(last, SITES))).outcome == COMMIT

    async def delete(self) -> None:
        """Delete once the transaction exists and ``moment`` milliseconds have passed."""
        while not (found := self.found()):
            await Wait(limit=0.001)
        await Wait(limit=self.moment / 1000)
        found = self.found()
        if found and any(path.endswith("/open") for path in self.below(f"{PATH}/t_")):
            self.struck = self.current()
        if self.what != "one by one":
            self.delete_at_once(found)
        for path in found if self.what == "one by one" else ():
            with suppress(ZnodeError):
                self.world.external_client(Delete(path))
            await Run(work(self.world))

    def found(self) -> list[str]:
        """Return what is to be deleted, if it exists."""
        top = PATH if self.what == "object" else f"{PATH}/t_"
        whole = self.what in WHOLE and self.below(f"{PATH}/t_")
        return self.below(top) if whole else [path for path in self.below(top) if path.endswith(f"/{self.what}")]

    def current(self) -> str | None:
        found: str | None = json.loads(self.world.external_client(GetData(PATH)).data)[2]
        return found

    def below(self, top: str) -> list[str]:
        return sorted((path for path in self.world.leftovers() if path.startswith(top)), reverse=True)

    def delete_at_once(self, paths: list[str]) -> None:
        self.world.external_client(Multi(tuple(Delete(path) for path in paths)))

    def clear(self, transaction: str) -> None:
        """Delete what is left of the transaction if it can no longer be decided."""
        below = self.below(f"{PATH}/t_{transaction}")
        if below and not any(path.endswith(("/open", "/decision")) for path in below):
            self.delete_at_once(below)

    def play(self) -> None:
        with self.world as world:
            coordinator = world.process("coordinator")
            coordinator.spawn(self.coordinate(coordinator))
            for site in SITES:
                process = world.process(site)
                process.spawn(self.serve(process, site), name=site, daemon=True)
            world.process("administrator").spawn(self.delete())
            world.run()
            assert self.current() is None


@pytest.mark.parametrize("decided_by", [COORDINATOR, PEERS])
@pytest.mark.parametrize("what", WHOLE + PARTS)
def test_external_deletion_blocks_no_process_and_leads_to_no_contradiction(what: str, decided_by: str) -> None:
    struck = 0
    for seed in MOMENTS:
        sabotage = Sabotage(seed, decided_by, what)
        sabotage.play()
        struck += sabotage.struck is not None
        for transaction, outcomes in sabotage.outcomes.items():
            assert len(outcomes) == 1, (seed, transaction)
            if what in ("ballot-bank", "commit-bank") and transaction == sabotage.struck:
                assert outcomes == {ABORT}, seed
    assert struck > 0 or what == "decision"
