"""Shared locks: a writer that also reads releases both sides while it waits for a notification, and
holds both again afterwards.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import LastNumbers, Scenario, finish, processes, spawn, work
from simulation.scenarios.shared_lock import (
    PATH,
    OneKindHolds,
    ReadersOrWriter,
    cache_seconds,
    core_of,
    granted,
    read,
    release,
    write,
)

from distsync._protocols.locks.shared_lock import SharedCore
from distsync._protocols.steps import Wait
from distsync.errors import LockLostError


async def wait(world: Simulation, core: SharedCore, owner: object) -> None:
    """Release both sides, wait, and acquire both, as ``_release_save`` and ``_acquire_restore`` do."""
    reads = core.depth(owner)
    world.record("released", what="reader")
    world.record("released", what="writer")
    try:
        await Run(core.writer.suspend(owner), world.rng.choice((None, 10.0, 0.0)))
    except LockLostError as error:
        if not world.faults.injected and not world.tampered:
            world.fail(f"a loss without a fault: {error}")
        return
    if core.reads(owner) or core.writer.owner is owner:
        world.fail("it still holds a side")
    await Run(pause())
    await Run(core.writer.acquire(owner, b"", linger=cache_seconds(world)))
    granted(world, core, owner, "writer")
    if reads:
        await Run(core.resume_reads(owner, b"", reads))
        granted(world, core, owner, "reader")
    if core.depth(owner) != reads and not (core.writer.loss_of(owner) or owner in core.unreported_losses):
        world.fail(f"it reads {core.depth(owner)} times after a wait, not {reads} times")


async def pause() -> None:
    await Wait(limit=0.4)


async def waiter(world: Simulation, core: SharedCore, owner: object) -> None:
    await Run(core.writer.acquire(owner, b"", linger=cache_seconds(world)))
    granted(world, core, owner, "writer")
    try:
        for _ in range(world.rng.randint(0, 2)):
            await Run(core.acquire(owner, b""))
            granted(world, core, owner, "reader")
        await Run(work(world))
        await wait(world, core, owner)
        await Run(work(world))
    finally:  # also what an interrupted wait has left
        await release_held(world, core, owner)


async def release_held(world: Simulation, core: SharedCore, owner: object) -> None:
    """Release both sides as often as they are held, in any order, even if one release is interrupted."""
    sides = []
    if core.writer.owner is owner or core.writer.loss_of(owner):
        sides.append("writer")
    if core.depth(owner) or owner in core.unreported_losses:
        sides.append("reader")
    if not sides:
        return
    try:
        await release(world, core, owner, world.rng.choice(sides))
    except KeyboardInterrupt:
        await release_held(world, core, owner)
        raise
    await release_held(world, core, owner)


async def thread(world: Simulation, process: SimProcess) -> None:
    owner, core = object(), core_of(process)
    for _ in range(world.rng.randint(1, 3)):
        kind = world.rng.random()
        if kind < 0.5:
            await waiter(world, core, owner)
        elif kind < 0.75:
            await write(world, core, owner, process.name)
        else:
            await read(world, core, owner)


def play(world: Simulation) -> None:
    world.checks += [ReadersOrWriter(), OneKindHolds(), NothingLeft(f"{PATH}/"), LastNumbers(world, PATH)]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 3)):
            spawn(process, thread(world, process))
    finish(world)


SHARED_WAIT = Scenario("shared-wait", play)
