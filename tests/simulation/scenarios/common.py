"""What all scenarios share.

Rules for this file: it knows worlds, and of the protocols only the receipts that they share.
"""

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

#: The process that looks at the end; no fault strikes it.
OBSERVER = "observer"

#: Without a fault every thread is done in this time (virtual seconds): who needs longer was woken by its own
#: impatience, after half a session time-out, and not by the one who should have.
PROMPT_S = 3.0

RESCUE_S = 30.0


@dataclass(frozen=True)
class Scenario:
    """``run`` gets a fresh world, and leaves it when all is done; ``kinds`` are the faults that it stands."""

    name: str
    run: Callable[[Simulation], None]
    kinds: tuple[str, ...] = KINDS
    besides: tuple[str, ...] = BESIDES
    """Those of its faults that came to the simulator later: by draws of their own, so that the seeds stay the same."""


def processes(world: Simulation, least: int, most: int) -> Iterator[SimProcess]:
    """Some processes."""
    for name in "abcdefgh"[: world.rng.randint(least, most)]:
        yield world.process(name)


def receipts(process: SimProcess) -> Receipts:
    """The receipts that the threads of a process share."""
    return process.local(f"{ROOT}/receipts", lambda: Receipts(f"{ROOT}/receipts"))


def troubled(world: Simulation, process: SimProcess) -> bool:
    """Whether something happened to this process after which nobody can know what became of its last calls."""
    return not process.alive or process.session.ended > 0


def came_too_late(world: Simulation) -> int:
    """How many calls had ended without anything before their process died: what they may have taken too late was on
    its way back, and died with the process."""
    dead = [process for process in world.processes.values() if not process.alive]
    return sum("_settle" in name for process in dead for name in process.left_undone)


async def work(world: Simulation) -> None:
    """Something that takes a while."""
    await Wait(limit=world.rng.randint(0, 20) / 1000)


def maybe_timeout(world: Simulation) -> float | None:
    """How long a thread is ready to wait: mostly for ever."""
    return world.rng.choice((None, None, None, 0.0, 0.05, 1.0, 30.0))


def spawn(process: SimProcess, body: Coroutine[Any, Any, Any], name: str = "", daemon: bool = False) -> Task:
    """A thread. Ctrl-C may end it, and so may a first connection that does not come in time."""
    return process.spawn(body, name=name, daemon=daemon, expected=(UnreachableError,))


async def until_interrupted(process: SimProcess, body: Callable[[SimProcess], Coroutine[Any, Any, Any]]) -> None:
    """Ctrl-C is the end of its process, in good order."""
    try:
        await body(process)
    except KeyboardInterrupt:
        process.world.tampered.add(process.session.session_id)
        process.close()


def finish(world: Simulation, at_end: Callable[[], object] = lambda: None) -> None:
    """All threads come to their end, soon if nothing went wrong; ``at_end`` looks; then the world is closed."""
    world.run()
    if not world.faults.injected and world.done_ms > PROMPT_S * 1000:
        world.fail(f"it took {world.done_ms / 1000:.1f} s although nothing went wrong: somebody was not woken")
    at_end()
    world.close()


def apart(world: Simulation, what: str) -> random.Random:
    """Draws for what came to a scenario later: those of the world, and so its seeds, stay what they were."""
    return random.Random(f"{world.seed} {what}")


class LastNumbers(Check):
    """In some schedules the children of ``path`` are counted from shortly before the last number on, as if that many
    had been there."""

    def __init__(self, world: Simulation, path: str) -> None:
        draws = apart(world, f"numbers {path}")
        self.path = path
        self.first = LAST - draws.randint(0, 5) if draws.random() < 0.1 else 0

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(self.path) if self.first else None
        if node is not None and not node.creates:
            node.creates, self.first = self.first, 0


def made_by_others(world: Simulation, path: str, data: bytes) -> None:
    """The znode is there, by a client of another kind, and what it stands in, which may have been there."""
    parts = path.split("/")
    for number in range(2, len(parts)):
        with suppress(NodeExistsError):
            world.external_client(Create("/".join(parts[:number])))
    world.external_client(Create(path, data))


async def close_client(world: Simulation, process: SimProcess, keeps: Callable[[], bool]) -> None:
    """Its client is closed in the middle of everything: as it ``keeps``, or as it does no longer."""
    for wanted in (True, False)[: world.rng.randint(0, 2)]:
        for _ in range(100):
            if keeps() is not wanted:
                await Wait(limit=0.002)
    world.tampered.add(process.session.session_id)
    process.keeper.holds.lose_all(CLIENT_CLOSED)
    process.close()


def upset(mild: tuple[str, ...], world: Simulation) -> bool:
    """Whether faults have struck that are not ``mild``, a session has ended, or somebody is not sure what he has given
    back."""
    ended = any(process.session.ended for process in world.processes.values())
    unsure = ended or bool(world.history.events("unsure"))
    return unsure or any(each.kind not in mild for each in world.faults.injected)


def rescue(
    world: Simulation,
    is_upset: Callable[[Simulation], bool],
    give_one: Callable[[SimProcess], Coroutine[Any, Any, Any]],
) -> None:
    """Once the world is upset, the observer gives one back now and then, so that nobody waits for ever."""
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
    """Once all is quiet each process that lives looks again, by its copy if that claims to be current: it sees the
    truth. What a fault strikes meanwhile does not count."""
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
    """The daemons that still wait."""
    return [
        task.name
        for process in world.processes.values()
        for task in process.tasks
        if task.daemon and not task.background
    ]
