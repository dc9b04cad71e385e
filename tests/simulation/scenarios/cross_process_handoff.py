"""A lock of processes that another one gives back: the holder passes it on, and is not the holder any more.

Rules for this file: threads use one core a process, as the faces do. Whoever gives back has been told to by the holder,
so that nobody else can hold then, unless the holder's session or lease has ended, or somebody was interrupted: after
such faults a release may meet the next holder, and one that was not made is made by who looks.
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

#: No session or lease ends by these, and no call.
MILD = ("lost_reply", "lost_request", "lag", "late_event")
is_upset = partial(upset, MILD)


class ExclusiveUntilSessionEnd(Exclusion):
    """One holder at most."""

    def see(self, world: Simulation, record: Record) -> None:
        if not is_upset(world):
            super().see(world, record)


def core_of(process: SimProcess) -> LockCore:
    return process.local(PATH, lambda: LockCore(PATH))


async def holder(world: Simulation, process: SimProcess, givers: list[SimProcess]) -> None:
    """Takes the lock some times; somebody gives it back for him."""
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
    """Who did not know that his own was given back is told so first, and has given nothing back yet."""
    core = core_of(process)
    while True:
        stale = core.grant is not None or bool(core.unreported_losses)
        try:
            if core.grant is not None:  # else a delete whose answer is lost is taken for the other's
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
    """If somebody holds it."""
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
    """What stayed held can be given back by anybody."""
    if is_upset(world):
        observer = world.processes[OBSERVER]
        spawn(observer, give_one(observer))
        world.run()
        left = [path for path in world.leftovers() if path.startswith(f"{PATH}/")]
        if left:
            world.fail(f"held, and given back, and still held: {left}")


PASSED_ON = Scenario("passed-on", run)
