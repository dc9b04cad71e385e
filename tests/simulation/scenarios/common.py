"""Helpers shared by all scenarios."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS, LATER_KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.task import Task

from distsync._client.lease.holds import CLIENT_CLOSED
from distsync._protocols.locks import revocation
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Create, Wait
from distsync._protocols.wait_queue import LAST
from distsync.errors import NodeExistsError, UnavailableError, UnreachableError, ZnodeError

ROOT = "/distsync"

#: The process that checks the final state; exempt from faults.
OBSERVER = "observer"

#: Maximum virtual duration of a schedule without faults. A longer one means that a waiter was not
#: notified, and resumed only by its own periodic check after half a session timeout.
PROMPT_S = 3.0

RESCUE_S = 30.0


@dataclass(frozen=True)
class Scenario:
    """A family of schedules. ``run`` gets a fresh world and closes it at the end; ``kinds`` are the
    faults that are injected.
    """

    name: str
    run: Callable[[Simulation], None]
    kinds: tuple[str, ...] = KINDS
    later_kinds: tuple[str, ...] = LATER_KINDS
    """Faults that were added to the simulator later. They are drawn separately, so that existing seeds
    keep their schedules.
    """


def processes(world: Simulation, least: int, most: int) -> Iterator[SimProcess]:
    """Yield between ``least`` and ``most`` processes."""
    for name in "abcdefgh"[: world.rng.randint(least, most)]:
        yield world.process(name)


def receipts(process: SimProcess) -> Receipts:
    """Return the receipts that the threads of a process share."""
    return process.local(f"{ROOT}/receipts", lambda: Receipts(f"{ROOT}/receipts"))


def is_disrupted(world: Simulation, process: SimProcess) -> bool:
    """Return whether the process was killed or lost a session, so that the outcome of its last calls
    may be unknown.
    """
    return not process.alive or process.session.ended > 0


def unsettled_calls(world: Simulation) -> int:
    """Count the background settlements that kills cut short.

    Such a call had returned without a result. Anything that it was granted too late was being
    returned when its process was killed.
    """
    dead = [process for process in world.processes.values() if not process.alive]
    return sum("_settle" in name for process in dead for name in process.killed_background)


async def work(world: Simulation) -> None:
    """Do something that takes up to 20 ms."""
    await Wait(limit=world.rng.randint(0, 20) / 1000)


async def interrupted(
    draws: random.Random, protocol: Coroutine[Any, Any, Any], handler: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Run ``protocol``, and the calls of a signal handler, or none, to their ends in the middle of it.

    They run while a reply is awaited: mostly as if it had been sent before them, and otherwise as if it were sent
    after them, as when it is repeated. What a handler raises is raised in ``protocol``.
    """
    places = {draws.choice((0, 1, 2, 4, 8, 16, 32)) + draws.randint(0, 3) for _ in range(draws.choice((0, 1, 1, 2)))}
    resume: Callable[[], Any] = partial(protocol.send, None)
    number = 0
    while True:
        try:
            step = resume()
        except StopIteration as stop:
            return stop.value
        is_sent_before = draws.random() < 0.8
        try:
            if number in places and not is_sent_before:
                await Run(handler())
            try:
                resume = partial(protocol.send, await step)
            except (UnavailableError, ZnodeError) as error:
                resume = partial(protocol.throw, error)
            if number in places and is_sent_before:
                await Run(handler())
        except GeneratorExit:
            protocol.close()
            raise
        except BaseException as error:
            resume = partial(protocol.throw, error)
        number += 1


def maybe_timeout(world: Simulation) -> float | None:
    """Draw a timeout in seconds; None waits without a limit."""
    return world.rng.choice((None, None, None, 0.0, 0.05, 1.0, 30.0))


def spawn(process: SimProcess, body: Coroutine[Any, Any, Any], name: str = "", daemon: bool = False) -> Task:
    """Start a thread. Ctrl-C or a first connection that takes too long may end it."""
    return process.spawn(body, name=name, daemon=daemon, expected=(UnreachableError,))


async def until_interrupted(process: SimProcess, body: Callable[[SimProcess], Coroutine[Any, Any, Any]]) -> None:
    """Run ``body``; on Ctrl-C, close the process in good order."""
    try:
        await body(process)
    except KeyboardInterrupt:
        process.world.tampered.add(process.session.session_id)
        process.close()


