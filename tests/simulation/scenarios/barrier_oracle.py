"""What the server's tree shows of a barrier: the waiters, the calls that passed, and since when it is
broken.

The oracle uses the znodes and the threads' records. Of the barrier's data it reads only whether it
is broken, the generation, and up to which place in the queue a reset sent waiters away. The data of
a queued znode is its call (JSON).

A reset sends away all waiters before its mark. Once the mark is deleted, the data says which ones:
any others before the mark may pass or not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from simulation.engine.invariants import Check
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record

from distsync._protocols.steps import Multi, Pipeline

#: Time within which a waiter is notified of a change of the barrier's znode.
PROMPT_MS = 3_000
#: Time within which a waiter notices by itself that another one is gone: half a session timeout and
#: some more.
LOOK_MS = 8_000
#: Time within which an arriving call has certainly seen the earlier waiters.
ARRIVING_MS = 1_000


@dataclass
class WaiterNode:
    """A znode in the queue."""

    name: str
    call: str
    session_id: int
    since_ms: int
    counted_on: set[str] = field(default_factory=set)
    """The waiters that it saw in its own group when it arrived."""
    notified_ms: int | None = None
    """Since when the barrier's znode shows that it waits in vain."""
    alone_ms: int | None = None
    """Since when a waiter that it counted on is gone."""
    sent_away: bool = False
    """Whether it was queued when the barrier was reset."""
    counts: bool = False
    """Whether it arrived as a member of the group that is to pass."""
    doubtful: bool = False
    """Whether the mark of that reset is deleted, and nothing else says that it was sent away."""

    @property
    def number(self) -> int:
        return number_of(self.name)


@dataclass(frozen=True)
class PendingBreak:
    """A call that gave up in this turn, and so has to break the barrier, whatever happens to its
    connection.
    """

    call: str
    process: str
    turn: tuple[int, int]
    unheard: tuple[int, ...] = ()
    """The sessions in which it was queued, if its process did not know that it was in this turn."""


