"""Checks that plug into a world: each sees every record as it is made, and the end of the schedule.

Rules for this file: a check judges by what the tasks recorded and by the server's and sessions' state, never by what a
protocol believes. To find a violation is to call ``world.fail``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.engine.transcript import Record

if TYPE_CHECKING:
    from simulation.engine.simulation import Simulation


class Check:
    """Base of all checks."""

    def see(self, world: Simulation, record: Record) -> None:
        """A task has recorded something."""

    def changed(self, world: Simulation) -> None:
        """The server has committed something: its tree is another one."""

    def end(self, world: Simulation) -> None:
        """All tasks are done, nothing is under way."""


class Capacity(Check):
    """Never more than ``limit`` hold ``what`` at once.

    A task records ``granted`` with ``what`` and ``session_id`` (and ``loss``, ``token``, where there are such) right
    after it got it, ``released`` with ``what`` right before it gives it back. It holds from then to then, but no
    longer than its process lives and its own lease clock proves the session. Who holds in a session that an
    administrator ended, or whose znode an intruder deleted, cannot know, and does not count.
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
            surely = [record for record in self.holding.values() if holds(world, record)]
            if len(surely) > self.limit:
                names = ", ".join(f"{each.task} (since {each.at_ms} ms)" for each in surely)
                world.fail(f"{len(surely)} hold {self.what!r}, {self.limit} may: {names}")


def holds(world: Simulation, record: Record) -> bool:
    """Whether the holder can prove, at this moment, that it holds."""
    process = world.processes[record.process]
    fields = record.fields
    if not process.alive or record.session_id in world.tampered:
        return False
    loss = fields.get("loss")
    return process.is_proven(record.session_id) and not (loss is not None and loss.fired)


class Exclusion(Capacity):
    """One holder at most; each next one has a higher token, if the records have tokens.

    Threads of one process that hand over among each other may share one.
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
    """When all is done, the sessions still open, no znode is left below ``root`` but those that ``may_stay``."""

    def __init__(self, root: str = "/", may_stay: Any = lambda path: False) -> None:
        self.root = root
        self.may_stay = may_stay

    def end(self, world: Simulation) -> None:
        left = [path for path in world.leftovers() if path.startswith(self.root) and not self.may_stay(path)]
        if left:
            world.fail(f"znodes are left: {', '.join(left[:10])}")
