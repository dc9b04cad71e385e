"""Judgment of a barrier by the server's tree: its waiters, those it let pass, and since when it is
broken.

It uses the znodes and what the threads recorded; of the barrier's data only whether it is broken,
the generation, and the position up to which a reset has removed waiters. The data of a waiter's
znode is the call (JSON).

A reset removes all waiters before its mark. Once the mark is gone, the data decides: other waiters
may go either way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from simulation.engine.invariants import Check
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record

from distsync._protocols.steps import Create, Together

#: Maximum time until a sleeping waiter is notified of a change of the barrier's znode.
PROMPT_MS = 3_000
#: Maximum time until a sleeping waiter notices a departure by itself: half a session timeout, and a
#: margin.
LOOK_MS = 8_000
#: Maximum time until an arriving party has seen the earlier waiters.
ARRIVING_MS = 1_000


@dataclass
class WaiterNode:
    """A waiter's znode, while it exists."""

    name: str
    call: str
    session_id: int
    since_ms: int
    counted_on: set[str] = field(default_factory=set)
    """Whom it saw in its own group when it arrived."""
    told_ms: int | None = None
    """Since when the barrier's znode shows that it waits in vain."""
    alone_ms: int | None = None
    """Since when another waiter that it counted on is gone."""
    sent_away: bool = False
    """Whether it was enqueued when the barrier was reset."""
    counts: bool = False
    """Whether it arrived as one of those that are to pass."""
    doubtful: bool = False
    """The mark of that reset has vanished, and nothing else says that it was sent away."""

    @property
    def number(self) -> int:
        return number_of(self.name)


@dataclass(frozen=True)
class PendingBreak:
    """A call of this turn that gave up, and must break the barrier, whatever happened to its
    connection.
    """

    call: str
    process: str
    turn: tuple[int, int]
    unheard: tuple[int, ...] = ()
    """The sessions in which it was enqueued, if its process did not know that this was in this turn."""


