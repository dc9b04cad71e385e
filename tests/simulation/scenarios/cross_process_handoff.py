"""A lock that another process releases: it is handed on, and the former holder does not hold it any
more.

A process releases only at the request of the holder, so that no other process can hold the lock at
that moment. After a session or lease has ended, or a call was interrupted, a release may hit the
next holder, and the observer makes up for a release that is missing.
"""

from __future__ import annotations

from functools import partial

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    finish,
    is_disturbed_beyond,
    processes,
    rescue,
    spawn,
    work,
)

from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.locks.lock import LockCore
from distsync.errors import LockLostError, NotHeldError, ReleasedTooOftenError

PATH = f"{ROOT}/lock/h"

#: Faults that end no session, lease or call.
MILD = ("lost_reply", "lost_request", "lag", "late_event")
is_disturbed = partial(is_disturbed_beyond, MILD)


class ExclusiveUntilSessionEnd(Exclusion):
    """At most one holder, until a more severe fault is injected."""

    def see(self, world: Simulation, record: Record) -> None:
        if not is_disturbed(world):
            super().see(world, record)


def core_of(process: SimProcess) -> LockCore:
    return process.local(PATH, lambda: LockCore(PATH))


async def holder(world: Simulation, process: SimProcess, releasers: list[SimProcess]) -> None:
    """Acquire the lock a few times, and let a process drawn at random release it."""
    core, owner = core_of(process), object()
    for _ in range(world.rng.randint(1, 3)):
        if not await Run(multiprocessing_lock.acquire(core, owner, b"", world.rng.random() < 0.7)):
            continue
        grant = core.grant
        if grant is None:
            continue
        entry = grant.entry
        world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)
        await Run(work(world))
        world.record("released", what="lock")
        releaser = world.rng.choice([releaser for releaser in releasers if releaser.alive])
        if releaser is process:
            await Run(release(world, releaser, owner))
        else:
            spawn(releaser, release(world, releaser, object()))
            if world.rng.random() < 0.5:
                await Run(work(world))


async def release(world: Simulation, process: SimProcess, owner: object) -> None:
    """Release the lock, again if the first attempt only reported that this process's own grant had
    been released.
    """
    core = core_of(process)
    while True:
        stale = core.grant is not None or bool(core.unreported_losses)
        try:
            if core.grant is not None:  # otherwise a delete whose reply is lost is taken for the other process's
                await multiprocessing_lock._check_still_held(core.grant)
            await multiprocessing_lock.release(core, owner)
            world.record("handed on")
            return
        except (LockLostError, NotHeldError, ReleasedTooOftenError) as error:
            if not stale and not world.faults.injected:
                world.fail(f"the lock is held, but its release failed: {error}")
            if not stale:
                return


async def release_one(process: SimProcess) -> None:
    """Release the lock if it is held."""
    try:
        await Run(multiprocessing_lock.release(core_of(process), process))
    except (LockLostError, NotHeldError, ReleasedTooOftenError):
        return


def run(world: Simulation) -> None:
    world.checks += [ExclusiveUntilSessionEnd("lock"), NothingLeft(f"{PATH}/", lambda path: is_disturbed(world))]
    releasers = list(processes(world, 2, 3))
    for process in releasers:
        spawn(process, holder(world, process, releasers))
    rescue(world, is_disturbed, release_one)
    finish(world, lambda: check_releasable(world))


def check_releasable(world: Simulation) -> None:
    """Check that any process can release a lock that stayed held."""
    if is_disturbed(world):
        observer = world.processes[OBSERVER]
        spawn(observer, release_one(observer))
        world.run()
        left = [path for path in world.leftovers() if path.startswith(f"{PATH}/")]
        if left:
            world.fail(f"released, but still held: {left}")


CROSS_PROCESS_HANDOFF = Scenario("cross-process-handoff", run)
