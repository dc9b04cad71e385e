"""Waits for a state of a watched znode: a waiter wakes when the state is there, and gets that state.

The count increases. Now and then an external client writes unreadable data, and repairs it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios import partitioner
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    maybe_timeout,
    processes,
    receipts,
    sleepers,
    spawn,
    work,
)

from distsync._protocols.state.config import ConfigCore, ConfigSnapshot
from distsync._protocols.steps import GetData, SetData, Wait
from distsync.errors import CorruptNodeError, DeadlineError, OutcomeUnknownError, ZnodeError

PATH = f"{ROOT}/config/w"
UNREADABLE = b"?"


def decoded(data: bytes) -> dict[str, Any]:
    if data == UNREADABLE:
        raise CorruptNodeError(PATH, data)
    return dict(json.loads(data))


def core_of(process: SimProcess) -> ConfigCore:
    encode = lambda values: json.dumps(values).encode()  # noqa: E731
    return process.local(PATH, lambda: ConfigCore(PATH, receipts(process), encode, decoded))


def count_of(settings: ConfigSnapshot) -> int:
    return int(settings.values.get("count", 0))


def has_more(seen: int, settings: ConfigSnapshot) -> bool:
    return count_of(settings) > seen


def truth(world: Simulation) -> int | None:
    """Return the current count; None if the data is unreadable."""
    node = world.server.engine.tree.node(PATH)
    data = b"{}" if node is None else node.data or b"{}"
    return None if data == UNREADABLE else int(json.loads(data).get("count", 0))


async def counter(world: Simulation, process: SimProcess, steps: int) -> None:
    """Try to count up ``steps`` times."""
    for _ in range(steps):
        try:
            await Run(core_of(process).change(lambda values: {"count": values.get("count", 0) + 1}))
        except OutcomeUnknownError:
            pass
        except CorruptNodeError:
            await Wait(limit=0.05)
        await Run(work(world))


async def spoiler(world: Simulation) -> None:
    """Write unreadable data, and restore the previous data after a while."""
    await Run(work(world))
    try:
        before = world.external_client(GetData(PATH))
        world.external_client(SetData(PATH, UNREADABLE, before.stat.version))
    except ZnodeError:
        return
    world.record("spoilt")
    await Wait(limit=world.rng.choice((0.01, 0.1, 40.0)))
    world.external_client(SetData(PATH, before.data))


async def waiter(world: Simulation, process: SimProcess) -> None:
    """Wait for a higher count, or for any other state."""
    view = core_of(process).view
    for _ in range(world.rng.randint(1, 3)):
        timeout = maybe_timeout(world)
        try:
            seen = count_of(await Run(view.get()))
            if world.rng.random() < 0.5:
                found = await Run(view.until(partial(has_more, seen)), timeout)
                if found is not None and count_of(found) <= seen:
                    world.fail(f"until more than {seen} returned {found}")
                ended = found is not None
            else:
                ended = await Run(view.wait_for_change(), timeout)
            if not ended and timeout is None:
                world.fail("a wait without a deadline ended without a result")
        except CorruptNodeError:
            if not world.history.events("spoilt"):
                raise
            await Wait(limit=0.05)


class ListenerLog:
    """The states reported to a listener: each must follow the previous one."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.last: ConfigSnapshot | None = None

    def __call__(self, before: ConfigSnapshot, now: ConfigSnapshot) -> None:
        if self.last is not None and before != self.last:
            self.world.fail(f"notified of a change from {before} after {self.last}")
        if before == now:
            self.world.fail(f"notified of a change from {before} to {now}")
        self.last = now


async def listen(process: SimProcess, log: ListenerLog) -> None:
    await Run(core_of(process).view.add_listener(log))


def play_settings(world: Simulation) -> None:
    rng, listeners = world.rng, []
    for process in processes(world, 2, 3):
        spawn(process, counter(world, process, rng.randint(0, 3)), name="counter")
        if rng.random() < 0.7:
            spawn(process, waiter(world, process), name="waiter", daemon=True)
        if rng.random() < 0.5:
            listeners.append((process, ListenerLog(world)))
            spawn(process, listen(*listeners[-1]), name="listener")
    if rng.random() < 0.5:
        outside = world.process("outside")
        spawn(outside, spoiler(world), name="spoiler")
    world.run()
    check_sleepers(world)
    for process, log in listeners:
        if process.alive and log.last is not None and count_of(log.last) != truth(world) and truth(world) is not None:
            world.fail(f"{process.name} was last notified of {log.last}, but the count is {truth(world)}")
    world.close()


def check_sleepers(world: Simulation) -> None:
    """Check that a process with a waiter has a current copy."""
    there = truth(world)
    for process in world.processes.values():
        waiting = [name for name in sleepers(world) if name == f"{process.name}/waiter"]
        view = core_of(process).view if waiting else None
        if view is not None and there is not None and not view.current:
            world.fail(f"{process.name} waits with an outdated copy")


# Shares


async def watcher(world: Simulation, process: SimProcess) -> None:
    """Wait for changes of the process's shares."""
    core = partitioner.core_of(process)
    for _ in range(world.rng.randint(1, 4)):
        changed, losses = core.changed, [grant.loss for grant in core.held.values()]
        timeout = world.rng.choice((0.0, 0.05, 0.5))
        until_ms = world.now_ms + round(timeout * 1000)
        try:
            await Run(core.wait_for_change(changed), timeout)
        except DeadlineError:
            pass
        in_time = world.now_ms < until_ms
        if in_time and not changed.fired and not any(loss.fired for loss in losses) and not world.faults.injected:
            world.fail("notified of a change of the shares without one")


def play_shares(world: Simulation) -> None:
    process = world.process("watcher")
    spawn(process, partitioner.member(world, process))
    spawn(process, watcher(world, process))
    partitioner.run(world)


def run(world: Simulation) -> None:
    if world.rng.random() < 0.7:
        play_settings(world)
    else:
        play_shares(world)


WATCH_WAITS = Scenario("watch-waits", run)
