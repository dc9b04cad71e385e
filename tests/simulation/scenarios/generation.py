"""Generation: no member ever sees what an earlier generation left, and none loses what it uses.

The generations are judged by the server's tree: one ends when no member is left.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from functools import partial
from itertools import count
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    finish,
    interrupted,
    processes,
    separate_rng,
    spawn,
    work,
)

from distsync._protocols.retries import INTERRUPTED, ensure
from distsync._protocols.state.module_generation import MEMBER, OBJECTS, SWEEP, GenerationCore
from distsync._protocols.steps import Connected, Create
from distsync.errors import NodeExistsError, NoNodeError

PATH = f"{ROOT}/module/m"
QUEUE = f"{PATH}/{OBJECTS}/queue"

#: Numbers of the items that signal handlers add.
NUMBERS = count(10)

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
    """Check who uses the objects in the tree.

    A process that joins them must have overlapped with one that used them, or have used them itself.
    """

    def __init__(self) -> None:
        self.czxid = 0
        self.items: set[str] = set()
        self.members: set[str] = set()
        #: The processes that have used the present objects.
        self.users: set[str] = set()
        #: Members that must not use the present objects.
        self.sweeping: set[str] = set()
        #: The processes that have left in good order.
        self.left: set[str] = set()

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        node, objects, queue = tree.node(PATH), tree.node(f"{PATH}/{OBJECTS}"), tree.node(QUEUE)
        children = set(node.children) if node else set()
        items = set(queue.children) if queue else set()
        members = {each[len(MEMBER) :] for each in children if each.startswith(MEMBER)}
        sweepers = {process_of(each[len(SWEEP) :]) for each in children if each.startswith(SWEEP)}
        for lost in self.items - items:
            if owner_of(lost) in self.members & members:
                world.fail(f"{lost} was deleted although its process is a member")
            if process_of(owner_of(lost)) in (sweepers & self.users) - self.left:
                world.fail(f"{lost} was deleted by its own process, which has not left")
        czxid = objects.czxid if objects else 0
        if czxid != self.czxid:
            self.czxid, self.users, self.sweeping = czxid, set(), set()
            self.users |= {process_of(each) for each in members}
        for each in members - self.members:
            if process_of(each) in sweepers:
                self.sweeping.add(each)
            elif process_of(each) not in self.users and not self.members & members and czxid:
                world.fail(f"{each} has joined the objects of an earlier generation")
            else:
                self.users.add(process_of(each))
        self.sweeping &= members
        for each in self.sweeping:
            if process_of(each) not in sweepers:
                world.fail(f"{each} has swept, but the objects of an earlier generation are there")
        self.items = {each for each in items if owner_of(each) in members or each in self.items}
        self.members = members


def process_of(name: str) -> str:
    return name.partition("_")[0]


def owner_of(item: str) -> str:
    return item.rpartition("-")[0]


def core_of(process: SimProcess, is_dead: DeadProcesses) -> GenerationCore:
    return process.local(PATH, lambda: GenerationCore(PATH, process.name, is_dead))


async def put(core: GenerationCore, number: int, is_nested: bool = False) -> None:
    """Add an item, as a member in the current session."""
    while True:
        await core.join(is_nested)
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


def put_interrupted(
    draws: random.Random, core: GenerationCore, number: int, depth: int = 0
) -> Coroutine[Any, Any, Any]:
    """Add an item. A signal handler that interrupts this may add others, and be interrupted so as well.

    A finalizer may interrupt another thread.
    """
    protocol = put(core, number, depth > 0 or draws.random() < 0.1)
    if depth == 2:
        return protocol
    return interrupted(draws, protocol, lambda: put_interrupted(draws, core, next(NUMBERS), depth + 1))


async def user(world: Simulation, process: SimProcess, is_dead: DeadProcesses, left: list[int], fresh: Fresh) -> None:
    """Use the objects of the module a few times. The last thread of a process then leaves, most often."""
    draws = separate_rng(world, f"handlers {process.name} {len(left)}")
    await Run(work(world))
    for number in range(world.rng.randint(1, 3)):
        await Run(put_interrupted(draws, core_of(process, is_dead), number))
        await Run(work(world))
    left.pop()
    if not left and world.rng.random() < 0.8:
        fresh.left.add(process.name)
        await Run(core_of(process, is_dead).leave())
        world.tampered.add(process.session.session_id)
        process.close()


def run(world: Simulation) -> None:
    is_dead = DeadProcesses(world)
    fresh = Fresh()
    world.checks.append(fresh)
    for process in processes(world, 2, 4):
        threads = list(range(world.rng.randint(1, 2)))
        for number in tuple(threads):
            body = user(world, process, is_dead, threads, fresh)
            if world.rng.random() < 0.5:
                spawn(process, body, name=f"user{number}{process.name}")
            else:
                delay = world.rng.choice((5, 20, 60, 15_000))
                world.clockwork.after(delay, partial(start, process, body, number))
    finish(world, partial(check_names, world))


def check_names(world: Simulation) -> None:
    """Check that no process has two members, of which it would delete one when it leaves."""
    node = world.server.engine.tree.node(PATH)
    members = [each[len(MEMBER) :] for each in (node.children if node else ()) if each.startswith(MEMBER)]
    for name, process in world.processes.items():
        session_id = process.session.session_id
        nodes = [
            world.server.engine.tree.node(f"{PATH}/{MEMBER}{each}") for each in members if process_of(each) == name
        ]
        if process.alive and sum(each is not None and each.owner == session_id for each in nodes) > 1:
            world.fail(f"{name} has several members of {members}")


def start(process: SimProcess, body: Coroutine[Any, Any, None], number: int) -> None:
    if process.alive:
        spawn(process, body, name=f"user{number}{process.name}")
    else:
        body.close()


#: A znode that another program deletes is no longer what this relies on.
GENERATION = Scenario("generation", run, tuple(kind for kind in KINDS if kind != "intruder"))
