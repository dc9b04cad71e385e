"""Checks of a world: each one sees every record when it is made, and the end of the schedule.

A check uses what the tasks recorded and the state of the server and the sessions, never what a
protocol believes. It reports a violation by ``world.fail``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.engine.transcript import Record

if TYPE_CHECKING:
    from simulation.engine.simulation import Simulation


class Check:
    """Base class of all checks."""

    def see(self, world: Simulation, record: Record) -> None:
        """Handle a record of a task."""

    def changed(self, world: Simulation) -> None:
        """Handle a commit, which changed the server's tree."""

    def end(self, world: Simulation) -> None:
        """Handle the end: all tasks are done, and nothing is in progress."""


class Capacity(Check):
    """At most ``limit`` tasks hold ``what`` at once.

    A task records ``granted`` with ``what`` and ``session_id`` (and ``loss`` and ``token`` if they
    exist) right after the acquisition, and ``released`` with ``what`` right before the release. It
    holds in between, as long as its process lives and its own lease clock proves the session. A
    holder whose session was ended by an administrator, or whose znode was deleted by an intruder,
    cannot know that, and does not count.
    """

    def __init__(self, what: str, limit: int = 1) -> None:
        self.what = what
        self.limit = limit
        self.holding: dict[str, Record] = {}

    def see(self, world: Simulation, record: Record) -> None:
        if record.fields.get("what") != self.what:
            return
        if record.event == "granted":
            self.holding[record.task] = record
        elif record.event in ("released", "lost"):
            self.holding.pop(record.task, None)
        self._judge(world)

    def _judge(self, world: Simulation) -> None:
        if len(self.holding) > self.limit:
            proven = [record for record in self.holding.values() if holds(world, record)]
            if len(proven) > self.limit:
                names = ", ".join(f"{each.task} (since {each.at_ms} ms)" for each in proven)
                world.fail(f"{len(proven)} hold {self.what!r}, limit {self.limit}: {names}")


def holds(world: Simulation, record: Record) -> bool:
    """Return whether the holder can prove at this moment that it holds."""
    process = world.processes[record.process]
    fields = record.fields
    if not process.alive or record.session_id in world.tampered:
        return False
    loss = fields.get("loss")
    return process.is_proven(record.session_id) and not (loss is not None and loss.fired)


class Exclusion(Capacity):
    """At most one holder; each has a higher token than the previous one, if the records have tokens.

    Threads of one process that hand over to each other may share a token.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what, 1)
        self.last: Record | None = None

    def see(self, world: Simulation, record: Record) -> None:
        super().see(world, record)
        if record.event == "granted" and record.fields.get("what") == self.what and "token" in record.fields:
            if holds(world, record):
                self._grows(world, record)

    def _grows(self, world: Simulation, record: Record) -> None:
        last, self.last = self.last, record
        if last is None or record.token > last.token:
            return
        if record.token < last.token or record.process != last.process:
            world.fail(f"the token of {record.task} is {record.token}, after {last.token} of {last.task}")


class NothingLeft(Check):
    """At the end, with all sessions open, no znode is left below ``root``, except those that
    ``may_stay``.
    """

    def __init__(self, root: str = "/", may_stay: Any = lambda path: False) -> None:
        self.root = root
        self.may_stay = may_stay

    def end(self, world: Simulation) -> None:
        left = [path for path in world.leftovers() if path.startswith(self.root) and not self.may_stay(path)]
        if left:
            world.fail(f"znodes are left: {', '.join(left[:10])}")
