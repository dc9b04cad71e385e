"""Condition, and Election as one: a consumer that waits gets what a notifier produced, whichever
process is killed in between.
"""

from __future__ import annotations

from collections.abc import Callable

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    sleepers,
    spawn,
    work,
)

from distsync._protocols.locks.lock import LockCore
from distsync._protocols.retries import delete_until_session_ends
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.state.election import ElectionCore
from distsync._protocols.steps import Background
from distsync._protocols.wait_queue import QueueEntry
from distsync.errors import LockLostError, NotHeldError, OutcomeUnknownError

PATH = f"{ROOT}/condition/c"
ELECTION_PATH = f"{ROOT}/election/c"

#: Returns the lock and the condition of a process.
Cores = Callable[[SimProcess], tuple[LockCore, ConditionCore]]


def condition_cores(process: SimProcess) -> tuple[LockCore, ConditionCore]:
    lock = process.local(f"{PATH}/lock", lambda: LockCore(f"{PATH}/lock"))
    return lock, process.local(PATH, lambda: ConditionCore(PATH, receipts(process)))


def election_cores(process: SimProcess) -> tuple[LockCore, ConditionCore]:
    core = process.local(ELECTION_PATH, lambda: ElectionCore(ELECTION_PATH, receipts(process)))
    return core, core.condition


class Inventory:
    """What the threads produce and consume. All processes share it; the lock guards it."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.goods = 0
        self.unguarded = False

    def check_guard(self, thread: Thread) -> None:
        """Note if a thread lost the lock: no condition can make up for what it does then."""
        grant = thread.lock.grant
        if grant is None or thread.lock.owner is not thread or not thread.process.is_proven(grant.entry.session_id):
            self.unguarded = True


class Thread:
    """A thread that uses the lock and the condition."""

    def __init__(self, process: SimProcess, stock: Inventory, cores: Cores) -> None:
        self.process = process
        self.world = process.world
        self.stock = stock
        self.lock, self.core = cores(process)

    async def acquire(self) -> None:
        await Run(self.lock.acquire(self, b"{}"))
        grant = self.lock.grant
        if grant is not None:
            entry = grant.entry
            self.world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)

    async def release(self) -> None:
        self.world.record("released", what="lock")
        await Run(self._release())

    async def _release(self) -> None:
        """Release as an RLock does: a thread that Ctrl-C hit when it re-acquired the lock does not
        release that of another.
        """
        try:
            if self.lock.owner is not self and not self.lock.loss_of(self):
                raise NotHeldError(f"{self.lock.path} is not held")
            await self.lock.release(self)
        except (LockLostError, NotHeldError):
            self.stock.unguarded = True
            if not self.world.faults.injected and not self.process.session.closed:
                self.world.fail("a loss without a fault")

    async def wait(self, timeout: float | None) -> bool:
        """Wait as Condition.wait of the public class does."""
        entries: list[QueueEntry] = []
        try:
            await Run(self.core.enlist(b"", entries))
            await self.release()
            notified = False
            try:
                notified = bool(await Run(self.core.wait(entries[0]), timeout))
            finally:
                await self.acquire()
            if notified:
                await Run(self.core.confirm(entries[0]))
            return notified
        except BaseException:
            for entry in entries:
                await Run(_in_background(entry))
            raise

    async def consumer(self) -> None:
        await self.acquire()
        try:
            while self.stock.goods == 0:
                timeout = maybe_timeout(self.world)
                notified = await self.wait(timeout)
                self.stock.check_guard(self)
                if not notified and timeout is not None:
                    return
            self.stock.goods -= 1
            self.world.record("consumed")
        finally:
            await self.release()

    async def producer(self) -> None:
        for _ in range(self.world.rng.randint(1, 3)):
            await self.acquire()
            try:
                await Run(work(self.world))
                self.stock.goods += 1
                count = self.world.rng.choice((1, 1, 2, None))
                self.world.record("notifying")
                await Run(self.core.notify(count))
                self.world.record("notified")
                self.stock.check_guard(self)
            except OutcomeUnknownError:
                pass
            finally:
                await self.release()


async def _in_background(entry: QueueEntry) -> None:
    await Background(delete_until_session_ends(entry.path, entry.session_id))


def check_sleepers(world: Simulation, stock: Inventory) -> None:
    """Check that nobody waits while there are goods, unless the lock or a notify was lost with its
    thread.
    """
    missed = len(world.history.events("notifying")) - len(world.history.events("notified"))
    waiting = [name for name in sleepers(world) if "consumer" in name]
    if waiting and stock.goods > 0 and not stock.unguarded and not missed:
        world.fail(f"{', '.join(waiting)} wait while there are {stock.goods} goods")


def run(world: Simulation, cores: Cores, path: str, folders: tuple[str, ...]) -> None:
    stock = Inventory(world)
    world.checks += [Exclusion("lock")]
    for process in processes(world, 2, 3):
        for number in range(world.rng.randint(1, 2)):
            spawn(process, Thread(process, stock, cores).consumer(), name=f"consumer{number}", daemon=True)
        if world.rng.random() < 0.7:
            spawn(process, Thread(process, stock, cores).producer(), name="producer")
    world.run()
    check_sleepers(world, stock)
    if not sleepers(world):
        world.checks.append(NothingLeft(f"{path}/", lambda left: left in folders))
        world.run()
    world.close()


def run_condition(world: Simulation) -> None:
    run(world, condition_cores, PATH, (f"{PATH}/lock", f"{PATH}/waiters"))


def run_election(world: Simulation) -> None:
    folder = f"{ELECTION_PATH}/condition"
    run(world, election_cores, ELECTION_PATH, (folder, f"{folder}/waiters"))


CONDITION = Scenario("condition", run_condition)
ELECTION_CONDITION = Scenario("election-condition", run_election)