class BarrierOracle(Check):
    """Judges each change of the barrier, and the result of each call."""

    def __init__(self, path: str, parties: int, acts: bool, leaves: bool = False) -> None:
        self.path = path
        self.leaves = leaves
        self.parties = parties
        self.acts = acts
        self.line: dict[str, WaiterNode] = {}
        self.gone: dict[str, WaiterNode] = {}
        self.version, self.generation, self.broken, self.breaks, self.full_ms = -1, -1, False, 0, -1
        self.passed: dict[str, int] = {}
        self.arrived: dict[str, Record] = {}
        self.done: dict[str, Record] = {}
        self.acted: list[str] = []
        self.marks: dict[str, Record] = {}
        """The marks of resets, and the call that made each."""
        self.begun: dict[str, Any] = {}
        self.resetters: list[Record] = []
        self.stragglers = False
        """Whether a waiter may doubt since the last reset: it breaks the barrier if it believes it was removed."""
        self.owing: tuple[int, str] | None = None
        """Since when it should be broken, as this call was interrupted."""
        self.turns: dict[str, tuple[int, int]] = {}
        """In which turn each call arrived."""
        self.debts: list[PendingBreak] = []

    # --- events of the threads

    def see(self, world: Simulation, record: Record) -> None:
        say = getattr(self, f"_{record.event.replace(' ', '_')}", None)
        if say is not None:
            say(world, record)

    def _arrives(self, world: Simulation, record: Record) -> None:
        self.arrived[record.call] = record
        self.turns[record.call] = self.turn

    def _acts(self, world: Simulation, record: Record) -> None:
        self.acted.append(record.call)

    def _passes(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record
        index = self.passed.get(record.call)
        if index != record.index:
            world.fail(f"{record.call} passes with the index {record.index}; the barrier let it pass with {index}")

    def _broken(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record
        if unhurt(world, record) and record.call in self.passed:
            world.fail(f"{record.call} found the barrier broken, and others passed with it")
        self._judge_time(world, record)
        self._note_debt(world, record)

    def _leaves(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record

    def _acted_badly(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record

    def _resetting(self, world: Simulation, record: Record) -> None:
        self.begun[record.task] = list(self.line.values())
        self.resetters.append(record)

    def _reset(self, world: Simulation, record: Record) -> None:
        missed = [
            stay.call for stay in self.begun.pop(record.task) if stay in self.line.values() and not stay.sent_away
        ]
        if missed:
            world.fail(f"{record.task} has reset the barrier, and {missed} are still enqueued")

    def _aborting(self, world: Simulation, record: Record) -> None:
        self.begun[record.task] = -1 if self.broken else self.breaks

    def _aborted(self, world: Simulation, record: Record) -> None:
        if self.breaks == self.begun.pop(record.task):
            world.fail(f"{record.task} has broken the barrier, and it was not broken since")

    def _judge_time(self, world: Simulation, record: Record) -> None:
        """Check that sleeping waiters are notified soon."""
        stays = [stay for stay in (*self.line.values(), *self.gone.values()) if stay.call == record.call]
        for stay in stays if unhurt(world, record) else ():
            for since_ms, most_ms in ((stay.told_ms, PROMPT_MS), (stay.alone_ms, LOOK_MS)):
                if since_ms is not None and record.at_ms - since_ms > most_ms:
                    world.fail(f"{record.call} slept for {record.at_ms - since_ms} ms at a barrier that was broken")

    # --- calls that gave up

    @property
    def turn(self) -> tuple[int, int]:
        """Number that changes when the barrier opens, is reset, or breaks."""
        return max(0, self.generation), self.breaks

    def _note_debt(self, world: Simulation, record: Record) -> None:
        """Note that a call must break the barrier.

        A call that never enqueued, and does not know the turn that misses it, need not break it;
        nor one that was removed behind enough others, whether its time is over or not.
        """
        call, turn = record.call, self.turns[record.call]
        stays = [stay for stay in (*self.line.values(), *self.gone.values()) if stay.call == call]
        in_time = record.at_ms < self.arrived[call].until_ms
        taken_out = in_time or any(stay.session_id in world.tampered for stay in stays)
        if taken_out and stays and not any(stay.counts for stay in stays):
            return
        knew = self.arrived[call].knows == turn[0]
        if not self.broken and turn == self.turn and (stays or knew):
            unheard = () if knew else tuple(stay.session_id for stay in stays)
            self.debts.append(PendingBreak(call, record.process, turn, unheard))

    def _unpaid(self, world: Simulation, process: str) -> list[str]:
        """A call whose session ended before it learned that it was enqueued cannot know it any more."""
        live = world.server.engine.sessions
        self.debts = [
            debt
            for debt in self.debts
            if debt.turn == self.turn and (not debt.unheard or any(each in live for each in debt.unheard))
        ]
        return [debt.call for debt in self.debts if debt.process == process]

    def _judge_anew(self, world: Simulation, stay: WaiterNode) -> None:
        """A call that follows one that gave up finds the barrier broken, as do later calls of its
        process.
        """
        record = self.arrived[stay.call]
        earlier = [call for call in self._unpaid(world, record.process) if self.done[call].at_ms < record.at_ms]
        if earlier:
            world.fail(f"{stay.call} stands at a barrier which {earlier}, of its own process, did not break yet")

    def _judge_debts(self, world: Simulation) -> None:
        for process in world.processes.values():
            unpaid = self._unpaid(world, process.name)
            if process.alive and unpaid:
                world.fail(f"{unpaid} gave up, and the barrier was not broken by it")

    # --- changes in the server's tree

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(self.path)
        if node is None:
            return
        names = [name for name in node.children if "-lock-" in name]
        marks = {name for name in node.children if "-reset-" in name}
        if node.version == self.version and set(names) == self.line.keys() and marks == self.marks.keys():
            return
        left = [stay for name, stay in self.line.items() if name not in node.children]
        for stay in left:
            self.gone[stay.name] = self.line.pop(stay.name)
        moved, self.version = node.version != self.version, node.version
        said = json.loads(node.data or b"")
        after = max([-1 if said["after"] is None else said["after"], *map(number_of, marks)])
        taken = {name: self.marks.pop(name) for name in self.marks.keys() - marks}
        was_broken, self.broken = self.broken, bool(said["broken"])
        before, self.generation = self.generation, said["generation"]
        turned = self.generation != before
        if self.generation < before or before < 0:
            self._is_new()
        elif turned and not self.broken and not left:
            self._is_reset(world, marks)
        elif turned and not self.broken:
            self._opens(world, was_broken, left)
        elif self.broken and not was_broken:
            self._breaks(world)
        elif not moved and left:
            self._leave(world, left)
        for name, resetter in taken.items():
            if number_of(name) > after:
                self._is_unmarked(world, name, resetter, after)
        for name in names:
            if name not in self.line:
                self._stands(world, name)
        self._judge_fullness(world)

    def _is_reset(self, world: Simulation, marks: set[str]) -> None:
        made = marks - self.marks.keys()
        if len(made) != 1 or any(stay.number > number_of(min(made)) for stay in self.line.values()):
            world.fail(f"the barrier is reset with the marks {made}, and {list(self.line)} stand there")
        self.marks[min(made)] = self.resetters[-1]
        for stay in self.line.values():
            stay.sent_away, stay.doubtful = True, False
            stay.told_ms = stay.told_ms or world.now_ms
        self._is_new()

    def _is_new(self) -> None:
        """Nothing of the previous state counts."""
        self.stragglers = False
        self.acted.clear()
        self.owing = None
        self.full_ms = -1

    def _is_unmarked(self, world: Simulation, mark: str, resetter: Record, after: int) -> None:
        """Return whether the mark is gone, and neither the data nor another mark replaces it."""
        if unhurt(world, resetter) and all(each.kind != "intruder" for each in world.faults.injected):
            world.fail(f"{mark} has gone unread")
        for stay in (*self.line.values(), *self.gone.values()):
            if stay.sent_away and after < stay.number < number_of(mark):
                stay.sent_away, stay.doubtful = False, True
                stay.told_ms = stay.alone_ms = None
                stay.counted_on.clear()
                self.stragglers = True

    def group(self) -> list[WaiterNode]:
        """Return the first waiters that were not removed by a reset, as many as the barrier takes."""
        standing = [stay for stay in self.line.values() if not stay.sent_away]
        return sorted(standing, key=lambda stay: stay.number)[: self.parties]

    def _stands(self, world: Simulation, name: str) -> None:
        znode = world.server.engine.tree.node(f"{self.path}/{name}")
        assert znode is not None
        stay = self.line[name] = WaiterNode(name, json.loads(znode.data or b""), znode.owner, world.now_ms)
        group = self.group()
        if stay in group and not self.broken:
            stay.counts = True
            stay.counted_on = {other.name for other in group if other is not stay and not other.doubtful}
        if self.broken:
            stay.told_ms = world.now_ms
        self._judge_anew(world, stay)

    def _opens(self, world: Simulation, was_broken: bool, left: list[WaiterNode]) -> None:
        self.full_ms = -1
        self._judge_owing(world)
        members = sorted(left, key=lambda stay: stay.number)
        calls = [stay.call for stay in members]
        if was_broken:
            world.fail(f"a broken barrier let {calls} pass")
        if not len(calls) == len({call.partition(".")[0] for call in calls}) == self.parties:
            world.fail(f"{calls} pass, and it takes {self.parties}")
        for stay in members:
            record = self.arrived[stay.call]
            if stay.sent_away:
                world.fail(f"{stay.call} passes, although it was sent away by a reset")
            if stay.alone_ms is not None and world.now_ms - stay.alone_ms > LOOK_MS and unhurt(world, record):
                world.fail(f"{stay.call} passes, although a waiter that it counted on left long ago")
        if self.passed.keys() & set(calls):
            world.fail(f"some of {calls} pass again")
        self.passed |= {call: index for index, call in enumerate(calls)}
        self._judge_action(world, calls)

    def _judge_action(self, world: Simulation, calls: list[str]) -> None:
        acted = [call for call in self.acted if call in calls]
        excused = world.faults.injected or self.stragglers
        if self.acts and (calls[-1] not in acted or (len(acted) > 1 and not excused)):
            world.fail(f"{calls} pass after the actions of {acted}")

    def _breaks(self, world: Simulation) -> None:
        self.breaks += 1
        self._judge_owing(world)
        for stay in self.line.values():
            stay.told_ms = stay.told_ms or world.now_ms
        if not world.faults.injected and not self._has_cause(world):
            world.fail("the barrier is broken, and nobody had a cause to break it")

    def _has_cause(self, world: Simulation) -> bool:
        """Without a fault, only an abort, or a call that timed out or whose action failed, may break
        the barrier.
        """
        sent_away = {stay.call for stay in (*self.line.values(), *self.gone.values()) if stay.sent_away}
        inside = [call for call in self.arrived if call not in self.done and call not in sent_away]
        failed = {record.call for record in world.history.events("acts") if record.badly}
        late = [call for call in inside if self.arrived[call].until_ms <= world.now_ms]
        aborting = any(isinstance(begun, int) for begun in self.begun.values())
        return bool(late or failed.intersection(inside) or aborting or self.stragglers)

    def _leave(self, world: Simulation, left: list[WaiterNode]) -> None:
        """A waiter left without passing: those that counted on it may not pass any more."""
        for gone in left:
            for stay in self.line.values():
                if gone.name in stay.counted_on and world.now_ms - stay.since_ms > ARRIVING_MS and not gone.sent_away:
                    stay.alone_ms = stay.alone_ms or world.now_ms
            first = sorted([*self.group(), gone], key=lambda stay: stay.number)[: self.parties]
            counted = gone in first and not (gone.sent_away or gone.doubtful or self.broken)
            if counted and not self.leaves and should_break(world, gone, self.arrived):
                self.owing = self.owing or (world.now_ms, gone.call)

    def _judge_owing(self, world: Simulation) -> None:
        owing, self.owing = self.owing, None
        if owing is not None and world.now_ms - owing[0] > PROMPT_MS and only_interrupts(world):
            world.fail(f"{owing[1]} was interrupted and went, and did not break the barrier at once")

    def end(self, world: Simulation) -> None:
        self._judge_owing(world)
        self._judge_debts(world)

    def _judge_fullness(self, world: Simulation) -> None:
        """When all parties are there, one of them opens or breaks the barrier soon."""
        group = self.group()
        full = len(group) == self.parties and not self.broken
        if self.full_ms >= 0 and world.now_ms - self.full_ms > LOOK_MS and not world.faults.injected:
            world.fail(f"{world.now_ms - self.full_ms} ms long all were there, and nobody passed")
        if not full:
            self.full_ms = -1
        elif self.full_ms < 0:
            self.full_ms = world.now_ms


def number_of(name: str) -> int:
    """Return the sequence number at the end of a name."""
    return int(name[-10:])


def unhurt(world: Simulation, record: Record) -> bool:
    """Return whether no fault has hit this process."""
    return world.faults.spared(record.process)


def only_interrupts(world: Simulation) -> bool:
    """Return whether nothing worse than Ctrl-C has hit this process."""
    return all(each.kind == "interrupt" for each in world.faults.injected)


def should_break(world: Simulation, gone: WaiterNode, arrived: dict[str, Record]) -> bool:
    """Return whether this call was interrupted while it knew that it was enqueued, and nothing else
    happened.
    """
    record = arrived[gone.call]
    at = [at for task, at in world.interrupts if task.name == record.task]
    creating = any(isinstance(step, Together) and isinstance(step.requests[0], Create) for step in at)
    return only_interrupts(world) and bool(at) and not creating and record.until_ms > world.now_ms
