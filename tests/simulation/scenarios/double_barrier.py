"""DoubleBarrier: nobody enters before all have arrived, nobody leaves before all are ready to or dead,
and dead members hold up nobody.

Members are read from the server's tree; the data of their znodes is the name of the call (JSON).
"""

from __future__ import annotations

import json

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check, NothingLeft
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import (
    OBSERVER,
    PROMPT_S,
    ROOT,
    Scenario,
    create_externally,
    separate_rng,
    spawn,
    work,
)

from distsync._protocols.barriers.double import DoubleBarrierCore
from distsync._protocols.steps import Wait
from distsync.errors import LockLostError

PATH = f"{ROOT}/double_barrier/d"

#: Time within which a waiter notices that all members inside are dead.
LOOK_MS = 8_000

#: Maximum duration of a fault.
PAUSE_MS = 15_000

#: Timeout of a patient member to enter: others may have been killed, or may not come.
PATIENCE_S = 30.0


class Meetings(Check):
    """Check each change of the members inside, and the result of each call."""

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.calls: dict[str, str] = {}
        """The call of each znode that ever existed. A call may have several, in different sessions."""
        self.present: set[str] = set()
        self.inside: tuple[str, ...] = ()
        self.admitted: set[str] = set()
        """The znodes that were admitted."""
        self.groups: dict[str, tuple[str, ...]] = {}
        """For each admitted call, all znodes that were admitted with it."""
        self.leaving: set[str] = set()
        self.begun_ms: dict[str, int] = {}
        """When each call began."""
        self.deserted_ms: int | None = None
        """Since when all members inside are dead."""
        self.last = False
        """Whether the last meeting, which has no faults, has begun."""

    def may_stay(self, path: str) -> bool:
        """Allow ``ready`` to remain if no member inside finished leaving; the next one that arrives
        removes it.
        """
        deserted = bool(self.inside) and self.present.isdisjoint(self.inside)
        return path.endswith("/ready") and deserted and not self.last

    # --- changes on the server

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(PATH)
        if node is None:
            return
        self.present = {name for name in node.children if name != "ready"}
        inside = tuple(json.loads(node.data)["inside"]) if node.data else ()
        for name in self.present - self.calls.keys():
            member = world.server.engine.tree.node(f"{PATH}/{name}")
            self.calls[name] = json.loads((member and member.data) or b"")
            if any(self.calls[other] == self.calls[name] for other in inside):
                world.fail(f"{self.calls[name]} arrives again while the others are inside with it")
        deserted = bool(inside) and self.present.isdisjoint(inside)
        self.deserted_ms = (self.deserted_ms or world.now_ms) if deserted else None
        if inside != self.inside:
            self.inside = inside
            self._judge_opening(world, inside)
        if ("ready" in node.children) != bool(inside):
            world.fail(
                f"ready is {'present' if 'ready' in node.children else 'missing'}, but the members inside are {inside}"
            )

    def _judge_opening(self, world: Simulation, names: tuple[str, ...]) -> None:
        calls = [self.calls[name] for name in names]
        for name, call in zip(names, calls, strict=True):
            if name not in self.present:
                world.fail(f"{calls} enter, but {call} has left")
            if name in self.admitted:
                world.fail(f"{call} enters again")
            self.admitted.add(name)
            self.groups[call] = names
        if names and not len(calls) == len(threads_of(calls)) == self.parties:
            world.fail(f"{calls} enter, but {self.parties} are required")
        if any(name in self.present for name in self.admitted.difference(names)):
            world.fail(f"{calls} enter before all of the last meeting have left")

    # --- records of the threads

    def see(self, world: Simulation, record: Record) -> None:
        say = getattr(self, f"_{record.event.replace(' ', '_')}", None)
        if say is not None:
            say(world, record)

    def _enters(self, world: Simulation, record: Record) -> None:
        self.begun_ms[record.call] = world.now_ms

    def _entered(self, world: Simulation, record: Record) -> None:
        if record.call not in self.groups:
            world.fail(f"{record.call} has entered, but was not admitted")

    def _not_entered(self, world: Simulation, record: Record) -> None:
        if record.call in self.groups and not world.faults.injected:
            world.fail(f"{record.call} was admitted, but enter returned False")
        if record.call in [self.calls[name] for name in self.present] and not world.faults.injected:
            world.fail(f"{record.call} gave up, but its znode remains")
        if self.deserted_ms is not None:
            since_ms = max(self.deserted_ms, self.begun_ms[record.call], world.faults.last_ms + PAUSE_MS)
            if world.now_ms - since_ms > LOOK_MS:
                world.fail(f"{record.call} waited for members that had been dead for {world.now_ms - since_ms} ms")

    def _leaves(self, world: Simulation, record: Record) -> None:
        self.leaving.add(record.call)

    def _left(self, world: Simulation, record: Record) -> None:
        if record.call in [self.calls[name] for name in self.inside]:
            world.fail(f"{record.call} has left, but its meeting is not over")
        for name in self.groups[record.call]:
            call = self.calls[name]
            if call not in self.leaving and (name in self.present or not world.faults.injected):
                world.fail(f"{record.call} leaves, but {call} is not ready to")

    def _lost(self, world: Simulation, record: Record) -> None:
        if not world.faults.injected:
            world.fail(f"a loss without a fault: {record.call}")


