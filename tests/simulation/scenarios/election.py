"""Election: one leader at a time, LEADER names only the first candidate, and all observers finally
agree.
"""

from __future__ import annotations

import json
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check, Exclusion, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    LastNumbers,
    Scenario,
    check_final_reads,
    finish,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    spawn,
    work,
)

from distsync._protocols.state.election import LEADER, ElectionCore
from distsync._protocols.steps import Wait
from distsync._protocols.wait_queue import in_order
from distsync.errors import LockLostError, NotHeldError

PATH = f"{ROOT}/election/e"


class NamesTheFirst(Check):
    """Check that LEADER names the first candidate in the queue when it is created or changed, whichever
    process was killed.
    """

    def __init__(self) -> None:
        self.judged: int | None = None

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        node, folder = tree.node(f"{PATH}/{LEADER}"), tree.node(PATH)
        if node is None or folder is None or node.mzxid == self.judged:
            return
        self.judged = node.mzxid
        first = in_order(folder.children)
        named = json.loads(node.data or b"{}")["candidate"]
        if not first or first[0].name != named:
            world.fail(f"LEADER names {named}, but {first[0].name if first else 'nobody'} is first")


def named(world: Simulation) -> Any:
    """Return the token that LEADER names."""
    node = world.server.engine.tree.node(f"{PATH}/{LEADER}")
    return json.loads(node.data or b"{}")["token"] if node else None


def names_another(world: Simulation, mine: str) -> bool:
    """Return whether LEADER names another candidate, and one that still is in the queue."""
    tree = world.server.engine.tree
    node, folder = tree.node(f"{PATH}/{LEADER}"), tree.node(PATH)
    candidate = json.loads(node.data or b"{}")["candidate"] if node else mine
    return candidate != mine and folder is not None and candidate in folder.children


def core_of(process: SimProcess) -> ElectionCore:
    return process.local(PATH, lambda: ElectionCore(PATH, receipts(process)))


async def candidate(world: Simulation, process: SimProcess) -> None:
    """Run for leader once or twice, and lead, as a ``with`` block does."""
    owner, core = object(), core_of(process)
    until = separate_rng(world, process.name).choice((None, None, 0.0, 1.0))
    for _ in range(world.rng.randint(1, 2)):
        timeout = maybe_timeout(world)
        if await Run(core.acquire(owner, b"{}", timeout != 0.0), timeout):
            await lead(world, core, owner, until)


async def announce(world: Simulation, core: ElectionCore, announcement: int) -> None:
    """Announce something. Unless that fails, or we were deposed, LEADER then contains it."""
    grant = core.grant
    try:
        await core.announce(announcement)
    except (LockLostError, NotHeldError) as error:
        world.record("lost")
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")
        return
    node = world.server.engine.tree.node(f"{PATH}/{LEADER}")
    if core.grant is not grant or grant is None or grant.loss.fired or world.faults.injected:
        return
    if node is None or json.loads(node.data or b"{}").get("announcement") != announcement:
        world.fail(f"{announcement} was announced, but LEADER contains {node and node.data!r}")


async def lead(world: Simulation, core: ElectionCore, owner: object, until: float | None) -> None:
    grant = core.grant
    if grant is not None:
        entry = grant.entry
        world.record("granted", what="lead", session_id=entry.session_id, token=entry.token, loss=grant.loss)
        lives = entry.session_id in world.server.engine.sessions and entry.session_id not in world.tampered
        if lives and not grant.loss.fired and names_another(world, entry.name):
            world.fail(f"{entry.token} leads, but LEADER names {named(world)}")
    try:
        await Run(work(world))
        if separate_rng(world, f"announces {core.acquire_count}").random() < 0.5:
            await Run(announce(world, core, core.acquire_count))
        if not world.history.events("long") and world.rng.random() < 0.3:
            world.record("long")
            await Run(_long())
        world.record("working", what="lead")
    finally:
        world.record("released", what="lead")
        await Run(resign(world, core, owner), until)


async def _long() -> None:
    """Pause for longer than LEADER stays unwatched."""
    await Wait(limit=0.7)


async def resign(world: Simulation, core: ElectionCore, owner: object) -> None:
    try:
        await core.release(owner)
    except LockLostError as error:
        world.record("lost")
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {error}")


async def onlooker(world: Simulation, process: SimProcess, seen: dict[str, Any]) -> None:
    """Watch one leader after another."""
    core = core_of(process)
    while True:
        leading = await Run(core.leader.get())
        seen[process.name] = leading and leading.token
        await Run(core.leader.changed(leading))


async def seen_by(process: SimProcess) -> Any:
    leading = await core_of(process).leader.get()
    return leading and leading.token


def check_final_state(world: Simulation, seen: dict[str, Any], observers: set[str]) -> None:
    """Check that threads that watch all the time have seen the last state, and that a new read returns
    it.
    """
    last = named(world)
    for name, token in seen.items():
        if name in observers and world.processes[name].alive and token != last:
            world.fail(f"{name} considers {token} the leader, but it is {last}")
    check_final_reads(world, "the leader", seen_by, lambda: named(world))


def run(world: Simulation) -> None:
    world.checks += [Exclusion("lead"), NamesTheFirst(), NothingLeft(f"{PATH}/"), LastNumbers(world, PATH)]
    seen: dict[str, Any] = {}
    for process in processes(world, 2, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, candidate(world, process))
    world.process(OBSERVER)
    lookers = [
        spawn(process, onlooker(world, process, seen), daemon=True)
        for process in world.processes.values()
        if process.name == OBSERVER or world.rng.random() < 0.5
    ]
    finish(world, lambda: check_final_state(world, seen, {task.process.name for task in lookers if not task.done}))


ELECTION = Scenario("election", run)