def finish(world: Simulation, at_end: Callable[[], object] = lambda: None) -> None:
    """Run all threads to their end, which must be prompt without a fault, call ``at_end``, and close
    the world.
    """
    world.run()
    if not world.faults.injected and world.done_ms > PROMPT_S * 1000:
        world.fail(f"took {world.done_ms / 1000:.1f} s without a fault: a waiter was not notified")
    at_end()
    world.close()


def separate_rng(world: Simulation, what: str) -> random.Random:
    """Return a generator for draws that a scenario gained later, so that existing seeds keep their
    schedules.
    """
    return random.Random(f"{world.seed} {what}")


class LastNumbers(Check):
    """In some schedules, start the sequence numbers of the children of ``path`` shortly before the
    last one, as if all lower ones had been used.
    """

    def __init__(self, world: Simulation, path: str) -> None:
        draws = separate_rng(world, f"numbers {path}")
        self.path = path
        self.first = LAST - draws.randint(0, 5) if draws.random() < 0.1 else 0

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(self.path) if self.first else None
        if node is not None and not node.creates:
            node.creates, self.first = self.first, 0


def create_externally(world: Simulation, path: str, data: bytes) -> None:
    """Create the znode, and its parents if missing, as a client of another library."""
    parts = path.split("/")
    for number in range(2, len(parts)):
        with suppress(NodeExistsError):
            world.external_client(Create("/".join(parts[:number])))
    world.external_client(Create(path, data))


async def close_client(world: Simulation, process: SimProcess, has_cached: Callable[[], bool]) -> None:
    """Close the client of a process while its threads use it.

    Often wait first until ``has_cached()`` is true, or also until it is false again.
    """
    for wanted in (True, False)[: world.rng.randint(0, 2)]:
        for _ in range(100):
            if has_cached() is not wanted:
                await Wait(limit=0.002)
    world.tampered.add(process.session.session_id)
    process.keeper.holds.lose_all(CLIENT_CLOSED)
    process.close()


def is_disturbed_beyond(mild: tuple[str, ...], world: Simulation) -> bool:
    """Return whether faults other than ``mild`` were injected, a session ended, or the outcome of a
    release is uncertain.
    """
    ended = any(process.session.ended for process in world.processes.values())
    unsure = ended or bool(world.history.events("unsure"))
    return unsure or any(each.kind not in mild for each in world.faults.injected)


def rescue(
    world: Simulation,
    is_disturbed: Callable[[Simulation], bool],
    release_one: Callable[[SimProcess], Coroutine[Any, Any, Any]],
) -> None:
    """Let the observer release one lock or permit periodically after a disturbance, so that nobody
    waits forever.
    """
    observer = world.process(OBSERVER)

    async def give() -> None:
        while True:
            await Wait(limit=RESCUE_S)
            if is_disturbed(world):
                await release_one(observer)

    spawn(observer, give(), name="rescue", daemon=True)


def check_final_reads(
    world: Simulation, what: str, look: Callable[[SimProcess], Coroutine[Any, Any, Any]], truth: Callable[[], Any]
) -> None:
    """Let each live process read again, from its copy if that claims to be current, and compare with
    ``truth``.

    Ignored if a fault is injected during these reads.
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
        world.fail(f"{what}: {wrong} read at the end, but the value is {truth()}")


def sleepers(world: Simulation) -> list[str]:
    """Return the names of the daemon threads that still wait."""
    return [
        task.name
        for process in world.processes.values()
        for task in process.tasks
        if task.daemon and not task.background
    ]


async def take_from_holders(world: Simulation, remaining: Sequence[str], include_downgraded: bool = False) -> None:
    """Take a lock from holders that did not release it when asked.

    Those that notice do not hold it when another process does. The others count as disturbed.
    """
    world.revoked = world.revoked or bool(remaining)
    noticing = await Run(revocation.mark_revoked(remaining, include_downgraded))
    late = await Run(revocation.still_held(noticing, include_downgraded), revocation.NOTICE_S)
    if late:
        world.tampered.update(each.session.session_id or 0 for each in world.processes.values())
        await Run(revocation.delete(late, include_downgraded))
