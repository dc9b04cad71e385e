"""The keeper of a process: keeps the lease clock running while something is held, and reports losses.

All decisions are made by the parts of distsync._client that the real keeper uses (lease clock,
holds, clean-up); here they only get the virtual time and are scheduled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulation.engine.scheduler import Timer

from distsync._client.driver.created_nodes import LeftoverNode
from distsync._client.lease import holds
from distsync._client.lease.cleanup import delete_leftover, watch_held_node
from distsync._client.lease.lease_clock import LeaseClock
from distsync._protocols.steps import Hold, Loss, Sync, WatchNode

if TYPE_CHECKING:
    from simulation.engine.process import SimProcess

#: A grant that is released earlier costs no read of its own znode.
GUARD_AFTER_MS = 100


class Keeper:
    """See the module."""

    def __init__(self, process: SimProcess) -> None:
        self.process = process
        self.world = process.world
        self.lease = LeaseClock()
        self.holds = holds.HoldTable(self.lease, self._on_lease_expired)
        self._heartbeat: Timer | None = None
        self._expiry_check: Timer | None = None

    def hold(self, step: Hold) -> None:
        """Perform a Hold step."""
        self.holds.add(step, self.world.now)
        step.loss.subscribe(lambda: self.world.note(self.process.name, "loss", f"{step.path}: {step.loss.reason}"))
        held = [each for each in self.holds.active() if each.loss is step.loss]
        if held:
            self.process.clockwork.after(GUARD_AFTER_MS, lambda: self._guard(held[0]))
            self._schedule()

    def unhold(self, loss: Loss) -> None:
        self.holds.remove(loss)

    def watch(self, step: WatchNode) -> None:
        """Perform a WatchNode step."""
        self.holds.watch(step.loss, step.on_data)
        for each in self.holds.active():
            if each.loss is step.loss:
                self._guard(each)

    def look(self) -> None:
        """Report as lost everything that is held without proof."""
        self.holds.expire(self.world.now)

    def _on_lease_expired(self, lost: list[holds.HeldNode]) -> None:
        """Delete the znodes in case the session is still alive."""
        for held in lost:
            self.delete_leftover(LeftoverNode(held.path, True), held.session_id)

    def delete_leftover(self, leftover: LeftoverNode, session_id: int) -> None:
        """Delete the znode in the background, for as long as the session lives."""
        self.process.background(delete_leftover(leftover, session_id))

    def session_ended(self) -> None:
        self.lease.end()
        self.holds.lose_all(holds.SESSION_EXPIRED)

    def _schedule(self) -> None:
        """Schedule the next proof, and a check for the end of the lease, while anything is held."""
        if not self.holds:
            return
        clockwork, now = self.process.clockwork, self.world.now
        if self._heartbeat is None:
            self._heartbeat = clockwork.after(round((self.lease.next_heartbeat - now) * 1000), self._prove, idle=True)
        if self._expiry_check is None:
            self._expiry_check = clockwork.after(round((self.lease.valid_until - now) * 1000), self._look, idle=True)

    def _prove(self) -> None:
        self._heartbeat = None
        session = self.process.session
        if self.holds and session.connected:
            session.submit(Sync(), lambda submission, answer: self._schedule())
        elif self.holds:
            self._heartbeat = self.process.clockwork.after(session.timeout_ms // 3, self._prove, idle=True)

    def _look(self) -> None:
        self._expiry_check = None
        self.look()
        self._schedule()

    def _guard(self, held: holds.HeldNode) -> None:
        if not held.ended.fired and self.holds.guard(held):
            self.process.background(watch_held_node(held, partial(self.holds.lose_path, held.path)))
