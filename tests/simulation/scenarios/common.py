"""Code that all scenarios share."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import BESIDES, KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task

from distsync._client.lease.holds import CLIENT_CLOSED
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Create, Wait
from distsync._protocols.wait_queue import LAST
from distsync.errors import NodeExistsError, UnreachableError

ROOT = "/distsync"

#: The process that looks at the end; no fault hits it.
OBSERVER = "observer"

#: Without a fault every thread is done in this time (virtual seconds): a thread that takes longer
#: was woken by its own timeout, after half a session timeout, and not by the process that should
#: have.
PROMPT_S = 3.0

RESCUE_S = 30.0


@dataclass(frozen=True)
class Scenario:
    """A scenario. ``run`` gets a new world, and returns when all is done; ``kinds`` are the faults
    that it tolerates.
    """

    name: str
    run: Callable[[Simulation], None]
    kinds: tuple[str, ...] = KINDS
    besides: tuple[str, ...] = BESIDES
    """Those of its faults that came to the simulator later: by draws of their own, so that the seeds stay the same."""


def processes(world: Simulation, least: int, most: int) -> Iterator[SimProcess]:
    """Return some processes."""
    for name in "abcdefgh"[: world.rng.randint(least, most)]:
        yield world.process(name)


def receipts(process: SimProcess) -> Receipts:
    """Return the receipts that the threads of a process share."""
    return process.local(f"{ROOT}/receipts", lambda: Receipts(f"{ROOT}/receipts"))


def troubled(world: Simulation, process: SimProcess) -> bool:
    """Return whether a fault has made the outcome of this process's last calls unknown."""
    return not process.alive or process.session.ended > 0


def came_too_late(world: Simulation) -> int:
    """Return how many calls had ended without a result before their process exited.

    What they may have taken too late was being returned, and was lost with the process.
    """
    dead = [process for process in world.processes.values() if not process.alive]
    return sum("_settle" in name for process in dead for name in process.left_undone)


async def work(world: Simulation) -> None:
    """Do something that takes a while."""
    await Wait(limit=world.rng.randint(0, 20) / 1000)


def maybe_timeout(world: Simulation) -> float | None:
    """Return how long a thread waits: mostly forever."""
    return world.rng.choice((None, None, None, 0.0, 0.05, 1.0, 30.0))


def spawn(process: SimProcess, body: Coroutine[Any, Any, Any], name: str = "", daemon: bool = False) -> Task:
    """Start a thread. Ctrl-C may end it, and so may a first connection that is not made in time."""
    return process.spawn(body, name=name, daemon=daemon, expected=(UnreachableError,))


async def until_interrupted(process: SimProcess, body: Callable[[SimProcess], Coroutine[Any, Any, Any]]) -> None:
    """Let Ctrl-C end the process in good order."""
    try:
        await body(process)
    except KeyboardInterrupt:
        process.world.tampered.add(process.session.session_id)
        process.close()


def finish(world: Simulation, at_end: Callable[[], object] = lambda: None) -> None:
    """Wait until all threads end, soon without faults; call ``at_end``; close the world."""
    world.run()
    if not world.faults.injected and world.done_ms > PROMPT_S * 1000:
        world.fail(f"it took {world.done_ms / 1000:.1f} s without a fault: some thread was not woken")
    at_end()
    world.close()


def apart(world: Simulation, what: str) -> random.Random:
    """Return a random generator for later additions to a scenario, so that the world's draws, and its
    seeds, stay the same.
    """
    return random.Random(f"{world.seed} {what}")


class LastNumbers(Check):
    """In some schedules the sequence numbers below ``path`` start shortly before the maximum."""

    def __init__(self, world: Simulation, path: str) -> None:
        draws = apart(world, f"numbers {path}")
        self.path = path
        self.first = LAST - draws.randint(0, 5) if draws.random() < 0.1 else 0

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(self.path) if self.first else None
        if node is not None and not node.creates:
            node.creates, self.first = self.first, 0


def made_by_others(world: Simulation, path: str, data: bytes) -> None:
    """Create the znode as another client does, and its parent if necessary."""
    parts = path.split("/")
    for number in range(2, len(parts)):
        with suppress(NodeExistsError):
            world.external_client(Create("/".join(parts[:number])))
    world.external_client(Create(path, data))


async def close_client(world: Simulation, process: SimProcess, keeps: Callable[[], bool]) -> None:
    """Close the client in the middle of everything."""
    for wanted in (True, False)[: world.rng.randint(0, 2)]:
        for _ in range(100):
            if keeps() is not wanted:
                await Wait(limit=0.002)
    world.tampered.add(process.session.session_id)
    process.keeper.holds.lose_all(CLIENT_CLOSED)
    process.close()


def upset(mild: tuple[str, ...], world: Simulation) -> bool:
    """Return whether faults that are not ``mild`` have hit, a session has ended, or a release is
    uncertain.
    """
    ended = any(process.session.ended for process in world.processes.values())
    unsure = ended or bool(world.history.events("unsure"))
    return unsure or any(each.kind not in mild for each in world.faults.injected)


def rescue(
    world: Simulation,
    is_upset: Callable[[Simulation], bool],
    give_one: Callable[[SimProcess], Coroutine[Any, Any, Any]],
) -> None:
    """Once the world is upset, let the observer release one now and then, so that no thread waits
    forever.
    """
    observer = world.process(OBSERVER)

    async def give() -> None:
        while True:
            await Wait(limit=RESCUE_S)
            if is_upset(world):
                await give_one(observer)

    spawn(observer, give(), name="rescue", daemon=True)


def everybody_sees(
    world: Simulation, what: str, look: Callable[[SimProcess], Coroutine[Any, Any, Any]], truth: Callable[[], Any]
) -> None:
    """Check that each live process sees the truth once all is quiet, from its copy if that claims to
    be current. What a fault hits in between does not count.
    """
    seen: dict[str, Any] = {}

    async def see(process: SimProcess) -> None:
        seen[process.name] = await Run(look(process))

    before = len(world.faults.injected)
    for process in world.processes.values():
        if process.alive:
            spawn(process, see(process), name="last")
    world.run()
    wrong = {name: value for name, value in seen.items() if value != truth()}
    if wrong and len(world.faults.injected) == before:
        world.fail(f"{what}: {wrong} was seen at the end, and the truth is {truth()}")


def sleepers(world: Simulation) -> list[str]:
    """Return the daemons that still wait."""
    return [
        task.name
        for process in world.processes.values()
        for task in process.tasks
        if task.daemon and not task.background
    ]