class BarrierOracle(Check):
    """Check each change of the barrier, and the result of each call."""

    def __init__(self, path: str, parties: int, acts: bool, leaves: bool = False) -> None:
        self.path = path
        self.leaves = leaves
        self.parties = parties
        self.acts = acts
        self.queue: dict[str, WaiterNode] = {}
        self.departed: dict[str, WaiterNode] = {}
        self.version, self.generation, self.broken, self.breaks, self.full_ms = -1, -1, False, 0, -1
        self.passed: dict[str, int] = {}
        self.arrived: dict[str, Record] = {}
        self.done: dict[str, Record] = {}
        self.acted: list[str] = []
        self.marks: dict[str, Record] = {}
        """The marks of resets, and the record of each reset."""
        self.begun: dict[str, Any] = {}
        self.resetters: list[Record] = []
        self.stragglers = False
        """Whether a waiter is doubtful since the last reset: one that considers itself sent away
        breaks the barrier.
        """
        self.owing: tuple[int, str] | None = None
        """Since when the barrier should be broken, because this call was interrupted."""
        self.turns: dict[str, tuple[int, int]] = {}
        """The turn in which each call arrived."""
        self.debts: list[PendingBreak] = []

    # --- records of the threads

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
            world.fail(f"{record.call} passed with the index {record.index}, but the barrier assigned {index}")

    def _broken(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record
        if is_unaffected(world, record) and record.call in self.passed:
            world.fail(f"{record.call} found the barrier broken, but its group passed")
        self._judge_time(world, record)
        self._note_debt(world, record)

    def _leaves(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record

    def _acted_badly(self, world: Simulation, record: Record) -> None:
        self.done[record.call] = record

    def _resetting(self, world: Simulation, record: Record) -> None:
        self.begun[record.task] = list(self.queue.values())
        self.resetters.append(record)

    def _reset(self, world: Simulation, record: Record) -> None:
        missed = [
            waiter.call
            for waiter in self.begun.pop(record.task)
            if waiter in self.queue.values() and not waiter.sent_away
        ]
        if missed:
            world.fail(f"{record.task} has reset the barrier, but {missed} are still queued")

    def _aborting(self, world: Simulation, record: Record) -> None:
        self.begun[record.task] = -1 if self.broken else self.breaks

    def _aborted(self, world: Simulation, record: Record) -> None:
        if self.breaks == self.begun.pop(record.task):
            world.fail(f"{record.task} has aborted the barrier, but it was not broken since")

    def _judge_time(self, world: Simulation, record: Record) -> None:
        """Check that a waiter is notified in time."""
        waiters = [waiter for waiter in (*self.queue.values(), *self.departed.values()) if waiter.call == record.call]
        for waiter in waiters if is_unaffected(world, record) else ():
            for since_ms, most_ms in ((waiter.notified_ms, PROMPT_MS), (waiter.alone_ms, LOOK_MS)):
                if since_ms is not None and record.at_ms - since_ms > most_ms:
                    world.fail(f"{record.call} waited for {record.at_ms - since_ms} ms at a broken barrier")

    # --- breaks that are due from calls that gave up

    @property
    def turn(self) -> tuple[int, int]:
        """The turn, which changes whenever the barrier opens, is reset, or breaks."""
        return max(0, self.generation), self.breaks

    def _note_debt(self, world: Simulation, record: Record) -> None:
        """Record that a call that gave up has to break the barrier.

        It need not if it never was queued and did not know this turn, nor if it was taken out of
        the queue behind a full group, whether or not its time was over.
        """
        call, turn = record.call, self.turns[record.call]
        waiters = [waiter for waiter in (*self.queue.values(), *self.departed.values()) if waiter.call == call]
        in_time = record.at_ms < self.arrived[call].until_ms
        taken_out = in_time or any(waiter.session_id in world.tampered for waiter in waiters)
        if taken_out and waiters and not any(waiter.counts for waiter in waiters):
            return
        knew = self.arrived[call].knows == turn[0]
        if not self.broken and turn == self.turn and (waiters or knew):
            unheard = () if knew else tuple(waiter.session_id for waiter in waiters)
            self.debts.append(PendingBreak(call, record.process, turn, unheard))

    def _unpaid(self, world: Simulation, process: str) -> list[str]:
        """Return the calls of this process that still have to break the barrier.

        A call whose session ended before it learned that it was queued cannot know of it any more.
        """
        live = world.server.engine.sessions
        self.debts = [
            debt
            for debt in self.debts
            if debt.turn == self.turn and (not debt.unheard or any(each in live for each in debt.unheard))
        ]
        return [debt.call for debt in self.debts if debt.process == process]

    def _judge_reentry(self, world: Simulation, waiter: WaiterNode) -> None:
        """Check that a process in which a call gave up finds the barrier broken when it returns."""
        record = self.arrived[waiter.call]
        earlier = [call for call in self._unpaid(world, record.process) if self.done[call].at_ms < record.at_ms]
        if earlier:
            world.fail(f"{waiter.call} is queued, but {earlier} of the same process have not broken the barrier yet")

    def _judge_debts(self, world: Simulation) -> None:
        for process in world.processes.values():
            unpaid = self._unpaid(world, process.name)
            if process.alive and unpaid:
                world.fail(f"{unpaid} gave up, but the barrier was not broken")

    # --- changes on the server

    def changed(self, world: Simulation) -> None:
        node = world.server.engine.tree.node(self.path)
        if node is None:
            return
        names = [name for name in node.children if "-lock-" in name]
        marks = {name for name in node.children if "-reset-" in name}
        if node.version == self.version and set(names) == self.queue.keys() and marks == self.marks.keys():
            return
        left = [waiter for name, waiter in self.queue.items() if name not in node.children]
        for waiter in left:
            self.departed[waiter.name] = self.queue.pop(waiter.name)
        moved, self.version = node.version != self.version, node.version
        data = json.loads(node.data or b"")
        after = max([-1 if data["after"] is None else data["after"], *map(number_of, marks)])
        taken = {name: self.marks.pop(name) for name in self.marks.keys() - marks}
        was_broken, self.broken = self.broken, bool(data["broken"])
        before, self.generation = self.generation, data["generation"]
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
            if name not in self.queue:
                self._enqueued(world, name)
        self._judge_fullness(world)

    def _is_reset(self, world: Simulation, marks: set[str]) -> None:
        made = marks - self.marks.keys()
        if len(made) != 1 or any(waiter.number > number_of(min(made)) for waiter in self.queue.values()):
            world.fail(f"the barrier was reset with the marks {made} while {list(self.queue)} were queued")
        self.marks[min(made)] = self.resetters[-1]
        for waiter in self.queue.values():
            waiter.sent_away, waiter.doubtful = True, False
            waiter.notified_ms = waiter.notified_ms or world.now_ms
        self._is_new()

    def _is_new(self) -> None:
        """Forget everything about the previous generation."""
        self.stragglers = False
        self.acted.clear()
        self.owing = None
        self.full_ms = -1

    def _is_unmarked(self, world: Simulation, mark: str, resetter: Record, after: int) -> None:
        """Handle a mark that was deleted before the data or another mark covered it."""
        if is_unaffected(world, resetter) and all(each.kind != "intruder" for each in world.faults.injected):
            world.fail(f"{mark} was deleted before it was read")
        for waiter in (*self.queue.values(), *self.departed.values()):
            if waiter.sent_away and after < waiter.number < number_of(mark):
                waiter.sent_away, waiter.doubtful = False, True
                waiter.notified_ms = waiter.alone_ms = None
                waiter.counted_on.clear()
                self.stragglers = True

    def group(self) -> list[WaiterNode]:
        """Return the first ``parties`` waiters that were not sent away."""
        present = [waiter for waiter in self.queue.values() if not waiter.sent_away]
        return sorted(present, key=lambda waiter: waiter.number)[: self.parties]

    def _enqueued(self, world: Simulation, name: str) -> None:
        znode = world.server.engine.tree.node(f"{self.path}/{name}")
        assert znode is not None
        waiter = self.queue[name] = WaiterNode(name, json.loads(znode.data or b""), znode.owner, world.now_ms)
        group = self.group()
        if waiter in group and not self.broken:
            waiter.counts = True
            waiter.counted_on = {other.name for other in group if other is not waiter and not other.doubtful}
        if self.broken:
            waiter.notified_ms = world.now_ms
        self._judge_reentry(world, waiter)

    def _opens(self, world: Simulation, was_broken: bool, left: list[WaiterNode]) -> None:
        self.full_ms = -1
        self._judge_owing(world)
        members = sorted(left, key=lambda waiter: waiter.number)
        calls = [waiter.call for waiter in members]
        if was_broken:
            world.fail(f"{calls} passed a broken barrier")
        if not len(calls) == len({call.partition(".")[0] for call in calls}) == self.parties:
            world.fail(f"{calls} passed, but {self.parties} are required")
        for waiter in members:
            record = self.arrived[waiter.call]
            if waiter.sent_away:
                world.fail(f"{waiter.call} passed although it was sent away by a reset")
            if (
                waiter.alone_ms is not None
                and world.now_ms - waiter.alone_ms > LOOK_MS
                and is_unaffected(world, record)
            ):
                world.fail(f"{waiter.call} passed long after a waiter that it counted on had left")
        if self.passed.keys() & set(calls):
            world.fail(f"some of {calls} passed again")
        self.passed |= {call: index for index, call in enumerate(calls)}
        self._judge_action(world, calls)

    def _judge_action(self, world: Simulation, calls: list[str]) -> None:
        acted = [call for call in self.acted if call in calls]
        excused = world.faults.injected or self.stragglers
        if self.acts and (calls[-1] not in acted or (len(acted) > 1 and not excused)):
            world.fail(f"{calls} passed after the actions of {acted}")

    def _breaks(self, world: Simulation) -> None:
        self.breaks += 1
        self._judge_owing(world)
        for waiter in self.queue.values():
            waiter.notified_ms = waiter.notified_ms or world.now_ms
        if not world.faults.injected and not self._has_cause(world):
            world.fail("the barrier was broken without a cause")

    def _has_cause(self, world: Simulation) -> bool:
        """Return whether there is a cause other than a fault: an abort, or a counted call that timed
        out or whose action failed.
        """
        sent_away = {waiter.call for waiter in (*self.queue.values(), *self.departed.values()) if waiter.sent_away}
        inside = [call for call in self.arrived if call not in self.done and call not in sent_away]
        failed = {record.call for record in world.history.events("acts") if record.badly}
        late = [call for call in inside if self.arrived[call].until_ms <= world.now_ms]
        aborting = any(isinstance(begun, int) for begun in self.begun.values())
        return bool(late or failed.intersection(inside) or aborting or self.stragglers)

    def _leave(self, world: Simulation, left: list[WaiterNode]) -> None:
        """Handle waiters that left without passing: those that counted on them may not pass any more."""
        for departed in left:
            for waiter in self.queue.values():
                seen = departed.name in waiter.counted_on and world.now_ms - waiter.since_ms > ARRIVING_MS
                if (seen or self._is_missed(departed, waiter)) and not departed.sent_away:
                    waiter.alone_ms = waiter.alone_ms or world.now_ms
            first = sorted([*self.group(), departed], key=lambda waiter: waiter.number)[: self.parties]
            counted = departed in first and not (departed.sent_away or departed.doubtful or self.broken)
            if counted and not self.leaves and should_break(world, departed, self.arrived):
                self.owing = self.owing or (world.now_ms, departed.call)

    def _is_missed(self, departed: WaiterNode, waiter: WaiterNode) -> bool:
        """Return whether a waiter misses a member of its group that arrived after it, seen or not."""
        is_short = len(self.group()) < self.parties and not (waiter.sent_away or departed.doubtful)
        return is_short and departed.counts and departed.number > waiter.number

    def _judge_owing(self, world: Simulation) -> None:
        owing, self.owing = self.owing, None
        if owing is not None and world.now_ms - owing[0] > PROMPT_MS and only_interrupts(world):
            world.fail(f"{owing[1]} was interrupted, but did not break the barrier at once")

    def end(self, world: Simulation) -> None:
        self._judge_owing(world)
        self._judge_debts(world)

    def _judge_fullness(self, world: Simulation) -> None:
        """Check that a complete group soon passes, or breaks the barrier."""
        group = self.group()
        full = len(group) == self.parties and not self.broken
        if self.full_ms >= 0 and world.now_ms - self.full_ms > LOOK_MS and not world.faults.injected:
            world.fail(f"{world.now_ms - self.full_ms} ms after the group was complete, it has not passed")
        if not full:
            self.full_ms = -1
        elif self.full_ms < 0:
            self.full_ms = world.now_ms


def number_of(name: str) -> int:
    """Return the sequence number at the end of a name."""
    return int(name[-10:])


def is_unaffected(world: Simulation, record: Record) -> bool:
    """Return whether no fault has hit this process."""
    return world.faults.spared(record.process)


def only_interrupts(world: Simulation) -> bool:
    """Return whether no fault but Ctrl-C was injected."""
    return all(each.kind == "interrupt" for each in world.faults.injected)


def should_break(world: Simulation, departed: WaiterNode, arrived: dict[str, Record]) -> bool:
    """Return whether this waiter was interrupted when it already knew that it was queued, and nothing
    else happened.
    """
    record = arrived[departed.call]
    at = [at for task, at in world.interrupts if task.name == record.task]
    creating = any(isinstance(step, Pipeline) and isinstance(step.requests[0], Multi) for step in at)
    return only_interrupts(world) and bool(at) and not creating and record.until_ms > world.now_ms
