"""A lock of processes that another process releases: the holder passes it on, and stops being the
holder.

The holder asks the other process to release, so that no third one can hold it then, unless the
holder's session or lease has ended, or a call was interrupted. After such faults a release may hit
the next holder, and a missing release is made by the observer.
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
    processes,
    rescue,
    spawn,
    upset,
    work,
)

from distsync._protocols.locks import cross_process as cross_process_locks
from distsync._protocols.locks.lock import LockCore
from distsync.errors import LockLostError, NotHeldError, ReleasedTooOftenError

PATH = f"{ROOT}/lock/h"

#: Faults that end no session, lease or call.
MILD = ("lost_reply", "lost_request", "lag", "late_event")
is_upset = partial(upset, MILD)


class ExclusiveUntilSessionEnd(Exclusion):
    """At most one holder."""

    def see(self, world: Simulation, record: Record) -> None:
        if not is_upset(world):
            super().see(world, record)


def core_of(process: SimProcess) -> LockCore:
    return process.local(PATH, lambda: LockCore(PATH))


async def holder(world: Simulation, process: SimProcess, givers: list[SimProcess]) -> None:
    """Take the lock several times; another thread releases it."""
    core, owner = core_of(process), object()
    for _ in range(world.rng.randint(1, 3)):
        if not await Run(cross_process_locks.acquire(core, owner, b"", world.rng.random() < 0.7)):
            continue
        grant = core.grant
        if grant is None:
            continue
        place = grant.place
        world.record("granted", what="lock", session_id=place.session_id, token=place.token, loss=grant.loss)
        await Run(work(world))
        world.record("released", what="lock")
        giver = world.rng.choice([giver for giver in givers if giver.alive])
        if giver is process:
            await Run(give_back(world, giver, owner))
        else:
            spawn(giver, give_back(world, giver, object()))
            if world.rng.random() < 0.5:
                await Run(work(world))


async def give_back(world: Simulation, process: SimProcess, owner: object) -> None:
    """Release for the holder. A thread that did not know that its own lock was released gets the error
    first, and has released nothing yet.
    """
    core = core_of(process)
    while True:
        stale = core.grant is not None or bool(core.unreported_losses)
        try:
            if core.grant is not None:  # otherwise a delete whose reply is lost is mistaken for the other's
                await cross_process_locks._check_still_held(core.grant)
            await cross_process_locks.release(core, owner)
            world.record("given back")
            return
        except (LockLostError, NotHeldError, ReleasedTooOftenError) as error:
            if not stale and not world.faults.injected:
                world.fail(f"the lock is held, and cannot be given back: {error}")
            if not stale:
                return


async def give_one(process: SimProcess) -> None:
    """Release it, if it is held."""
    try:
        await Run(cross_process_locks.release(core_of(process), process))
    except (LockLostError, NotHeldError, ReleasedTooOftenError):
        return


def run(world: Simulation) -> None:
    world.checks += [ExclusiveUntilSessionEnd("lock"), NothingLeft(f"{PATH}/", lambda path: is_upset(world))]
    givers = list(processes(world, 2, 3))
    for process in givers:
        spawn(process, holder(world, process, givers))
    rescue(world, is_upset, give_one)
    finish(world, lambda: give_last(world))


def give_last(world: Simulation) -> None:
    """Check that a lock that stayed held can be released by any process."""
    if is_upset(world):
        observer = world.processes[OBSERVER]
        spawn(observer, give_one(observer))
        world.run()
        left = [path for path in world.leftovers() if path.startswith(f"{PATH}/")]
        if left:
            world.fail(f"held, and given back, and still held: {left}")


PASSED_ON = Scenario("passed-on", run)
