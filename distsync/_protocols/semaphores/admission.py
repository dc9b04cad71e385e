"""Wait until fewer than ``limit`` contenders are ahead, without a herd effect or lost wakeups.

Whichever contender leaves, the first waiter has to wake up, so it watches the children of the
queue. Every other waiter watches its predecessor, which marks its znode when it is admitted. So one
departure wakes one waiter, and its admission wakes the next. (A waiter that only watches the znode
whose departure usually makes room misses the departure of another one.)

A predecessor that is stopped delays a waiter only until the next poll.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from distsync._protocols.retries import INTERRUPTED
from distsync._protocols.steps import GetData, Node, Wait, WakeReason, Watch
from distsync.errors import NoNodeError


class QueueSnapshot(NamedTuple):
    """Contenders ahead of ours, in order, or None if ours is missing; and how many are admitted."""

    ahead: tuple[str, ...] | None
    limit: int


class CapacityQueue(Protocol):
    """The queue, as wait_for_admission() needs it."""

    #: Seconds after which the queue is read again if no watch fires.
    poll_interval: float

    def read(self) -> Awaitable[QueueSnapshot]:
        """Read the current state."""

    def watch(self, view: QueueSnapshot, watch: Watch) -> Awaitable[QueueSnapshot]:
        """Read the current state, with ``watch`` set on all that can admit the first waiter."""

    def check_session(self) -> Awaitable[None]:
        """Raise SessionLostError if our session has ended. Called after a watch was set."""

    def is_admitted(self, node: Node) -> bool:
        """Return whether the contender with this znode has marked itself as admitted."""

    def mark_admitted(self) -> Awaitable[None]:
        """Mark our contender as admitted."""


async def wait_for_admission(queue: CapacityQueue, view: QueueSnapshot) -> bool | None:
    """Wait to be admitted.

    Return True then, False at the deadline, None if our znode is missing.
    """
    waited = False
    while view.ahead is not None and len(view.ahead) >= view.limit:
        waited = True  # even without sleeping: a waiter behind us may have seen us waiting
        watch, last = Watch(), view.ahead[-1:]
        first = len(view.ahead) == view.limit
        if not first:
            is_waiting = await _is_waiting(queue, last[0], watch)
            if is_waiting is None:
                view = await queue.read()
                continue
            await queue.check_session()
            first = not is_waiting
        if first:
            view = await queue.watch(view, watch)
            if view.ahead is None or len(view.ahead) < view.limit or view.ahead[-1:] != last:
                continue
        if await Wait(watch, limit=queue.poll_interval) is WakeReason.DEADLINE:
            return False
        view = await queue.read()
    if view.ahead is None:
        return None
    if waited:
        await queue.mark_admitted()
    return True


async def _is_waiting(queue: CapacityQueue, path: str, watch: Watch) -> bool | None:
    """Return whether the watched contender ``path`` still waits, or None if it may be deleted.

    An admitted contender may have too many ahead of it again, if some count that did not count for
    a while. It wakes no other, so the next waiter acts as the first one.
    """
    try:
        return not queue.is_admitted(await GetData(path, watch))
    except (NoNodeError, *INTERRUPTED):
        return None
