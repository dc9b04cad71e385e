"""Two-phase commit: no site commits if another aborts, whichever process is killed; all sites learn
the decision, and nothing is left.

A site that was killed, or whose thread was ended by Ctrl-C, is started again when nothing else
runs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import OBSERVER, ROOT, Scenario, separate_rng, spawn, work

from distsync._protocols.steps import Wait
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import ABORT, COMMIT, COORDINATOR, PEERS, TransactionConfig
from distsync.errors import DeadlineError, OutcomeUnknownError, UsageError, VoteRefusedError

PATH = f"{ROOT}/transaction/t"

#: Longer than any session or pause.
QUIET_S = 60.0

#: Maximum number of attempts to vote manually, and of pauses before a site leaves.
SOME_TIMES = 6

#: Maximum number of restarts: faults may hit restarted sites again.
ROUNDS = 12


class Agreement(Check):
    """Check that all records of a transaction have one outcome, and that it is commit only if all
    sites voted so.
    """

    def __init__(self, sites: tuple[str, ...]) -> None:
        self.sites = set(sites)
        self.outcomes: dict[str, str] = {}
        self.votes: dict[tuple[str, str], set[bool]] = {}
        #: Sites for which a thread votes manually for commit, in whichever transaction is current.
        self.manual_voters: set[str] = set()

    def see(self, world: Simulation, record: Record) -> None:
        if record.event == "prepared":
            self.votes.setdefault((record.transaction, record.site), set()).add(record.commit)
        elif record.event == "votes" and record.commit:
            self.manual_voters.add(record.site)
        elif record.event in ("did", "decided"):
            before = self.outcomes.setdefault(record.transaction, record.outcome)
            if before != record.outcome:
                world.fail(f"{record.task} {record.event} {record.outcome} where others {before}")
            sites = self.sites - self.manual_voters
            if record.outcome == COMMIT and not all(True in self._of(record.transaction, site) for site in sites):
                world.fail(f"{record.transaction} is committed, but not all sites voted so")

    def _of(self, transaction: str, site: str) -> set[bool]:
        return self.votes.get((transaction, site), set())


class ScenarioRun:
    """One schedule."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        sites = ("bank", "hotel", "rail")[: world.rng.randint(1, 3)]
        self.terms = TransactionConfig(sites, world.rng.choice((COORDINATOR, PEERS)))
        self.homes: dict[str, SimProcess] = {}
        self.begun: dict[SimProcess, str] = {}
        world.checks.append(Agreement(sites))

    def core(self, process: SimProcess) -> TransactionCore:
        return process.local(PATH, lambda: TransactionCore(PATH, self.terms))

    async def coordinate(self, process: SimProcess, times: int) -> None:
        world, core = self.world, self.core(process)
        for number in range(times):
            await Run(work(world))
            try:
                transaction = await Run(core.begin(b"%d" % number), world.rng.choice((1.0, 30.0, QUIET_S)))
            except DeadlineError:
                continue
            self.begun[process] = transaction
            await Run(work(world))
            await self.decide(core, transaction)

    async def decide(self, core: TransactionCore, transaction: str) -> None:
        world = self.world
        try:
            if world.rng.random() < 0.1:
                decision = await Run(core.abort(transaction, "changed its mind"))
            else:
                decision = await Run(
                    core.decide(transaction, self.terms.sites), world.rng.choice((0.0, 0.02, 1.0, QUIET_S))
                )
        except (DeadlineError, OutcomeUnknownError):
            return
        world.record("decided", transaction=transaction, outcome=decision.outcome)

    async def serve(self, process: SimProcess, site: str, timeout: float | None, patient: bool = False) -> None:
        """Serve a site, one transaction after another, until none comes in time, or, if ``patient``,
        forever.
        """
        take_part = ParticipantCore(self.core(process), site).take_part
        do = partial(self.do, site)
        plan = ParticipantCallbacks(partial(self.prepare, site), partial(do, COMMIT), partial(do, ABORT))
        while True:
            try:
                if await Run(take_part(plan, b"{}"), timeout) is None and not patient:
                    return
            except OutcomeUnknownError as error:
                self.world.record("unknown", why=str(error))

    def prepare(self, site: str, transaction: str, data: bytes) -> Coroutine[Any, Any, tuple[bool, str]]:
        return self._prepare(site, transaction)

    async def _prepare(self, site: str, transaction: str) -> tuple[bool, str]:
        await work(self.world)
        commit = self.world.rng.random() < 0.85
        self.world.record("prepared", transaction=transaction, site=site, commit=commit)
        return commit, ""

    async def vote(self, process: SimProcess, site: str) -> None:
        """Vote manually, as soon as there is something to vote on."""
        world, side = self.world, ParticipantCore(self.core(process), site)
        commit = world.rng.random() < 0.85
        world.record("votes", site=site, commit=commit)
        for _ in range(SOME_TIMES):
            await Run(work(world))
            try:
                await Run(side.vote(commit, "manual vote"))
                return
            except VoteRefusedError:
                return
            except UsageError:
                continue

    async def leave(self, process: SimProcess, site: str) -> None:
        """Leave while another thread serves the site, which returns with its next transaction."""
        for _ in range(self.world.rng.randint(1, SOME_TIMES)):
            await Run(work(self.world))
        side, draws = ParticipantCore(self.core(process), site), separate_rng(self.world, "leaves")
        if draws.random() < 0.5:
            await Run(side.leave())
            return
        for _ in range(draws.randint(1, 3)):  # as after an interrupted leave
            process.background(side.left())
            await Wait(limit=draws.choice((0.0, 0.0, 0.002)))

    def do(self, site: str, outcome: str, transaction: str, data: bytes) -> None:
        self.world.record("did", transaction=transaction, site=site, outcome=outcome)

    def run(self) -> None:
        world, rng = self.world, self.world.rng
        made = [world.process(name) for name in "abcd"[: rng.randint(1, 4)]]
        for number, site in enumerate(self.terms.sites):
            self.homes[site] = made[number % len(made)]
            serving = self.serve(self.homes[site], site, rng.choice((None, None, 5.0)), patient=True)
            spawn(self.homes[site], serving, name=site, daemon=True)
        coordinators = [made[-1 - number % len(made)] for number in range(rng.choice((1, 1, 2)))]
        for number, process in enumerate(coordinators):
            spawn(process, self.coordinate(process, rng.randint(1, 2)), name=f"coordinator{number}")
        for play in {0: [self.vote], 1: [self.leave], 2: [self.vote, self.leave]}.get(world.seed % 6, []):
            site = rng.choice(self.terms.sites)
            spawn(self.homes[site], play(self.homes[site], site), name=play.__name__)
        world.run()
        world.process(OBSERVER)
        for _ in range(ROUNDS):
            if self.left():
                self.restart(coordinators)
                world.run()
        self.check_end()
        world.close()

    def left(self) -> list[str]:
        """Return the znodes of unfinished transactions."""
        return [path for path in self.world.leftovers() if path.startswith(f"{PATH}/t_")]

    def restart(self, coordinators: list[SimProcess]) -> None:
        """Restart the coordinators and sites that stopped."""
        world = self.world
        for process in coordinators:
            if process.alive and process in self.begun:
                again = self.decide(self.core(process), self.begun[process])
                spawn(process, again, name=f"again{process.name}")
        for site, home in self.homes.items():
            serving = any(task.name == f"{home.name}/{site}" for task in home.tasks)
            if not (home.alive and serving):
                process = home if home.alive else world.processes[OBSERVER]
                spawn(process, self.serve(process, site, QUIET_S), name=f"{site}again")

    def check_end(self) -> None:
        """Check that each site carried out the decision, once per process, and that no transaction is
        left.
        """
        world, history = self.world, self.world.history
        if self.left():
            world.fail(f"znodes are left: {', '.join(self.left())}")
        done = [(record.transaction, record.site, record.process) for record in history.events("did")]
        if len(done) > len(set(done)):
            world.fail(f"a process carried out a decision twice: {done}")
        did = {(record.transaction, record.site) for record in history.events("did")}
        known = {record.transaction for record in history.events("did") + history.events("decided")}
        for transaction in sorted(known):
            outcomes = {record.outcome for record in history.events("did") if record.transaction == transaction}
            missing = [site for site in self.terms.sites if (transaction, site) not in did]
            if COMMIT in outcomes and missing:
                world.fail(f"{transaction} is committed, but {missing} never carried it out")
        sure = not (world.interrupts or history.events("unknown"))
        for record in history.events("prepared"):
            learned = (record.transaction, record.site) in did or record.transaction not in known
            if sure and not learned and world.processes[record.process].alive:
                world.fail(f"{record.site} prepared {record.transaction}, but never learned the decision")


TRANSACTION = Scenario("transaction", lambda world: ScenarioRun(world).run())
