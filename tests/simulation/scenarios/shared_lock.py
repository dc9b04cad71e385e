"""Shared locks: readers and writers never overlap, also by the server's tree; downgrades and
revocation.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check, Exclusion, NothingLeft, holds
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    LastNumbers,
    Scenario,
    finish,
    maybe_timeout,
    processes,
    spawn,
    take_from_holders,
    work,
)

from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import Grant, LockCore
from distsync._protocols.locks.shared_lock import NodeNames, SharedCore
from distsync._protocols.steps import Wait
from distsync.errors import LockLostError, NotHeldError, UpgradeError

PATH = f"{ROOT}/sharedlock/s"


class ReadersOrWriter(Check):
    """Check that a writer is alone, apart from its own reads, and that writers' tokens increase."""

    def __init__(self) -> None:
        self.holding: dict[tuple[str, str], Record] = {}
        self.newest = 0

    def see(self, world: Simulation, record: Record) -> None:
        what = record.fields.get("what")
        if what not in ("reader", "writer"):
            return
        key = (record.task, what)
        if record.event == "granted":
            self.holding[key] = record
            if what == "writer":
                self._grows(world, record)
        elif record.event == "released":
            self.holding.pop(key, None)
        self._judge(world)

    def _grows(self, world: Simulation, record: Record) -> None:
        if holds(world, record) and record.token < self.newest:
            world.fail(f"{record.task} writes with the token {record.token}, after {self.newest}")
        self.newest = max(self.newest, record.token)

    def _judge(self, world: Simulation) -> None:
        writers = [record for (_, what), record in self.holding.items() if what == "writer"]
        for writer in writers:
            others = [record for (task, _), record in self.holding.items() if task != writer.task]
            together = [record for record in others if holds(world, record)]
            if together and holds(world, writer):
                names = ", ".join(f"{each.task} ({each.what})" for each in together)
                world.fail(f"{writer.task} writes together with {names}")


class OneKindHolds(Check):
    """Check in the server's tree that a newly granted znode is among the current holders, with no
    conflicting one ahead.
    """

    def see(self, world: Simulation, record: Record) -> None:
        if record.event != "granted" or not holds(world, record) or record.fields.get("name") is None:
            return
        order = wait_queue.in_order(
            path.rpartition("/")[2] for path in world.leftovers() if path.startswith(f"{PATH}/")
        )
        front = [each.name for each in wait_queue.current_holders(order)]
        if record.name not in front:
            world.fail(f"{record.task} was granted by {record.name}, but the current holders are {front}")


def core_of(process: SimProcess) -> SharedCore:
    marks = NodeNames(wait_queue.KAZOO_READ, wait_queue.KAZOO_LOCK) if process.world.seed % 4 == 0 else NodeNames()
    return process.local(PATH, lambda: SharedCore(PATH, marks))


def granted(world: Simulation, core: SharedCore, owner: object, what: str) -> None:
    """Record the grant at the moment when the call returns."""
    share = core.share_of(owner) if what == "reader" else None
    grant = share.grant if share else core.writer.grant
    if grant is not None:
        world.record(
            "granted",
            what=what,
            session_id=grant.entry.session_id,
            token=grant.entry.token,
            loss=grant.loss,
            name=None if share is not None and share.downgrading else grant.entry.name,
        )


async def release(world: Simulation, core: SharedCore, owner: object, what: str) -> None:
    """Release one side; fail if a loss is reported without a fault."""
    world.record("released", what=what)
    try:
        await Run((core if what == "reader" else core.writer).release(owner), world.rng.choice((None, 10.0, 0.0)))
    except LockLostError as error:
        if not world.faults.injected and not world.tampered and not world.revoked:
            world.fail(f"a loss without a fault: {error}")


async def read(world: Simulation, core: SharedCore, owner: object) -> None:
    """Hold the read lock, and sometimes try to upgrade, which must be refused."""
    timeout = maybe_timeout(world)
    if not await Run(core.acquire(owner, b"", timeout != 0.0), timeout):
        return
    granted(world, core, owner, "reader")
    try:
        await Run(work(world))
        world.record("working", what="reader")
        if world.rng.random() < 0.3:
            await try_upgrade(world, core, owner)
    finally:
        await release(world, core, owner, "reader")


async def try_upgrade(world: Simulation, core: SharedCore, owner: object) -> None:
    if not core.reads(owner):
        return
    try:
        await Run(core.writer.acquire(owner, b""))
        lost = not core.reads(owner)
        await release_writer(core, owner)
        if not lost:
            world.fail("a reader was upgraded to a writer")
    except UpgradeError:
        return


async def release_writer(core: SharedCore, owner: object) -> None:
    try:
        await Run(core.writer.release(owner))
    except LockLostError:
        return


def cache_seconds(world: Simulation) -> float:
    """Return how long writers cache the lock; in half of the schedules they do not."""
    return 0.1 if world.seed % 2 else 0.0


