"""Partitioner: no share is held twice, and in the end all are held, evenly.

There is one member per process; it holds a share from one callback to the other, as a user's
program would.
"""

from __future__ import annotations

from functools import partial

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Exclusion
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    apart,
    everybody_sees,
    finish,
    processes,
    spawn,
)

from distsync._protocols.state.partitioner import Callbacks, PartitionerCore, share_of
from distsync._protocols.steps import Wait

PATH = f"{ROOT}/partition/p"
SHARES = frozenset("abcde")


def core_of(process: SimProcess) -> PartitionerCore:
    return process.local(PATH, lambda: PartitionerCore(PATH, SHARES))


def acquired(world: Simulation, process: SimProcess, share: str, token: int) -> None:
    grant = core_of(process).held[share]
    world.record("granted", what=share, session_id=grant.place.session_id, token=token, loss=grant.loss)


def released(world: Simulation, share: str, token: int) -> None:
    world.record("released", what=share)


async def member(world: Simulation, process: SimProcess) -> None:
    """Take part for a while, or to the end."""
    await Run(pause(world))
    core, callbacks = core_of(process), Callbacks(partial(acquired, world, process), partial(released, world))
    if apart(world, process.name).random() < 0.3:
        spawn(process, twin(process, callbacks), name="twin")
    await Run(core.join(b"{}", callbacks))
    await Run(pause(world))
    if world.rng.random() < 0.4:
        await Run(core.leave())


async def twin(process: SimProcess, callbacks: Callbacks) -> None:
    """Another thread, which joins at the same time."""
    await Run(core_of(process).join(b"{}", callbacks))


async def pause(world: Simulation) -> None:
    await Wait(limit=world.rng.randint(0, 300) / 1000)


def children(world: Simulation, folder: str) -> set[str]:
    node = world.server.engine.tree.node(f"{PATH}/{folder}")
    return set(node.children) if node else set()


async def members_seen_by(process: SimProcess) -> set[str]:
    return set(await core_of(process).group.view.get())


async def claims_seen_by(process: SimProcess) -> set[str]:
    return set(await core_of(process).claims.get())


def look_at_the_end(world: Simulation) -> None:
    everybody_sees(world, "members", members_seen_by, lambda: children(world, "members"))
    everybody_sees(world, "claims", claims_seen_by, lambda: children(world, "claims"))
    cores = [core_of(process) for process in world.processes.values() if process.alive]
    there = [core for core in cores if core.member is not None]
    node = world.server.engine.tree.node(f"{PATH}/claims")
    claims = [share_of(name) for name in node.children] if node else []
    held = [share for core in there for share in core.held]
    if there and (set(held) != SHARES or sorted(claims) != sorted(SHARES) or len(held) != len(SHARES)):
        world.fail(f"{sorted(held)} are held, and {sorted(claims)} claimed")
    counts = [len(core.held) for core in there]
    if there and max(counts) - min(counts) > 1:
        world.fail(f"the members hold {counts}")


def run(world: Simulation) -> None:
    world.checks += [Exclusion(share) for share in sorted(SHARES)]
    for process in processes(world, 2, 4):
        spawn(process, member(world, process))
    finish(world, lambda: look_at_the_end(world))


PARTITION = Scenario("partition", run)
