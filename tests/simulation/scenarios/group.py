"""Group: every view converges to the truth, reported changes are consecutive, and members return after
a loss.
"""

from __future__ import annotations

from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    check_final_reads,
    create_externally,
    finish,
    processes,
    separate_rng,
    spawn,
    work,
)

from distsync._protocols.state.group import GroupCore, Members
from distsync._protocols.steps import Create, Delete
from distsync.errors import DistsyncError

PATH = f"{ROOT}/group/g"
QUOTA = f"/zookeeper/quota{PATH}"
LIMITS = f"{QUOTA}/zookeeper_limits"


def core_of(process: SimProcess) -> GroupCore:
    return process.local(PATH, lambda: GroupCore(PATH))


async def member(world: Simulation, process: SimProcess, left: set[str], stay: dict[str, SimProcess]) -> None:
    """Join once or twice, and leave or stay."""
    core = core_of(process)
    for _ in range(world.rng.randint(1, 2)):
        try:
            name = await Run(core.join(b"{}"))
        except DistsyncError:
            if not has_quota(world):
                raise
            continue
        if name not in await Run(core.view.get()) and not world.faults.injected:
            world.fail(f"{name} does not see itself after it has joined")
        stay[name] = process
        await Run(work(world))
        if world.rng.random() < 0.5:
            del stay[name]
            await Run(core.leave(name))
            left.add(name)
            if name in await Run(core.view.get()):
                world.fail(f"{name} sees itself after it has left")


def has_quota(world: Simulation) -> bool:
    return separate_rng(world, "officer").random() < 0.15


def quota(world: Simulation) -> None:
    """Forbid new members for a while."""
    draws = separate_rng(world, "quota")

    def begins() -> None:
        create_externally(world, LIMITS, b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1")
        world.external_client(Create(f"{QUOTA}/zookeeper_stats"))
        world.clockwork.after(draws.choice((5, 500, 12_000, 30_000)), ends)

    def ends() -> None:
        world.external_client(Delete(LIMITS))
        world.external_client(Delete(f"{QUOTA}/zookeeper_stats"))

    world.clockwork.after(draws.randint(0, 40), begins)


class ListenerLog:
    """The changes reported to one process."""

    def __init__(self, world: Simulation, process: SimProcess) -> None:
        self.world = world
        self.process = process
        self.members: set[str] = set()

    def __call__(self, before: Members, now: Members) -> Any:
        if set(before) != self.members:
            self.world.fail(f"{self.process.name} was notified of a change from {set(before)}, but knew {self.members}")
        self.members = set(now)


def members(world: Simulation) -> set[str]:
    node = world.server.engine.tree.node(PATH)
    return set(node.children) if node else set()


async def seen_by(process: SimProcess) -> set[str]:
    return set(await core_of(process).view.get())


def check_final_state(world: Simulation, logs: list[ListenerLog], left: set[str], stay: dict[str, SimProcess]) -> None:
    check_final_reads(world, "members", seen_by, lambda: members(world))
    truth = members(world)
    for log in logs:
        if log.process.alive and log.members != truth:
            world.fail(f"{log.process.name} was last notified of {log.members}, but the members are {truth}")
    for process in world.processes.values():
        mine = set(core_of(process).mine)
        if process.alive and not mine <= truth:
            world.fail(f"{process.name} considers {mine - truth} members, but they are not")
    missing = {name for name, process in stay.items() if process.alive} - truth
    if missing and not any(each.kind == "intruder" for each in world.faults.injected):
        world.fail(f"{missing} have joined, but did not return")
    if truth & left:
        world.fail(f"{truth & left} have left, but are still members")
    owned = {name for process in world.processes.values() if process.alive for name in core_of(process).mine}
    if truth - owned:
        world.fail(f"{truth - owned} are members that belong to no process")


async def listen(process: SimProcess, log: ListenerLog, logs: list[ListenerLog]) -> None:
    await Run(core_of(process).view.add_listener(log, {}))
    logs.append(log)


def run(world: Simulation) -> None:
    left: set[str] = set()
    stay: dict[str, SimProcess] = {}
    logs: list[ListenerLog] = []
    for process in (*processes(world, 2, 3), world.process(OBSERVER)):
        if process.name == OBSERVER or world.rng.random() < 0.5:
            spawn(process, listen(process, ListenerLog(world, process), logs))
        if process.name != OBSERVER:
            for _ in range(world.rng.randint(1, 2)):
                spawn(process, member(world, process, left, stay))
    if has_quota(world):
        quota(world)
    finish(world, lambda: check_final_state(world, logs, left, stay))


GROUP = Scenario("group", run)