def threads_of(calls: list[str]) -> set[str]:
    """Return the threads that made these calls."""
    return {call.partition(".")[0] for call in calls}


class Member:
    """A thread at the barrier."""

    def __init__(self, world: Simulation, process: SimProcess, parties: int, name: str, patient: bool) -> None:
        self.world = world
        self.name = name
        self.patient = patient
        self.core = process.local(PATH, lambda: DoubleBarrierCore(PATH, parties))

    async def meet(self, turns: int) -> None:
        """Meet the others ``turns`` times."""
        for turn in range(turns):
            await Run(work(self.world) if self.patient or self.world.rng.random() < 0.7 else a_while(self.world))
            try:
                await self._once(f"{self.name}.{turn}")
            except LockLostError:
                self.world.record("lost", call=f"{self.name}.{turn}")

    async def _once(self, call: str) -> None:
        world = self.world
        seconds = PATIENCE_S if self.patient else world.rng.choice((0.0, 0.02, 1.0, PATIENCE_S))
        world.record("enters", call=call)
        try:
            entered = await Run(self.core.enter(json.dumps(call).encode(), self), seconds)
        except BaseException:
            self.core.visits.pop(self, None)
            raise
        world.record("entered" if entered else "not entered", call=call)
        if not entered:
            return
        try:
            await Run(work(world))
        finally:
            world.record("leaves", call=call)
            all_left = await Run(self.core.leave(self), None if self.patient else world.rng.choice((None, 0.0, 0.02)))
            world.record("left" if all_left else "left in vain", call=call)


async def a_while(world: Simulation) -> None:
    await Wait(limit=world.rng.randint(0, 20))


def run(world: Simulation) -> None:
    rng = world.rng
    parties, turns = rng.randint(1, 4), rng.randint(1, 3)
    surplus = rng.choice((0, 0, 0, 1, 2, 3))
    meetings = Meetings(parties)
    world.checks += [meetings, NothingLeft(f"{PATH}/", meetings.may_stay)]
    if separate_rng(world, "double barrier").random() < 0.15:
        create_externally(world, PATH, b"")  # which does not contain the number of parties
    made = [world.process(name) for name in "abcd"[: rng.randint(1, parties)]]
    all_patient = not surplus
    for number in range(parties + surplus):
        process = made[number % len(made)]
        patient = number < parties and rng.random() < 0.8
        all_patient = all_patient and patient
        spawn(process, Member(world, process, parties, f"m{number}", patient).meet(turns))
    world.run()
    if all_patient and not world.faults.injected and world.done_ms > PROMPT_S * 1000:
        world.fail(f"took {world.done_ms} ms without a fault: a waiter was not notified")
    meet_once_more(world, meetings)
    world.close()


def meet_once_more(world: Simulation, meetings: Meetings) -> None:
    """Check that a last meeting succeeds promptly and leaves nothing, whatever happened before."""
    meetings.last = True
    late, begun_ms = world.process(OBSERVER), world.now_ms
    for number in range(meetings.parties):
        spawn(late, Member(world, late, meetings.parties, f"last{number}", True).meet(1))
    world.run()
    met = [record.call for record in world.history.events("left") if record.process == OBSERVER]
    if len(met) != meetings.parties or world.done_ms - begun_ms > PROMPT_S * 1000:
        world.fail(f"{met} met at the end, in {world.done_ms - begun_ms} ms, but {meetings.parties} are required")


DOUBLE_BARRIER = Scenario("double-barrier", run)
