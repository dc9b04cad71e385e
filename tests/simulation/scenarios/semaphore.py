"""Semaphores: never more holders than permits, and no permit is lost; and Semaphore(0), whose permits
are consumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Capacity, Check, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    LastNumbers,
    Scenario,
    finish,
    is_disrupted,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    sleepers,
    spawn,
    unsettled_calls,
    work,
)

from distsync._protocols.semaphores.consumable import SignalCore
from distsync._protocols.semaphores.foreign_layouts import CuratorSemaphoreCore, KazooSemaphoreCore, PoolSemaphoreCore
from distsync._protocols.semaphores.leases import EXTRA, SemaphoreCore
from distsync.errors import LockLostError, OutcomeUnknownError, OverReleaseError

PATH = f"{ROOT}/semaphore/s"


# Semaphore(n)


Leases = SemaphoreCore | PoolSemaphoreCore
Make = Callable[[SimProcess, int], Leases]


def distsync_core(process: SimProcess, permits: int) -> Leases:
    return SemaphoreCore(PATH, permits, receipts(process))


def kazoo_core(process: SimProcess, permits: int) -> Leases:
    return KazooSemaphoreCore(PATH, permits)


def curator_core(process: SimProcess, permits: int) -> Leases:
    return CuratorSemaphoreCore(PATH, permits)


async def holder(world: Simulation, process: SimProcess, permits: int, bound: int | None, make: Make) -> None:
    """Acquire a permit once or twice, as a ``with`` block does."""
    core, owner = process.local(PATH, lambda: make(process, permits)), object()
    until = separate_rng(world, process.name).choice((None, None, 0.0, 1.0))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        grant = await Run(core.acquire(b"", timeout != 0.0, owner, bound), timeout)
        if grant is None:
            continue
        world.record("granted", what="permit", session_id=grant.entry.session_id, loss=grant.loss)
        try:
            await Run(work(world))
            world.record("working", what="permit")
        finally:
            world.record("released", what="permit")
            await Run(release(world, core, bound, owner), until)


async def release(world: Simulation, core: Leases, bound: int | None, owner: object) -> None:
    """Release the permit; fail on a loss without a fault, or on an over-release without a stranger."""
    try:
        await core.release(1, bound, owner=owner)
    except LockLostError as error:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")
    except OverReleaseError:
        if not world.history.events("adding"):
            world.fail("a release after an acquire was rejected as one too many")
        world.record("one too many")


async def stranger(world: Simulation, process: SimProcess, permits: int, bound: int | None, count: int) -> None:
    """Release permits that were never acquired."""
    core = process.local(PATH, lambda: SemaphoreCore(PATH, permits, receipts(process)))
    await Run(work(world))
    world.record("adding", count=count)
    try:
        await Run(core.release(count, bound))
    except OverReleaseError:
        world.record("refused", count=count)
    except OutcomeUnknownError:
        world.record("unknown")
    else:
        world.record("added", count=count)


class Bounded(Check):
    """Check that there are never more free permits than initially, and that none is added that would
    exceed this bound.

    After a fault, the permit of a killed holder, or of a call that ended before it knew its place
    in the queue, becomes free, even if a stranger has released it before.
    """

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self.extra = 0
        self.leases: set[str] = set()
        self.deaths = 0

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is None:
            return
        leases = {name for name in node.children if "-lock-" in name}
        extra = json.loads(node.data or b"")["extra"]
        free = max(0, self.permits + self.extra - len(leases))
        if extra > self.extra and free + extra - self.extra > self.permits + self.deaths:
            world.fail(
                f"{extra - self.extra} permits were added when {free} were free, but the bound is {self.permits}"
            )
        self.extra = extra
        deleted = self.leases - leases
        if world.faults.injected:
            self.deaths += len(deleted)
        self.leases = leases
        free = self.permits + extra - len(leases)
        if free > self.permits + self.deaths:
            world.fail(f"{free} permits are free, but the bound is {self.permits}")


class ExtraKept(Check):
    """Check that the server does not delete the container while there are extra permits, and does so otherwise."""

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is not None and (EXTRA in node.children) != (json.loads(node.data or b"")["extra"] > 0):
            world.fail(f"{node.data!r} has the children {sorted(node.children)}")


def play_pool(make: Make, lock_path: str, world: Simulation) -> None:
    permits = world.rng.randint(1, 3)
    world.checks += [Capacity("permit", permits), NothingLeft(f"{lock_path}/")]
    play_holders(world, permits, None, make)
    finish(world, lambda: count_free(world, permits, None, make))


def play_semaphore(world: Simulation) -> None:
    """Play a BoundedSemaphore, or a semaphore to which strangers add permits."""
    rng = world.rng
    permits, strangers = rng.randint(1, 3), rng.choice((0, 0, 1, 2))
    bound = permits if rng.random() < 0.5 else None
    counts = [rng.choice((1, 1, 2, 3)) for _ in range(strangers)]
    world.checks += [Capacity("permit", permits + sum(counts)), LastNumbers(world, PATH), ExtraKept()]
    if bound is not None:
        world.checks.append(Bounded(permits))
    play_holders(world, permits, bound, distsync_core)
    for number, count in enumerate(counts):
        process = world.process(f"s{number}")
        spawn(process, stranger(world, process, permits, bound, count))
    finish(world, lambda: count_free(world, permits, bound, distsync_core))


def play_holders(world: Simulation, permits: int, bound: int | None, make: Make) -> None:
    root = f"{PATH}/leases/" if make is curator_core else f"{PATH}/"
    world.checks.append(NothingLeft(root, lambda path: path == f"{PATH}/{EXTRA}"))
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, holder(world, process, permits, bound, make))


def count_free(world: Simulation, permits: int, bound: int | None, make: Make) -> None:
    """Check that all permits, and those that strangers added, are free at the end."""
    counted = world.processes.get(OBSERVER) or world.process(OBSERVER)
    counting = counted.spawn(make(counted, permits).value())
    world.run(lambda: counting.done)
    free, events = counting.result, world.history.events
    adding, added, refused = (sum(each.count for each in events(name)) for name in ("adding", "added", "refused"))
    unsure = adding - added - refused
    if bound is None and not permits + added <= free <= permits + added + unsure:
        world.fail(f"{free} permits are free at the end, not {permits} and the {added} added")
    if bound is not None and not permits <= free <= permits + added + unsure:
        world.fail(f"{free} permits are free at the end, not {permits}")


# Semaphore(0)


async def taker(world: Simulation, process: SimProcess, takes: int) -> None:
    """Consume some permits."""
    core = process.local(PATH, lambda: SignalCore(PATH, receipts(process)))
    for _ in range(takes):
        timeout = maybe_timeout(world)
        world.record("taking", what="signal")
        try:
            taken = await Run(core.acquire(b"", timeout != 0.0), timeout)
        except OutcomeUnknownError:
            world.record("unknown", what="signal")
            continue
        world.record("taken" if taken else "not taken", what="signal")


async def giver(world: Simulation, process: SimProcess, gives: int) -> None:
    """Add some permits."""
    core = process.local(PATH, lambda: SignalCore(PATH, receipts(process)))
    for _ in range(gives):
        count = world.rng.randint(1, 2)
        world.record("giving", count=count)
        await Run(core.release(count))
        world.record("given", count=count)
        await Run(work(world))


def play_signal(world: Simulation) -> None:
    givers = [world.process(name) for name in ("g", "h")]
    for process in givers:
        spawn(process, giver(world, process, world.rng.randint(1, 3)))
    for process in processes(world, 1, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, taker(world, process, 2), daemon=True)
    world.run()
    count_permits(world)
    world.close()


def count_permits(world: Simulation) -> None:
    """Check that permits are neither lost nor duplicated, and that nobody waits while there are some."""
    history = world.history
    left = sum(path.startswith(f"{PATH}/permits/") for path in world.leftovers())
    taken, given = len(history.events("taken")), sum(record.count for record in history.events("given"))
    begun = sum(record.count for record in history.events("giving"))
    answered = len(history.events("taken")) + len(history.events("not taken"))
    open_calls = len(history.events("taking")) - answered
    unsure = open_calls if any(is_disrupted(world, process) for process in world.processes.values()) else 0
    unsure += unsettled_calls(world)
    if taken + left > begun:
        world.fail(f"{begun} permits were given, {taken} taken, and {left} are left: some were duplicated")
    if taken + left + unsure < given:
        world.fail(f"{given} permits were given, {taken} taken, and {left} are left: some were lost")
    waiting = sleepers(world)
    if left and waiting:
        world.fail(f"{', '.join(waiting)} wait while {left} permits are available")


SEMAPHORE = Scenario("semaphore", play_semaphore)
KAZOO_SEMAPHORE = Scenario("kazoo-semaphore", partial(play_pool, kazoo_core, f"{PATH}-__lock__"))
CURATOR_SEMAPHORE = Scenario("curator-semaphore", partial(play_pool, curator_core, f"{PATH}/locks"))
SIGNAL = Scenario("signal", play_signal)
