"""Users of parameters: no two living users use different numbers, and a number that nobody uses can be changed.

The users are judged by the server's tree: a process uses a number while its registration is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from simulation.engine.call_frames import Run
from simulation.engine.faults import KINDS
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.scenarios.common import ROOT, Scenario, finish, processes, spawn, work
from simulation.scenarios.generation import DeadProcesses, start

from distsync._protocols.receipts import Operation
from distsync._protocols.state.parameter_users import ADOPT, ERROR, USER, WAIT, ParameterUser
from distsync._protocols.steps import Create, Node, SetData
from distsync.errors import DeadlineError, MismatchError, UnreachableError

PATH = f"{ROOT}/number/n"
FOLDER = f"{ROOT}/users/number/n"


class NumberCore:
    """An object whose record is a number."""

    def __init__(self, number: int, process: str, is_dead: DeadProcesses) -> None:
        self.path = PATH
        self.wanted = self.parameters = {"number": number}
        self.user = ParameterUser(self, FOLDER, process, is_dead, bytes.decode)

    def recorded(self, node: Node) -> dict[str, Any]:
        return dict(json.loads(node.data))

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> Sequence[Operation]:
        data = json.dumps(parameters).encode()
        return (Create(PATH, data) if node is None else SetData(PATH, data, node.stat.version),)


class OneNumber(Check):
    """Check the numbers of the users in the tree, and note when each number was used last."""

    def __init__(self, is_dead: DeadProcesses) -> None:
        self.is_dead = is_dead
        self.cores: list[tuple[SimProcess, NumberCore]] = []
        self.used_at: dict[tuple[str, int], int] = {}
        self.present: set[tuple[str, int]] = set()

    def changed(self, world: Simulation) -> None:
        tree = world.server.engine.tree
        folder, record = tree.node(FOLDER), tree.node(PATH)
        names = set(folder.children) if folder else set()
        users = [core for process, core in self.cores if core.user.name in names and self._uses(process, core)]
        used = {core.parameters["number"] for core in users}
        if record is not None:
            used.add(json.loads(record.data or b"")["number"])
        if len(used) > 1:
            world.fail(f"the numbers {sorted(used)} are used at the same time")
        for key in self.present:
            self.used_at[key] = world.now_ms
        nodes = {each: tree.node(f"{FOLDER}/{each}") for each in names}
        self.present = {
            (each, json.loads(node.data or b"")["parameters"]["number"]) for each, node in nodes.items() if node
        }
        for key in self.present:
            self.used_at[key] = world.now_ms

    def _uses(self, process: SimProcess, core: NumberCore) -> bool:
        """Return whether the process may use the object in its current session."""
        return core.user.session_id == process.session.session_id and not self.is_dead(process.name)

    def was_used(self, number: int, since_ms: int, but: str) -> bool:
        """Return whether another process was registered with this number since then."""
        others = {key: at for key, at in self.used_at.items() if not key[0].startswith(f"{USER}{but}_")}
        return any(key[1] == number and (key in self.present or at >= since_ms) for key, at in others.items())


async def user(
    world: Simulation, process: SimProcess, core: NumberCore, on_mismatch: str, check: OneNumber, left: list[int]
) -> None:
    """Use the number a few times. The last thread of a process then ends the use."""
    await Run(work(world))
    for _ in range(world.rng.randint(1, 3)):
        begun_ms = world.now_ms
        try:
            await Run(core.user.join({}, on_mismatch), world.rng.choice((None, None, 30.0)))
        except DeadlineError:
            continue
        except MismatchError as error:
            if on_mismatch != ERROR:
                world.fail(f"{error} in spite of {on_mismatch!r}")
            if not check.was_used(int(error.args[2]), begun_ms, process.name):
                world.fail(f"{error}, which no process used")
            continue
        await Run(work(world))
    left.pop()
    if left:
        return
    if world.rng.random() < 0.5:
        await Run(core.user.end())
    else:
        close(process)


def close(process: SimProcess) -> None:
    """Let a process exit in good order."""
    process.world.tampered.add(process.session.session_id)
    process.close()


async def until_interrupted(process: SimProcess, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await body()
    except (KeyboardInterrupt, UnreachableError):
        close(process)


def run(world: Simulation) -> None:
    is_dead = DeadProcesses(world)
    check = OneNumber(is_dead)
    world.checks.append(check)
    for process in processes(world, 2, 4):
        core = NumberCore(world.rng.choice((2, 3, 4)), process.name, is_dead)
        check.cores.append((process, core))
        on_mismatch = world.rng.choice((ERROR, WAIT, ADOPT))
        threads = list(range(world.rng.randint(1, 2)))
        delay = world.rng.choice((None, None, None, 5, 20, 60, 15_000))
        for number in tuple(threads):
            using = partial(user, world, process, core, on_mismatch, check, threads)
            body = until_interrupted(process, using)
            if delay is None:
                spawn(process, body, name=f"user{number}{process.name}")
            else:
                world.clockwork.after(delay, partial(start, process, body, number))
    finish(world)


#: A registration that another program deletes is no longer what this relies on.
PARAMETER_USERS = Scenario("parameter-users", run, tuple(kind for kind in KINDS if kind != "intruder"))
