"""Lock and RLock: mutual exclusion across processes and threads, increasing tokens, no leftover
znodes.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    LastNumbers,
    Scenario,
    finish,
    maybe_timeout,
    processes,
    spawn,
    work,
)

from distsync._protocols.locks.lock import LockCore
from distsync.errors import LockLostError

PATH = f"{ROOT}/lock/l"


async def thread(world: Simulation, process: SimProcess, depth: int) -> None:
    """Acquire the lock once or twice, as a ``with`` block does."""
    owner = object()
    core = process.local(PATH, lambda: LockCore(PATH))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        if await Run(core.acquire(owner, b"", timeout != 0.0), timeout):
            await hold(world, core, owner, depth)


async def hold(world: Simulation, core: LockCore, owner: object, depth: int) -> None:
    """Hold the lock while working at each recursion depth, then release it."""
    grant = core.grant
    if grant is not None:
        entry = grant.entry
        world.record("granted", what="lock", session_id=entry.session_id, token=entry.token, loss=grant.loss)
    try:
        await work_recursively(world, core, owner, depth)
    finally:
        world.record("released", what="lock")
        await Run(release(world, core, owner))


async def work_recursively(world: Simulation, core: LockCore, owner: object, depth: int, level: int = 1) -> None:
    """Work inside of ``depth`` nested ``with`` blocks of an RLock, of which the caller is in the one at
    ``level``: the innermost works first.

    As in the public class, nested acquires and releases only count, unless the lock is lost.
    """
    check_depth(world, core, owner, level)
    if level < depth:
        if owns(core, owner):
            core.depth += 1
        try:
            await work_recursively(world, core, owner, depth, level + 1)
        finally:
            if owns(core, owner) and core.depth > 1:
                core.depth -= 1
        check_depth(world, core, owner, level)
    await Run(work(world))
    world.record("working", what="lock")


def check_depth(world: Simulation, core: LockCore, owner: object, level: int) -> None:
    if owns(core, owner) and core.depth != level:
        world.fail(f"the recursion depth is {core.depth}, but {level} acquires were not released")


def owns(core: LockCore, owner: object) -> bool:
    """Return whether ``owner`` holds the lock, as far as this process knows."""
    return core.owner is owner and core.grant is not None and not core.grant.loss.fired


async def release(world: Simulation, core: LockCore, owner: object) -> None:
    """Release the lock; fail if a loss is reported without a fault."""
    try:
        await core.release(owner)
    except LockLostError as error:
        world.record("lost")
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")


def run(world: Simulation, depth: int) -> None:
    world.checks += [Exclusion("lock"), NothingLeft(f"{PATH}/"), LastNumbers(world, PATH)]
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, thread(world, process, depth))
    finish(world)


LOCK = Scenario("lock", lambda world: run(world, 1))
RLOCK = Scenario("rlock", lambda world: run(world, 2))
