"""Generation: no member ever sees what an earlier generation left, and none loses what it uses.

The generations are judged by the server's tree: one ends when no member is left.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import ROOT, Scenario, finish, processes, spawn, work

from distsync._protocols.retries import INTERRUPTED, ensure
from distsync._protocols.state.module_generation import MEMBER, OBJECTS, SWEEP, GenerationCore
from distsync._protocols.steps import Connected, Create
from distsync.errors import NodeExistsError, NoNodeError

PATH = f"{ROOT}/module/m"
QUEUE = f"{PATH}/{OBJECTS}/queue"

#: Virtual seconds after which all that a killed process has sent has arrived.
ARRIVED_MS = 5_000


class DeadProcesses:
    """Tells which processes provably do not run, a while after they were killed, in some schedules."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.knows = world.rng.random() < 0.5
        self.killed_at: dict[str, int] = {}

    def __call__(self, name: str) -> bool:
        if not self.knows or self.world.processes[name].alive:
            return False
        return self.world.now_ms - self.killed_at.setdefault(name, self.world.now_ms) > ARRIVED_MS


class Fresh(Check):
    """Check the objects in the tree: those of an earlier generation, and those of members."""

    def __init__(self) -> None:
        self.items: set[str] = set()
        self.members: set[str] = set()
        self.old: set[str] = set()

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        node, queue = tree.node(PATH), tree.node(QUEUE)
        children = set(node.children) if node else set()
        items = set(queue.children) if queue else set()
        members = {each[len(MEMBER) :] for each in children if each.startswith(MEMBER)}
        for lost in self.items - items:
            if owner_of(lost) in self.members & members:
                world.fail(f"{lost} was deleted although its process is a member")
        if not self.members & members:
            self.old |= self.items
        self.old &= items
        if self.old and members and not any(each.startswith(SWEEP) for each in children):
            world.fail(f"{members} see {self.old} of an earlier generation")
        self.items = {each for each in items if owner_of(each) in members or each in self.items}
        self.members = members


def owner_of(item: str) -> str:
    return item.rpartition("-")[0]


def core_of(process: SimProcess, is_dead: DeadProcesses) -> GenerationCore:
    return process.local(PATH, lambda: GenerationCore(PATH, process.name, is_dead))


async def put(core: GenerationCore, number: int) -> None:
    """Add an item, as a member in the current session."""
    while True:
        await core.join()
        item = f"{QUEUE}/{core.member.rpartition('/')[2][len(MEMBER) :]}-{number}"
        if (await Connected()).session_id != core.session_id:
            continue
        try:
            await Create(item)
            return
        except NodeExistsError:
            return
        except NoNodeError:
            await ensure(QUEUE)
        except INTERRUPTED:
            continue


async def user(world: Simulation, process: SimProcess, is_dead: DeadProcesses, left: list[int]) -> None:
    """Use the objects of the module a few times. The last thread of a process then leaves, most often."""
    await Run(work(world))
    for number in range(world.rng.randint(1, 3)):
        await Run(put(core_of(process, is_dead), number))
        await Run(work(world))
    left.pop()
    if not left and world.rng.random() < 0.8:
        await Run(core_of(process, is_dead).leave())
        world.tampered.add(process.session.session_id)
        process.close()


def run(world: Simulation) -> None:
    is_dead = DeadProcesses(world)
    world.checks.append(Fresh())
    for process in processes(world, 2, 4):
        threads = list(range(world.rng.randint(1, 2)))
        for number in tuple(threads):
            body = user(world, process, is_dead, threads)
            if world.rng.random() < 0.5:
                spawn(process, body, name=f"user{number}{process.name}")
            else:
                delay = world.rng.choice((5, 20, 60, 15_000))
                world.clockwork.after(delay, partial(start, process, body, number))
    finish(world)


def start(process: SimProcess, body: Coroutine[Any, Any, None], number: int) -> None:
    if process.alive:
        spawn(process, body, name=f"user{number}{process.name}")
    else:
        body.close()


#: A znode that another program deletes is no longer what this relies on.
GENERATION = Scenario("generation", run, tuple(kind for kind in KINDS if kind != "intruder"))
