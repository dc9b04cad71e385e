"""Semaphores: never more holders than permits, no permit lost; and Semaphore(0), whose permits are used up.

Rules for this file: threads use one core a process, as the faces do.
"""

from __future__ import annotations

from collections.abc import Callable

from distsync.errors import LockLostError, OutcomeUnknownError
from distsync.protocols.kazoo_semaphore import KazooSemaphoreCore
from distsync.protocols.semaphore import SemaphoreCore
from distsync.protocols.signal import SignalCore
from distsync.testing.simulation.calls import Run
from distsync.testing.simulation.checks import Capacity, NothingLeft
from distsync.testing.simulation.process import SimProcess
from distsync.testing.simulation.scenarios.base import (
    OBSERVER,
    ROOT,
    Scenario,
    came_too_late,
    finish,
    maybe_timeout,
    processes,
    receipts,
    sleepers,
    spawn,
    troubled,
    work,
)
from distsync.testing.simulation.world import World

PATH = f"{ROOT}/semaphore/s"


# Semaphore(n)


Leases = SemaphoreCore | KazooSemaphoreCore
Make = Callable[[SimProcess, int], Leases]


def ours(process: SimProcess, permits: int) -> Leases:
    return SemaphoreCore(PATH, permits, receipts(process))


def kazoos(process: SimProcess, permits: int) -> Leases:
    return KazooSemaphoreCore(PATH, permits)


async def holder(world: World, process: SimProcess, permits: int, make: Make) -> None:
    """Takes a permit some times, as a ``with`` block does."""
    core = process.local(PATH, lambda: make(process, permits))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        grant = await Run(core.acquire(b"", timeout != 0.0), timeout)
        if grant is None:
            continue
        world.record("granted", what="permit", session_id=grant.place.session_id, loss=grant.loss)
        try:
            await Run(work(world))
            world.record("working", what="permit")
        finally:
            world.record("released", what="permit")
            await Run(give_back(world, core))


async def give_back(world: World, core: Leases) -> None:
    """A loss is told of at the release, and never without a reason."""
    try:
        await core.release()
    except LockLostError as error:
        if not world.faults.struck:
            world.fail(f"a loss without a fault: {error}")


def play_semaphore(world: World, make: Make = ours) -> None:
    permits = world.rng.randint(1, 3)
    world.checks += [Capacity("permit", permits), NothingLeft(f"{PATH}/"), NothingLeft(f"{PATH}-__lock__/")]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, holder(world, process, permits, make))
    finish(world, lambda: count_free(world, permits, make))


def count_free(world: World, permits: int, make: Make) -> None:
    """All permits are free at the end."""
    counted = world.process(OBSERVER)
    counting = counted.spawn(make(counted, permits).value())
    world.run(lambda: counting.done)
    if counting.result != permits:
        world.fail(f"{counting.result} permits are free at the end, not {permits}")


# Semaphore(0)


async def taker(world: World, process: SimProcess, takes: int) -> None:
    """Uses up some permits."""
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


async def giver(world: World, process: SimProcess, gives: int) -> None:
    """Adds some permits."""
    core = process.local(PATH, lambda: SignalCore(PATH, receipts(process)))
    for _ in range(gives):
        count = world.rng.randint(1, 2)
        world.record("giving", count=count)
        await Run(core.release(count))
        world.record("given", count=count)
        await Run(work(world))


def play_signal(world: World) -> None:
    givers = [world.process(name) for name in ("g", "h")]
    for process in givers:
        spawn(process, giver(world, process, world.rng.randint(1, 3)))
    for process in processes(world, 1, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, taker(world, process, 2), daemon=True)
    world.run()
    count_permits(world)
    world.close()


def count_permits(world: World) -> None:
    """Permits are neither lost nor doubled, and nobody sleeps while there are some."""
    history = world.history
    left = sum(path.startswith(f"{PATH}/permits/") for path in world.leftovers())
    taken, given = len(history.events("taken")), sum(record.count for record in history.events("given"))
    begun = sum(record.count for record in history.events("giving"))
    answered = len(history.events("taken")) + len(history.events("not taken"))
    open_calls = len(history.events("taking")) - answered
    unsure = open_calls if any(troubled(world, process) for process in world.processes.values()) else 0
    unsure += came_too_late(world, "not taken")
    if taken + left > begun:
        world.fail(f"{begun} permits were given, {taken} taken, and {left} are left: some were doubled")
    if taken + left + unsure < given:
        world.fail(f"{given} permits were given, {taken} taken, and {left} are left: some were lost")
    waiting = sleepers(world)
    if left and waiting:
        world.fail(f"{', '.join(waiting)} sleep while {left} permits are there")


SEMAPHORE = Scenario("semaphore", play_semaphore)
KAZOO_SEMAPHORE = Scenario("kazoo-semaphore", lambda world: play_semaphore(world, kazoos))
SIGNAL = Scenario("signal", play_signal)
