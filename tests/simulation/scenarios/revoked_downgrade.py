"""Revocation of a shared lock whose writers also read and downgrade: a revoker finds every holder.

Whether a revocation is complete is judged by the server's tree.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import OBSERVER, Scenario, processes, spawn, take_from_holders
from simulation.scenarios.shared_lock import PATH, ReadersOrWriter, core_of, granted

from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import Grant
from distsync._protocols.locks.shared_lock import SharedCore
from distsync._protocols.steps import Wait
from distsync.errors import LockLostError, NotHeldError


def grant_of(core: SharedCore, owner: object, what: str) -> Grant | None:
    share = core.share_of(owner)
    return (share.grant if share else None) if what == "reader" else core.writer.grant


async def holder(world: Simulation, process: SimProcess) -> None:
    """Acquire as writer and as reader, hold both until asked or for a while, then do the same as
    reader only.
    """
    owner, core = object(), core_of(process)
    for _ in range(world.rng.randint(1, 2)):
        if not await Run(core.writer.acquire(owner, b'{"pid":1}')):
            continue
        granted(world, core, owner, "writer")
        try:
            try:
                if await Run(core.acquire(owner, b'{"pid":1}')):
                    granted(world, core, owner, "reader")
                await Run(until_asked(world, core, owner, "writer"))
            finally:
                await release(world, core, owner, "writer")
            await Run(until_asked(world, core, owner, "reader"))
        finally:
            await release(world, core, owner, "reader")


async def until_asked(world: Simulation, core: SharedCore, owner: object, what: str) -> None:
    grant = grant_of(core, owner, what)
    if grant is None:
        return
    heeds = world.rng.random() < 0.6
    if heeds:
        await revocation.watch_revocation(grant, reads=what == "reader")
    await Wait(grant.loss, *([grant.revoke_requested] if heeds else []), limit=world.rng.choice((0.01, 0.5, 3.0)))


async def release(world: Simulation, core: SharedCore, owner: object, what: str) -> None:
    world.record("released", what=what)
    try:
        await Run((core if what == "reader" else core.writer).release(owner))
    except (LockLostError, NotHeldError) as error:  # the thread may have been interrupted before it became a reader
        if not world.faults.injected and not world.tampered and not world.revoked:
            world.fail(f"a loss without a fault: {error}")


async def revoker(world: Simulation, holders: list[SimProcess]) -> None:
    """Revoke the lock repeatedly while a task of a holder is left."""
    while any(task for each in holders for task in each.tasks if not task.done and not task.background):
        try:
            asked = await Run(revocation.request_revocation(PATH))
        except NotHeldError:
            await Run(pause())
            continue
        left = await Run(revocation.still_held(asked, True), world.rng.choice((0.0, 0.02, 0.5, 2.0)))
        await take_from_holders(world, left, True)
        check_deleted(world, asked)


async def pause() -> None:
    await Wait(limit=0.2)


def check_deleted(world: Simulation, asked: list[str]) -> None:
    """Check that no znode of a revoked holder is left, and none that replaces it, which has the same
    number.
    """
    names = [path.rpartition("/")[2] for path in (*asked, *world.leftovers()) if path.startswith(f"{PATH}/")]
    numbers = [each.number for each in wait_queue.in_order(names)]
    again = sorted(number for number in set(numbers) if numbers.count(number) > 1)
    still = [path for path in asked if path in world.leftovers()]
    if again or still:
        world.fail(f"the lock was revoked from {asked}, but znodes of {again or still} remain")


def run(world: Simulation) -> None:
    world.checks += [ReadersOrWriter(), NothingLeft(f"{PATH}/")]
    holders = list(processes(world, 2, 3))
    for process in holders:
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, holder(world, process))
    for name in ("revoker", OBSERVER)[world.rng.randint(0, 1) :]:
        spawn(world.process(name), revoker(world, holders))
    world.run()
    world.close()


REVOKED_DOWNGRADE = Scenario("revoked-downgrade", run)
