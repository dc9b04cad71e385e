"""Shared locks with cached readers, beside writers and threads that inspect, delete and revoke."""

from __future__ import annotations

from contextlib import suppress

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.invariants import Check, NothingLeft, holds
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task
from simulation.engine.transcript import Record
from simulation.scenarios.cached_locks import KEEP, LONG, data_of, gap, pause
from simulation.scenarios.common import (
    OBSERVER,
    Scenario,
    close_client,
    create_externally,
    finish,
    maybe_timeout,
    processes,
    separate_rng,
    spawn,
    take_from_holders,
    work,
)
from simulation.scenarios.shared_lock import PATH, OneKindHolds, ReadersOrWriter, core_of, granted

from distsync._protocols import steps, wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.cache_revocation import holders_and_waiters
from distsync._protocols.locks.shared_lock import SharedCore
from distsync.errors import DeadlineError, LockLostError, NotHeldError, UpgradeError

#: Delay until a cached listing of the queue shows what other processes did.
EVENT_MS = 100


class Holding(Check):
    """The sides that are held according to the tasks' records. ``ended`` counts the releases."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.ended = 0

    def see(self, world: Simulation, record: Record) -> None:
        key = (record.task, str(record.fields.get("what")))
        if record.event == "granted":
            self.records[key] = record
        elif record.event == "released":
            self.records.pop(key, None)
            self.ended += 1

    def provably_held(self, world: Simulation, since_ms: int = 0) -> set[str]:
        """Return the sides that have been held for at least ``since_ms``."""
        until_ms = world.now_ms - since_ms
        return {what for (_, what), each in self.records.items() if each.at_ms <= until_ms and holds(world, each)}


async def release(world: Simulation, core: SharedCore, owner: object, what: str, linger: float) -> None:
    """Release one side; fail if a loss is reported without a fault."""
    world.record("released", what=what)
    try:
        await Run((core if what == "reader" else core.writer).release(owner, linger > 0))
    except LockLostError as error:
        if not world.faults.injected and not world.tampered and not world.revoked:
            world.fail(f"a loss without a fault: {error}")


async def take(
    world: Simulation, core: SharedCore, owner: object, what: str, linger: float, timeout: float | None = None
) -> bool:
    side, brief = core if what == "reader" else core.writer, timeout is not None and timeout < 0.5
    work = side.acquire(owner, data_of(linger), timeout != 0.0, linger=linger, is_short_wait=brief)
    if not await Run(work, timeout):
        return False
    granted(world, core, owner, what)
    return True


async def read(world: Simulation, core: SharedCore, owner: object, linger: float) -> None:
    """Hold the read lock, sometimes recursively, and sometimes try to upgrade, which must be refused."""
    if not await take(world, core, owner, "reader", linger, maybe_timeout(world)):
        return
    try:
        await Run(work(world))
        world.record("working", what="reader")
        if world.rng.random() < 0.2 and core.deepen(owner):
            await Run(core.release(owner))
        if world.rng.random() < 0.2 and core.reads(owner):
            await upgrade(world, core, owner)
    except LockLostError:
        return
    finally:
        if core.depth(owner) or owner in core.unreported_losses:
            await release(world, core, owner, "reader", linger)
        else:
            world.record("released", what="reader")


async def upgrade(world: Simulation, core: SharedCore, owner: object) -> None:
    with suppress(UpgradeError):
        await Run(core.writer.acquire(owner, b"{}", False), 0.0)
        if core.writer.owner is owner:
            await Run(core.writer.release(owner))


async def write(world: Simulation, core: SharedCore, owner: object, linger: float) -> None:
    """Hold the write lock, and sometimes downgrade."""
    if not await take(world, core, owner, "writer", linger, maybe_timeout(world)):
        return
    reading = False
    try:
        await Run(work(world))
        world.record("working", what="writer")
        if world.rng.random() < 0.3:
            reading = await take(world, core, owner, "reader", linger)
    finally:
        try:
            await release(world, core, owner, "writer", linger)
            if reading:
                await Run(work(world))
        finally:
            if core.depth(owner) or owner in core.unreported_losses:
                await release(world, core, owner, "reader", linger)
            world.record("released", what="reader")


async def thread(world: Simulation, process: SimProcess, linger: float, share: float) -> None:
    """Read or write a few times, with pauses shorter or longer than the lock stays cached."""
    owner, core = object(), core_of(process)
    for _ in range(world.rng.randint(1, 6)):
        await (write if world.rng.random() < share else read)(world, core, owner, linger)
        await Run(pause(world))


async def inspector(world: Simulation, process: SimProcess, holding: Holding) -> None:
    """Inspect the holders a few times; sometimes delete a znode, or revoke the lock."""
    core = core_of(process)
    for _ in range(world.rng.randint(1, 4)):
        await Run(pause(world))
        what = world.rng.random()
        if what < 0.6:
            with suppress(DeadlineError):  # no server is reachable
                await inspect(world, core, holding, world.rng.choice((None, None, 0.0, 2.0)))
        elif what < 0.8:
            delete_contender(world)
        else:
            await revoke(world)


async def inspect(world: Simulation, core: SharedCore, holding: Holding, timeout: float | None) -> None:
    """Check that a side that was held throughout the call is seen."""
    by_copy = world.rng.random() < 0.5
    before, ended = holding.provably_held(world, EVENT_MS if by_copy else 0), holding.ended
    if by_copy:
        seen = {what for what, rule in RULES.items() if await Run(core.is_held(rule), timeout)}
    else:
        found = [path.rpartition("/")[2] for path, _ in await Run(holders_and_waiters(PATH), timeout)]
        front = wait_queue.current_holders(wait_queue.in_order(found))
        seen = {what for what, rule in RULES.items() if any(map(rule, front))}
    held = before & holding.provably_held(world) if ended == holding.ended else set()
    # a downgraded writer may still read by its writer's znode
    if held and not (seen if "reader" in held else "writer" in seen):
        world.fail(f"{held} was held throughout, but {seen} was seen")


RULES = {"writer": wait_queue.is_writer, "reader": lambda each: not wait_queue.is_writer(each)}


def delete_contender(world: Simulation) -> None:
    """Delete the znode of a contender that holds, caches or waits, as an external client."""
    paths = [path for path in world.leftovers() if path.startswith(f"{PATH}/")]
    if paths:
        path = world.rng.choice(sorted(paths))
        stat = world.external_client(steps.Exists(path))
        if stat is not None:
            world.tampered.add(stat.ephemeral_owner)
            world.external_client(steps.Delete(path))


async def revoke(world: Simulation) -> None:
    """Ask the holders, and after a while take the lock from them."""
    rule = world.rng.choice((revocation.any_contender, RULES["reader"], RULES["writer"]))
    try:
        asked = await Run(revocation.request_revocation(PATH, rule))
        left = await Run(revocation.still_held(asked, True), 0.4)
    except NotHeldError:
        return
    await take_from_holders(world, left, True)


def run(world: Simulation) -> None:
    holding = Holding()
    world.checks += [ReadersOrWriter(), OneKindHolds(), NothingLeft(f"{PATH}/"), holding]
    share = world.rng.choice((0.0, 0.1, 0.3, 0.6))
    for process in processes(world, 2, 4):
        linger = world.rng.choice((KEEP, KEEP, KEEP, 1.0, 0.0))
        for _ in range(world.rng.randint(1, 3)):
            spawn(process, thread(world, process, linger, share))
    if world.rng.random() < 0.5:
        spawn(world.process(OBSERVER), inspector(world, world.processes[OBSERVER], holding), name="inspector")
    rng = separate_rng(world, "kept readers")
    if rng.random() < 0.15:
        create_externally(world, PATH, b"of a client that writes there")
    if rng.random() < 0.15:
        core = core_of(process)
        spawn(process, close_client(world, process, lambda: core.cached is not None), name="closer")
    finish(world)


# An idle cache refuses nobody, and writers do not starve


async def read_and_release(world: Simulation, core: SharedCore, owner: object, linger: float) -> None:
    try:
        await Run(work(world))
    finally:
        await release(world, core, owner, "reader", linger)


async def once(world: Simulation, process: SimProcess) -> None:
    owner, core = object(), core_of(process)
    for _ in range(world.rng.randint(1, 3)):
        if await take(world, core, owner, "reader", LONG):
            await read_and_release(world, core, owner, LONG)


async def prober(world: Simulation, process: SimProcess, readers: list[Task], how: str, found: list[bool]) -> None:
    """Inspect or try to write once all readers have finished. Append to ``found`` whether the lock was
    free.
    """
    owner, core = object(), core_of(process)
    while not all(reader.done or not reader.process.alive for reader in readers):
        await Run(pause(world))
    if how == "locked":
        free = not await Run(core.is_held(RULES["reader"]))
    elif how == "holders":
        free = not await Run(holders_and_waiters(PATH))
    elif how == "revoke":
        try:
            free = not await Run(revocation.request_revocation(PATH))
        except NotHeldError:
            free = True
    else:
        timeout = {"try": 0.0, "brief": 0.02, "wait": None}[how]
        free = await take(world, core, owner, "writer", 0.0, timeout)
        if free:
            await release(world, core, owner, "writer", 0.0)
    found.append(free)


def play_idle(world: Simulation) -> None:
    """Check that an idle cache refuses nobody: an attempt succeeds, at least one of several concurrent
    attempts succeeds, and an inspection shows a free lock.
    """
    world.checks += [ReadersOrWriter(), OneKindHolds(), NothingLeft(f"{PATH}/")]
    found: list[bool] = []
    several = world.rng.random() < 0.3
    how = world.rng.choice(("try", "locked", "holders") if several else ("try", "locked", "holders", "revoke", "wait"))
    readers = [spawn(process, once(world, process)) for process in processes(world, 1, 4)]
    for name in "xyz"[: world.rng.randint(2, 3) if several else 1]:
        other = world.process(name)
        spawn(other, prober(world, other, readers, how, found))
    world.run()
    free = any(found) if how == "try" else all(found)
    if not free and not world.faults.injected:
        world.fail(f"the lock is idle, but was refused ({how}): {found}")
    world.close()


async def repeated_reader(world: Simulation, process: SimProcess, writer: SimProcess, over: list[bool]) -> None:
    """Read again and again until the writer has finished."""
    owner, core = object(), core_of(process)
    while not over and writer.alive:
        if await take(world, core, owner, "reader", KEEP):
            await read_and_release(world, core, owner, KEEP)
        await Run(gap(world))


async def waiter(world: Simulation, process: SimProcess, over: list[bool]) -> None:
    owner, core = object(), core_of(process)
    try:
        await Run(pause(world))
        for _ in range(2):
            if await take(world, core, owner, "writer", 0.0):
                await release(world, core, owner, "writer", 0.0)
    finally:
        over.append(True)


def play_fair(world: Simulation) -> None:
    """Check that frequent reads do not starve a writer, in another process or in that of a reader."""
    world.checks += [ReadersOrWriter(), OneKindHolds(), NothingLeft(f"{PATH}/")]
    over: list[bool] = []
    readers = list(processes(world, 1, 3))
    counts = [world.rng.randint(1, 3) for _ in readers]
    writer = world.process("w") if world.rng.random() < 0.6 else readers[0]
    for process, count in zip(readers, counts, strict=True):
        for _ in range(count):
            spawn(process, repeated_reader(world, process, writer, over))
    spawn(writer, waiter(world, writer, over))
    finish(world)


def play_idle_or_fair(world: Simulation) -> None:
    (play_idle if world.seed % 3 else play_fair)(world)


#: Later faults are drawn separately, so that existing seeds keep their schedules.
TOLERATED_FAULTS = ("lost_request", "lost_reply", "cut", "slow", "late_event", "pause")
#: No ``intruder``: a writer whose queue entry is deleted externally notices it when its predecessor
#: releases, and nobody else asks the predecessor to.
LATE_FAULTS = (*LATER_KINDS, *(kind for kind in KINDS if kind not in (*TOLERATED_FAULTS, "intruder")))

CACHED_READERS = Scenario("cached-readers", run)
CACHED_READERS_IDLE = Scenario("cached-readers-idle", play_idle_or_fair, TOLERATED_FAULTS, LATE_FAULTS)
