"""Registry: an entry is found by its own process at once, by others soon, and as long as the process
lives.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import (
    OBSERVER,
    ROOT,
    Scenario,
    check_final_reads,
    finish,
    is_disrupted,
    maybe_timeout,
    processes,
    receipts,
    separate_rng,
    sleepers,
    spawn,
    work,
)

from distsync._protocols.state.registry import RegistryCore
from distsync.errors import OutcomeUnknownError

PATH = f"{ROOT}/registry/r"


def core_of(process: SimProcess) -> RegistryCore:
    return process.local(PATH, lambda: RegistryCore(PATH, receipts(process)))


Due = dict[str, SimProcess]
"""The entries that must exist while the process lives: their registration was acknowledged, and not
changed since.
"""


class TakenNameRefused(Check):
    """A registration that replaces no other one replaces none of another process.

    It may replace one of its own process. If another process replaces that one first, the version of
    its znode may be the same, so that the server cannot refuse the change. Such registrations in
    progress are therefore exempt.
    """

    def __init__(self) -> None:
        self.not_replacing: set[bytes] = set()
        """Data of the registrations that replace no other one; it begins with the process's name."""
        self.last = b""

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(f"{PATH}/all")
        before, self.last = self.last, (node and node.data) or b""
        if before and self.last in self.not_replacing and self.last[:1] != before[:1]:
            world.fail(f"{self.last!r} has replaced {before!r}, although the name was taken")
        if before and self.last and self.last[:1] != before[:1]:
            self.not_replacing = {data for data in self.not_replacing if data[:1] != before[:1]}


async def registrar(world: Simulation, process: SimProcess, number: int, due: Due, taken: TakenNameRefused) -> None:
    """Register names of its own, and one for which all processes compete."""
    core = core_of(process)
    own = f"{process.name}{number}"
    for turn in range(world.rng.randint(1, 3)):
        name = world.rng.choice((own, own, "all"))
        data = f"{own}-{turn}".encode()
        persistent, replaces = world.rng.random() < 0.4, world.rng.random() < 0.7
        if not replaces:
            taken.not_replacing.add(data)
        try:
            if name == own:
                due.pop(own, None)
            put = await Run(core.put(name, data, persistent, replaces))
            if put and name == own:
                due.update({} if persistent else {own: process})
                await check_found(world, process, core, name, data)
            await Run(work(world))
            if world.rng.random() < 0.4:
                if name == own:
                    due.pop(own, None)
                await Run(core.remove(name))
                if name == own:
                    await check_found(world, process, core, name, None)
        except OutcomeUnknownError:
            continue


async def check_found(
    world: Simulation, process: SimProcess, core: RegistryCore, name: str, data: bytes | None
) -> None:
    """Check that a process sees its change at once, unless its session was lost or the entry was
    deleted externally.
    """
    asks = separate_rng(world, f"looks up {name} {world.now_ms}").random() < 0.3
    node = await Run(core.look_up(name)) if asks else (await Run(core.view.get())).get(name)
    found = node and node.data
    if found != data and not is_disrupted(world, process) and process.session.session_id not in world.tampered:
        if not (data is None and world.interrupts):
            world.fail(f"{process.name} registered {name} as {data!r}, but found {found!r}")


async def waiter(world: Simulation, process: SimProcess, name: str) -> None:
    """Wait for a name; the entry found must be one that was registered."""
    node = await Run(core_of(process).find(name), maybe_timeout(world))
    if node is not None and not node.data.startswith(b"" if name == "all" else name.encode()):
        world.fail(f"{process.name} waited for {name}, but found {node.data!r}")


async def looker(process: SimProcess, seen: dict[str, bytes]) -> None:
    core = core_of(process)
    while True:
        entries = await Run(core.view.get())
        seen.clear()
        seen.update({name: node.data for name, node in entries.items()})
        await Run(core.view.changed(entries))


def entries(world: Simulation) -> dict[str, bytes]:
    tree = world.server.engine.tree
    folder = tree.node(PATH)
    nodes = {name: tree.node(f"{PATH}/{name}") for name in (folder.children if folder else ())}
    return {name: node.data or b"" for name, node in nodes.items() if node}


async def seen_by(process: SimProcess) -> dict[str, bytes]:
    return {name: node.data for name, node in (await core_of(process).view.get()).items()}


def check_final_state(world: Simulation, seen: dict[str, bytes], due: Due) -> None:
    waiting = [name for name in entries(world) if any(f"waiter-{name}" in task for task in sleepers(world))]
    if waiting:
        world.fail(f"{waiting} are registered, but waiters for them still wait")
    check_final_reads(world, "entries", seen_by, lambda: entries(world))
    tree = world.server.engine.tree
    folder = tree.node(PATH)
    nodes = {name: tree.node(f"{PATH}/{name}") for name in (folder.children if folder else ())}
    if seen != entries(world):
        world.fail(f"{OBSERVER} has seen {seen}, but the entries are {entries(world)}")
    for process in world.processes.values():
        owned = {name for name, node in nodes.items() if node and node.owner == process.session.session_id}
        mine = set(core_of(process).mine)
        if process.alive and process.session.session_id and mine != owned:
            world.fail(f"{process.name} considers {mine} its own, but owns {owned}")
        missing = {name for name, owner in due.items() if owner is process} - owned
        if process.alive and process.session.session_id and missing and not world.tampered:
            world.fail(f"{process.name} registered {missing}, which no longer exist")


def run(world: Simulation) -> None:
    due: Due = {}
    taken = TakenNameRefused()
    world.checks.append(taken)
    for process in processes(world, 2, 3):
        for number in range(world.rng.randint(1, 2)):
            spawn(process, registrar(world, process, number, due, taken))
            if world.rng.random() < 0.3:
                name = world.rng.choice(("all", "a0", "b0", "never"))
                spawn(process, waiter(world, process, name), name=f"waiter-{name}", daemon=True)
    seen: dict[str, bytes] = {}
    observer = world.process(OBSERVER)
    spawn(observer, looker(observer, seen), daemon=True)
    finish(world, lambda: check_final_state(world, seen, due))


REGISTRY = Scenario("registry", run)