async def write(world: Simulation, core: SharedCore, owner: object, process: str) -> None:
    """Hold the write lock; sometimes also read, and downgrade."""
    timeout, linger = maybe_timeout(world), cache_seconds(world)
    cached = core.writer.cached
    quick = linger and cached is not None and world.processes[process].is_proven(cached.entry.session_id)
    if not (quick and core.writer.acquire_from_cache(owner)):
        data, brief = (b'{"keep": 0.1}' if linger else b""), timeout is not None and timeout < 0.5
        if not await Run(core.writer.acquire(owner, data, timeout != 0.0, linger=linger, is_short_wait=brief), timeout):
            return
    granted(world, core, owner, "writer")
    reading = False
    try:
        await Run(work(world))
        world.record("working", what="writer")
        if world.rng.random() < 0.5:
            reading = await Run(core.acquire(owner, b""))
            granted(world, core, owner, "reader")
    finally:
        await downgrade(world, core, owner, reading)


async def downgrade(world: Simulation, core: SharedCore, owner: object, reading: bool) -> None:
    """Release the writer first, or the reader."""
    if not reading:
        await release(world, core, owner, "writer")
        if core.depth(owner):  # the thread was interrupted before it recorded that it reads
            await release(world, core, owner, "reader")
        return
    order = ("writer", "reader") if world.rng.random() < 0.7 else ("reader", "writer")
    try:
        await release(world, core, owner, order[0])
        if world.rng.random() < 0.7:
            await Run(work(world))
        world.record("working", what="reader")
    finally:
        await release(world, core, owner, order[1])


async def thread(world: Simulation, process: SimProcess) -> None:
    owner, core = object(), core_of(process)
    for _ in range(world.rng.randint(1, 3)):
        if world.rng.random() < 0.4:
            await write(world, core, owner, process.name)
        else:
            await read(world, core, owner)


def play_shared(world: Simulation) -> None:
    world.checks += [ReadersOrWriter(), OneKindHolds(), NothingLeft(f"{PATH}/"), LastNumbers(world, PATH)]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 3)):
            spawn(process, thread(world, process))
    finish(world)


# Revocation


LOCK_PATH = f"{ROOT}/lock/r"


async def holder(world: Simulation, process: SimProcess, consents: bool) -> None:
    """Hold the lock until it is revoked, or, without consent, for 3 s."""
    owner = object()
    core = process.local(LOCK_PATH, lambda: LockCore(LOCK_PATH))
    for _ in range(world.rng.randint(1, 2)):
        if not await Run(core.acquire(owner, b"{}")) or core.grant is None:
            continue
        grant = core.grant
        entry = grant.entry
        world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)
        try:
            await Run(hold_on(world, grant, consents))
        finally:
            world.record("released", what="lock")
            await Run(release_lock(world, core, owner))


async def hold_on(world: Simulation, grant: Grant, consents: bool) -> None:
    if not consents:
        await Wait(grant.loss, limit=3.0)
        return
    if world.rng.random() < 0.3:
        # so that the znode is already watched when the holder starts to watch for revocation
        await Wait(grant.loss, limit=1.0)
    await revocation.watch_revocation(grant)
    await revocation.until_asked(grant)


async def release_lock(world: Simulation, core: LockCore, owner: object) -> None:
    try:
        await core.release(owner)
    except LockLostError as error:
        if not world.faults.injected and not world.tampered and not world.revoked:
            world.fail(f"a loss without a fault: {error}")


async def revoker(world: Simulation, holders: list[SimProcess], force: bool) -> None:
    """Ask the holders while a task of theirs is left. With ``force``, wait briefly, and sometimes
    take the lock from them.
    """
    while any(task for each in holders for task in each.tasks if not task.done and not task.background):
        try:
            paths = await Run(revocation.request_revocation(LOCK_PATH))
        except NotHeldError:
            await Run(work(world))
            await Run(pause())
            continue
        left = await Run(revocation.still_held(paths), world.rng.choice((0.0, 0.5, 2.0)) if force else None)
        if left and force and world.rng.random() < 0.5:
            await take_from_holders(world, left)


async def pause() -> None:
    await Wait(limit=0.4)


def play_revocation(world: Simulation) -> None:
    """Check that consenting holders are eventually asked and release; others end by themselves, or
    their znodes are deleted.
    """
    world.checks += [Exclusion("lock"), NothingLeft(f"{LOCK_PATH}/")]
    holders = list(processes(world, 2, 3))
    for process in holders:
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, holder(world, process, world.rng.random() < 0.7))
    if world.rng.random() < 0.5:
        spawn(world.process("revoker"), revoker(world, holders, True))
    spawn(world.process(OBSERVER), revoker(world, holders, False))
    world.run()
    world.close()


SHARED = Scenario("shared", play_shared)
REVOCATION = Scenario("revocation", play_revocation)
