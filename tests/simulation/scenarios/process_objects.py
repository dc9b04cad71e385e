"""Objects without a name: none is deleted while a process that runs refers to it, or a pickle is in transit.

A pickle in a queue is an entry of a list here, which one process takes. One sweep at the end deletes
everything.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    finish,
    interrupted,
    processes,
    separate_rng,
    spawn,
    work,
)
from simulation.scenarios.generation import DeadProcesses

from distsync._protocols.retries import INTERRUPTED, ensure
from distsync._protocols.state.module_generation import MEMBER
from distsync._protocols.state.process_objects import ProcessObjects
from distsync._protocols.state.reference_ledger import CREATOR_DROPPED, FOLDER, ISSUED, TAKEN, drop_reference
from distsync._protocols.steps import Background, Connected, Create
from distsync.errors import NodeExistsError, NoNodeError

PATH = f"{ROOT}/process"


@dataclass(eq=False)
class Shared:
    """An object without a name."""

    creator: str
    name: str
    #: The processes that refer to it, once for each reference.
    holders: list[str] = field(default_factory=list)
    #: The tokens of the pickles that no process has taken.
    in_transit: list[str] = field(default_factory=list)
    #: Those of the holders that have used it.
    users: list[str] = field(default_factory=list)
    exists: bool = False

    @property
    def objects(self) -> str:
        return f"{PATH}/{self.creator}/objects"

    @property
    def path(self) -> str:
        return f"{self.objects}/queue/{self.name}"

    @property
    def ledger(self) -> str:
        return f"{self.objects}/{FOLDER}/{self.name}"


class Kept(Check):
    """Check that no object is deleted that is in use."""

    def __init__(self) -> None:
        self.all: list[Shared] = []
        #: The processes that have left in good order.
        self.left: set[str] = set()
        self.tokens = 0
        self.members: dict[str, set[str]] = {}

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        for each in self.all:
            node = tree.node(f"{PATH}/{each.creator}")
            before = self.members.get(each.creator, set())
            members = {name[len(MEMBER) :] for name in node.children if name.startswith(MEMBER)} if node else set()
            now = tree.node(each.path) is not None
            if each.exists and not now:
                self._check(world, each, {name.partition("_")[0] for name in members & before})
            each.exists = now
        for creator in {each.creator for each in self.all}:
            node = tree.node(f"{PATH}/{creator}")
            self.members[creator] = (
                {name[len(MEMBER) :] for name in node.children if name.startswith(MEMBER)} if node else set()
            )

    def _check(self, world: Simulation, lost: Shared, members: set[str]) -> None:
        running = {name for name, each in world.processes.items() if each.alive} - self.left
        if lost.creator in running and (lost.holders and set(lost.holders) & running or lost.in_transit):
            world.fail(f"{lost.path} was deleted, but {lost.holders} refer to it, {lost.in_transit} are in transit")
        if set(lost.users) & running & members:
            world.fail(f"{lost.path} was deleted, but {lost.users} use it")

    def token(self) -> str:
        self.tokens += 1
        return str(self.tokens)


def folders_of(process: SimProcess, is_dead: DeadProcesses) -> ProcessObjects:
    def make() -> ProcessObjects:
        return ProcessObjects(PATH, process.name, is_dead, lambda name: True)

    return process.local(PATH, make)


async def use(folders: ProcessObjects, shared: Shared, item: str, is_nested: bool = False) -> None:
    """Add an item to the object, as a member in the current session."""
    core = folders.generation(shared.creator)
    while True:
        await core.join(is_nested)
        if (await Connected()).session_id != core.session_id:
            continue
        try:
            await Create(f"{shared.path}/{item}")
            return
        except NodeExistsError:
            return
        except NoNodeError:
            await ensure(shared.path)
        except INTERRUPTED:
            continue


def use_interrupted(
    draws: random.Random, folders: ProcessObjects, shared: Shared, kept: Kept, depth: int = 0
) -> Coroutine[Any, Any, Any]:
    """Add an item. A signal handler that interrupts this may do so too, and be interrupted as well.

    A finalizer may interrupt another thread.
    """
    protocol = use(folders, shared, kept.token(), depth > 0 or draws.random() < 0.1)
    if depth == 2:
        return protocol
    return interrupted(draws, protocol, lambda: use_interrupted(draws, folders, shared, kept, depth + 1))


async def drop(folders: ProcessObjects, shared: Shared, record: list[str], user: object) -> None:
    await folders.generation(shared.creator).join()
    await drop_reference(shared.ledger, shared.path, record)
    await Background(partial(folders.remove_user, shared.creator, user))


async def refer(
    world: Simulation, process: SimProcess, is_dead: DeadProcesses, kept: Kept, shared: Shared, first: str
) -> None:
    """Use an object, pickle it a few times, and drop it. ``first`` is the first token of the record."""
    folders, record, user = folders_of(process, is_dead), [first], object()
    if shared.creator != process.name:
        folders.add_user(shared.creator, user)
    if world.rng.random() < 0.8:
        draws = separate_rng(world, f"handlers {process.name} {first}")
        await Run(use_interrupted(draws, folders, shared, kept))
        shared.users.append(process.name)
    await Run(work(world))
    for _ in range(world.rng.choice((0, 1, 1, 2))):
        token = kept.token()
        record.append(ISSUED + token)
        shared.in_transit.append(token)
    await Run(work(world))
    shared.holders.remove(process.name)
    if process.name in shared.users:
        shared.users.remove(process.name)
    await Run(drop(folders, shared, record, user))


async def user(world: Simulation, process: SimProcess, is_dead: DeadProcesses, kept: Kept, threads: list[int]) -> None:
    """Create objects, or take those that are in transit. The last thread of a process leaves."""
    for number in range(world.rng.randint(1, 4)):
        waiting = [each for each in kept.all if each.in_transit]
        if waiting and world.rng.random() < 0.7:
            shared = world.rng.choice(waiting)
            token = shared.in_transit.pop(0)
            shared.holders.append(process.name)
            await refer(world, process, is_dead, kept, shared, TAKEN + token)
        else:
            shared = Shared(process.name, f"{number}-{kept.token()}", [process.name])
            kept.all.append(shared)
            await refer(world, process, is_dead, kept, shared, CREATOR_DROPPED)
        await Run(work(world))
    threads.pop()
    if not threads and world.rng.random() < 0.8:
        kept.left.add(process.name)
        await Run(folders_of(process, is_dead).leave(False))
        world.tampered.add(process.session.session_id)
        process.close()


def run(world: Simulation) -> None:
    is_dead, kept = DeadProcesses(world), Kept()
    world.checks.append(kept)
    for process in processes(world, 2, 4):
        threads = list(range(world.rng.randint(1, 2)))
        for number in tuple(threads):
            spawn(process, user(world, process, is_dead, kept, threads), name=f"user{number}{process.name}")
    finish(world, partial(check_end, world, is_dead, kept))


def check_end(world: Simulation, is_dead: DeadProcesses, kept: Kept) -> None:
    """Check that no unused object is left, and that one sweep after the last process leaves nothing."""
    tree = world.server.engine.tree
    unused = [each for each in kept.all if not each.holders and not each.in_transit and each.creator not in kept.left]
    remaining = [each.path for each in unused if tree.node(each.path) is not None]
    if remaining and not world.faults.injected:
        world.fail(f"no process can find {remaining}")
    for name, process in tuple(world.processes.items()):
        if process.alive and name not in kept.left:
            kept.left.add(name)
            spawn(process, folders_of(process, is_dead).leave(False), name="leave")
    world.run()
    for process in world.processes.values():
        process.kill()
    observer = world.process(OBSERVER)
    spawn(observer, ProcessObjects(PATH, OBSERVER, OBSERVER.__ne__, OBSERVER.__ne__).sweep(), name="sweep")
    world.run()
    node = world.server.engine.tree.node(PATH)  # an outage has replaced the tree
    if node is not None and node.children:
        world.fail(f"{[*node.children]} are left")


#: A znode that another program deletes is no longer what this relies on.
PROCESS_OBJECTS = Scenario("process-objects", run, tuple(kind for kind in KINDS if kind != "intruder"))
