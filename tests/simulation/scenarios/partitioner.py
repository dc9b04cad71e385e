"""Partitioner: no share is held twice, and in the end all are held, spread evenly.

There is one member per process. It holds a share from one call to the next, as a user's program
does.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    check_final_reads,
    finish,
    processes,
    separate_rng,
    spawn,
)

from distsync._protocols.state.partitioner import Callbacks, PartitionerCore, share_of
from distsync._protocols.steps import Wait
from distsync.errors import DeadlineError

PATH = f"{ROOT}/partition/p"
SHARES = frozenset("abcde")

#: Seconds of a call; None for no limit.
TIMEOUTS = (None, None, None, 0.0, 0.1, 1.0)


def core_of(process: SimProcess) -> PartitionerCore:
    return process.local(PATH, lambda: PartitionerCore(PATH, SHARES))


def acquired(world: Simulation, process: SimProcess, share: str, token: int) -> None:
    grant = core_of(process).held[share]
    world.record("granted", what=share, session_id=grant.entry.session_id, token=token, loss=grant.loss)


def released(world: Simulation, share: str, token: int) -> None:
    world.record("released", what=share)


async def member(world: Simulation, process: SimProcess) -> None:
    """Join for a while, or to the end."""
    await Run(pause(world))
    core, callbacks = core_of(process), Callbacks(partial(acquired, world, process), partial(released, world))
    if separate_rng(world, process.name).random() < 0.3:
        spawn(process, join(world, process, callbacks), name="twin")
    await join(world, process, callbacks)
    await Run(pause(world))
    if world.rng.random() < 0.4:
        with suppress(DeadlineError):
            await Run(core.leave(), separate_rng(world, f"{process.name} leaves").choice(TIMEOUTS))


async def join(world: Simulation, process: SimProcess, callbacks: Callbacks) -> None:
    """Join. After a deadline this process is no member, or leaves in the background."""
    with suppress(DeadlineError):
        timeout = separate_rng(world, f"{process.name} joins").choice(TIMEOUTS)
        await Run(core_of(process).join(b"{}", callbacks), timeout)


async def pause(world: Simulation) -> None:
    await Wait(limit=world.rng.randint(0, 300) / 1000)


def children(world: Simulation, folder: str) -> set[str]:
    node = world.server.engine.tree.node(f"{PATH}/{folder}")
    return set(node.children) if node else set()


async def members_seen_by(process: SimProcess) -> set[str]:
    return set(await core_of(process).group.view.get())


async def claims_seen_by(process: SimProcess) -> set[str]:
    return set(await core_of(process).claims.get())


def check_final_state(world: Simulation) -> None:
    check_final_reads(world, "members", members_seen_by, lambda: children(world, "members"))
    check_final_reads(world, "claims", claims_seen_by, lambda: children(world, "claims"))
    cores = [core_of(process) for process in world.processes.values() if process.alive]
    joined = [core for core in cores if core.member is not None]
    node = world.server.engine.tree.node(f"{PATH}/claims")
    claims = [share_of(name) for name in node.children] if node else []
    held = [share for core in joined for share in core.held]
    if joined and (set(held) != SHARES or sorted(claims) != sorted(SHARES) or len(held) != len(SHARES)):
        world.fail(f"{sorted(held)} are held, but {sorted(claims)} are claimed")
    counts = [len(core.held) for core in joined]
    if joined and max(counts) - min(counts) > 1:
        world.fail(f"the members hold {counts}")


def run(world: Simulation) -> None:
    world.checks += [Exclusion(share) for share in sorted(SHARES)]
    for process in processes(world, 2, 4):
        spawn(process, member(world, process))
    finish(world, lambda: check_final_state(world))


PARTITION = Scenario("partitioner", run)
