"""Observers: a read of a primitive returns its state at some moment of the call, while others use it.

The primitives are used by their own scenarios. An answer is compared with the states of the znode
on the server from the beginning of the call to its end.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios import (
    barrier,
    condition,
    double_barrier,
    gate,
    lock,
    semaphore,
)
from simulation.scenarios.common import Scenario, maybe_timeout, receipts, spawn

from distsync._protocols import wait_queue
from distsync._protocols.barriers.cyclic import BarrierCore
from distsync._protocols.barriers.double import DoubleBarrierCore
from distsync._protocols.locks import cache_revocation
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.steps import Wait, Watch
from distsync.errors import DeadlineError

Names = frozenset[str]


class State:
    """The state of a znode at one moment: its children, or None if it does not exist, and its data."""

    def __init__(self, world: Simulation, path: str) -> None:
        node = world.server.engine.tree.node(path)
        self.names: Names | None = None if node is None else frozenset(node.children)
        self.data = b"" if node is None else node.data or b""

    @property
    def queued(self) -> set[str]:
        """The names of the queue entries among the children."""
        return {each.name for each in wait_queue.in_order(tuple(self.names or ()))}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (self.names, self.data) == (other.names, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{sorted(self.names) if self.names is not None else None} {self.data!r}>"


class States(Check):
    """The successive states of one znode."""

    def __init__(self, world: Simulation, path: str) -> None:
        self.path = path
        self.all = [State(world, path)]

    def changed(self, world: Simulation) -> None:
        state = State(world, self.path)
        if state != self.all[-1]:
            self.all.append(state)


def ever(states: Sequence[State]) -> set[str]:
    """Return the entries that were queued at any moment."""
    return set[str]().union(*(state.queued for state in states))


def always(states: Sequence[State]) -> set[str]:
    """Return the entries that were queued throughout."""
    return set.intersection(*(state.queued for state in states))


def names_of(found: list[tuple[str, Any]]) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in found]


# Whether an answer fits the states


def is_open(answer: bool, states: Sequence[State], _: int) -> bool:
    return any((state.names is None) is answer for state in states)


def is_count(answer: int, states: Sequence[State], _: int) -> bool:
    return any(answer == len(state.queued) for state in states)


def is_listing(answer: list[tuple[str, Any]], states: Sequence[State], _: int) -> bool:
    names = names_of(answer)
    return names == [each.name for each in wait_queue.in_order(names)] and always(states) <= set(names) <= ever(states)


def are_names(answer: tuple[str, ...], states: Sequence[State], _: int) -> bool:
    names = {each.name for each in wait_queue.in_order(answer)}
    return always(states) <= names <= ever(states)


def permits(initial: int, state: State) -> int:
    """Return the total number of permits."""
    return initial + (json.loads(state.data)["extra"] if state.data else 0)


def is_capacity(answer: int, states: Sequence[State], initial: int) -> bool:
    return any(answer == permits(initial, state) for state in states)


def is_free(answer: int, states: Sequence[State], initial: int) -> bool:
    """Whether the leases were counted no later than the permits."""
    return any(
        answer == max(0, permits(initial, later) - len(earlier.queued))
        for number, earlier in enumerate(states)
        for later in states[number:]
    )


def is_free_in_pool(answer: int, states: Sequence[State], initial: int) -> bool:
    return any(answer == max(0, initial - len(state.names or ())) for state in states)


def are_leases(answer: list[tuple[str, Any]], states: Sequence[State], initial: int) -> bool:
    created = [node.stat.czxid for _, node in answer]
    there = set[str]().union(*(state.names or () for state in states))
    return len(answer) <= initial and created == sorted(created) and set(names_of(answer)) <= there


def is_barrier_state(answer: tuple[int, bool], states: Sequence[State], parties: int) -> bool:
    waiting, broken = answer
    return 0 <= waiting <= min(parties, len(ever(states))) and not (waiting and broken)


def is_double_barrier_state(answer: tuple[int, int], states: Sequence[State], parties: int) -> bool:
    there = set[str]().union(*(state.names or () for state in states)) - {"ready"}
    admitted = set[str]().union(*(json.loads(state.data)["inside"] for state in states if state.data))
    waiting, inside = answer
    return 0 <= waiting <= len(there) and 0 <= inside <= min(parties, len(admitted))


async def holder_names(_: Any) -> tuple[str, ...]:
    return await cache_revocation.holder_names(lock.PATH, Watch())


Fits = Callable[[Any, Sequence[State], int], bool]


@dataclass(frozen=True)
class ObserverCase:
    """What to observe: the scenario, the znode with the truth, how to make the core and of which size,
    and the reads.
    """

    run: Callable[[Simulation], None]
    core: str
    truth: str
    make: Callable[[SimProcess, int], Any]
    size: str
    reads: tuple[tuple[Callable[[Any], Awaitable[Any]], Fits], ...]


def pool(make: Callable[[SimProcess, int], Any], truth: str, lock_path: str) -> ObserverCase:
    reads: Any = (
        (lambda core: core.value(), is_free_in_pool),
        (lambda core: core.leases(), are_leases),
    )
    return ObserverCase(partial(semaphore.play_pool, make, lock_path), semaphore.PATH, truth, make, "initial", reads)


CASES = (
    ObserverCase(gate.run, gate.PATH, gate.PATH, lambda process, _: gate.core_of(process), "", (
        (lambda core: core.is_open(), is_open),
    )),
    ObserverCase(semaphore.play_semaphore, semaphore.PATH, semaphore.PATH, semaphore.distsync_core, "initial", (
        (lambda core: core.value(), is_free),
        (lambda core: core.capacity(), is_capacity),
    )),
    pool(semaphore.kazoo_core, semaphore.PATH, f"{semaphore.PATH}-__lock__"),
    pool(semaphore.curator_core, f"{semaphore.PATH}/leases", f"{semaphore.PATH}/locks"),
    ObserverCase(condition.run_condition, condition.PATH, f"{condition.PATH}/waiters",
        lambda process, _: ConditionCore(condition.PATH, receipts(process)), "", (
        (lambda core: core.waiting(), is_count),
    )),
    ObserverCase(lambda world: lock.run(world, 1), lock.PATH, lock.PATH, lambda process, _: None, "", (
        (lambda _: wait_queue.contenders(lock.PATH), is_listing),
        (lambda _: cache_revocation.holders_and_waiters(lock.PATH), is_listing),
        (holder_names, are_names),
    )),
    ObserverCase(barrier.run, barrier.PATH, barrier.PATH,
        lambda process, parties: BarrierCore(barrier.PATH, parties, receipts(process)), "parties", (
        (lambda core: core.state(), is_barrier_state),
    )),
    ObserverCase(double_barrier.run, double_barrier.PATH, double_barrier.PATH,
        lambda process, parties: DoubleBarrierCore(double_barrier.PATH, parties), "parties", (
        (lambda core: core.state(), is_double_barrier_state),
    )),
)  # fmt: skip


async def reader(world: Simulation, process: SimProcess, case: ObserverCase, states: States) -> None:
    """Read a few times, once another process uses the primitive."""
    size = 0
    while case.size:
        await Wait(limit=0.001)
        cores = [each.shared[case.core] for each in world.processes.values() if case.core in each.shared]
        if cores:
            size = getattr(cores[0], case.size)
            break
    core = case.make(process, size)
    for _ in range(world.rng.randint(1, 4)):
        look, fits = world.rng.choice(case.reads)
        begun, timeout = len(states.all) - 1, maybe_timeout(world)
        try:
            seen = await Run(look(core), timeout)  # type: ignore[arg-type]
        except DeadlineError:
            if timeout is None:
                raise
            continue
        if not fits(seen, states.all[begun:], size):
            world.fail(f"{case.truth} was read as {seen}, but was {states.all[begun:]}")
        await Wait(limit=world.rng.randint(0, 20) / 1000)


def run(world: Simulation) -> None:
    case = world.rng.choice(CASES)
    states = States(world, case.truth)
    world.checks.append(states)
    process = world.process("reader")
    spawn(process, reader(world, process, case, states))
    case.run(world)


OBSERVERS = Scenario("observers", run)
