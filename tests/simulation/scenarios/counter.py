"""Counter: each addition counts once. Value: no update is lost, and each waiter is notified of the
last one.

The final state is read from the server's tree.
"""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Iterable
from itertools import pairwise

from simulation.engine.call_frames import Run
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    ROOT,
    Scenario,
    finish,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    sleepers,
    spawn,
    work,
)

from distsync._protocols.state.counter import CounterCore
from distsync._protocols.state.versioned_value import ValueCore
from distsync._protocols.steps import Exists, GetData, Node
from distsync.errors import DeadlineError, OutcomeUnknownError

COUNTER_PATH = f"{ROOT}/counter/c"
VALUE_PATH = f"{ROOT}/value/v"

#: The counter is only set to distinct multiples of this, and additions sum to less, so that a
#: number shows which set it derives from.
ERA_SIZE = 1000
SETTING = ("setting", "set")

#: Seconds of a call; None for no limit.
TIMEOUTS = (None, None, None, 0.0, 0.1, 1.0)


# Counter


async def adder(world: Simulation, process: SimProcess) -> None:
    """Add a few times, by ``add`` or by compare-and-set, and sometimes set the number."""
    core = process.local(COUNTER_PATH, lambda: CounterCore(COUNTER_PATH, 0, receipts(process)))
    timeouts = separate_rng(world, process.name)
    for _ in range(world.rng.randint(1, 5)):
        if world.rng.random() < 0.15:
            await set_number(world, core)
        amount = world.rng.randint(1, 9)
        if world.rng.random() < 0.3:
            await Run(work(world))
        seen = await Run(core.get()) if world.rng.random() < 0.3 else None
        world.record("adding", amount=amount)
        try:
            if seen is None:
                number = await Run(core.add(amount), timeouts.choice(TIMEOUTS))
            elif await Run(core.compare_and_set(seen, seen + amount), timeouts.choice(TIMEOUTS)):
                number = seen + amount
            else:
                world.record("refused", amount=amount)
                continue
        except (OutcomeUnknownError, DeadlineError):
            world.record("unknown", amount=amount)
            continue
        world.record("added", amount=amount, number=number)


async def set_number(world: Simulation, core: CounterCore) -> None:
    number = ERA_SIZE * (len(world.history.events("setting")) + 1)
    world.record("setting", number=number)
    try:
        await Run(core.set(number))
    except OutcomeUnknownError:
        return
    world.record("set", number=number)


def play_counter(world: Simulation) -> None:
    for process in processes(world, 1, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, adder(world, process))
    finish(world, lambda: judge_counter(world))


def judge_counter(world: Simulation) -> None:
    """Check that the number is the last value set, plus all acknowledged additions since, plus some of
    those with an unknown outcome.
    """
    history = world.history
    added = history.events("added")
    spans = sorted((record.number - record.amount, record.number) for record in added)
    for (_, end), (begin, _) in pairwise(spans):
        if begin < end:
            world.fail(f"two additions both led to {end}: {spans}")
    answered = Bag(record.amount for record in (*added, *history.events("refused")))
    open_calls = (Bag(record.amount for record in history.events("adding")) - answered).elements()
    there: Node | None = (
        world.external_client(GetData(COUNTER_PATH)) if world.external_client(Exists(COUNTER_PATH)) else None
    )
    number = int(there.data) if there else 0
    era, more = number // ERA_SIZE, number % ERA_SIZE
    sure = sum(record.amount for record in added if record.number // ERA_SIZE == era)
    if more - sure not in sums(open_calls):
        world.fail(f"{sure} was certainly added to {era * ERA_SIZE}, but the number is {number}")
    judge_era(world, era)


def judge_era(world: Simulation, era: int) -> None:
    """Check that no acknowledged set began after the one that the number derives from."""
    order = [(record.event, record.number // ERA_SIZE) for record in world.history.records if record.event in SETTING]
    later = order[order.index(("set", era)) :] if ("set", era) in order else [] if era else order
    newer = [each for event, each in later if event == "setting" and ("set", each) in order]
    if newer or era and ("setting", era) not in order:
        world.fail(f"the number belongs to era {era}, but the sets were {order}")


def sums(amounts: Iterable[int]) -> set[int]:
    """Return the sums of all subsets of ``amounts``."""
    found = {0}
    for amount in amounts:
        found |= {amount + each for each in found}
    return found


# Value


async def writer(world: Simulation, process: SimProcess, name: str) -> None:
    """Append marks by a read and a compare-and-set, as ``update`` does."""
    core = process.local(VALUE_PATH, lambda: ValueCore(VALUE_PATH, b"", receipts(process)))
    for turn in range(world.rng.randint(1, 4)):
        mark = f"{name}.{turn},".encode()
        try:
            while True:
                node = await Run(core.read_synced() if world.rng.random() < 0.2 else core.read())
                world.record("writing", mark=mark)
                if await Run(core.replace(node.stat.version, node.data + mark)) is not None:
                    break
        except OutcomeUnknownError:
            continue
        world.record("written", mark=mark)


async def listener(world: Simulation, process: SimProcess) -> None:
    """Wait for changes; each must be later than the previous one."""
    core = process.local(VALUE_PATH, lambda: ValueCore(VALUE_PATH, b"", receipts(process)))
    since, seen = None, b""
    while True:
        node = await Run(core.changed(since), maybe_timeout(world))
        if node is not None:
            if since is not None and node.stat.version <= since or not node.data.startswith(seen):
                world.fail(f"{node.data!r} of version {node.stat.version} comes after {seen!r} of {since}")
            since, seen = node.stat.version, node.data
            world.record("notified", data=seen)
        elif world.rng.random() < 0.2:
            return


def play_value(world: Simulation) -> None:
    for number, process in enumerate(processes(world, 2, 3)):
        for each in range(world.rng.randint(1, 2)):
            spawn(process, writer(world, process, f"w{number}{each}"))
        spawn(process, listener(world, process), name=f"listener{number}", daemon=True)
    world.run()
    judge_value(world)
    world.close()


def judge_value(world: Simulation) -> None:
    """Check that each acknowledged mark is present once, and that waiting listeners have seen the last
    change.
    """
    there = world.external_client(GetData(VALUE_PATH)).data if world.external_client(Exists(VALUE_PATH)) else b""
    marks = Bag(there.decode().split(",")[:-1])
    written = {record.mark.decode()[:-1] for record in world.history.events("written")}
    if not written <= marks.keys() or any(count > 1 for count in marks.values()):
        world.fail(f"{sorted(written)} were written, but the value is {there!r}")
    notified = {record.task: record.data for record in world.history.events("notified")}
    for name in sleepers(world):
        if name in notified and notified[name] != there:
            world.fail(f"{name} has seen {notified[name]!r}, and still waits while the value is {there!r}")


COUNTER = Scenario("counter", play_counter)
VALUE = Scenario("value", play_value)
