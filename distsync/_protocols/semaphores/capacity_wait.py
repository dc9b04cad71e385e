"""Waiting until fewer than ``limit`` stand ahead, without a herd and without a lost wake-up.

Rules for this file: pure; it knows neither leases nor items.

Whoever leaves, in whatever order, the first one that waits must wake: it watches the children of the line. Everyone
else watches the one right ahead of him, who marks his znode when he gets in. So one departure wakes one waiter, and
one entry wakes the next. (Watching only the znode whose departure makes room in the usual order loses the wake-up
when another one departs first.) A waiter that is stopped in front of us holds us up only until we look again by
ourselves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from distsync._protocols.retries import INTERRUPTED
from distsync._protocols.steps import GetData, Node, Wait, WakeReason, Watch
from distsync.errors import NoNodeError


class QueueSnapshot(NamedTuple):
    """Who stands ahead of us now, first one first, and how many may be in; None ahead: we are not there any more."""

    ahead: tuple[str, ...] | None
    limit: int


class CapacityQueue(Protocol):
    """What is waited in."""

    #: Look again after so many seconds, whatever was heard.
    poll_interval: float

    def read(self) -> Awaitable[QueueSnapshot]:
        """The present state."""

    def watch(self, view: QueueSnapshot, watch: Watch) -> Awaitable[QueueSnapshot]:
        """The present state, with ``watch`` armed on everything that may let the first waiter in."""

    def check_session(self) -> Awaitable[None]:
        """Raises SessionLostError when our place has gone with its session. Asked after a watch was armed."""

    def is_admitted(self, node: Node) -> bool:
        """Whether the one ahead says that he is in."""

    def mark_admitted(self) -> Awaitable[None]:
        """Say that we are in."""


async def admit(queue: CapacityQueue, view: QueueSnapshot) -> bool | None:
    """True once we are in, False at the deadline, None when we are not there any more."""
    waited = False
    while view.ahead is not None and len(view.ahead) >= view.limit:
        waited = True  # also if we do not sleep: somebody behind us may have seen us outside
        watch, last = Watch(), view.ahead[-1:]
        first = len(view.ahead) == view.limit
        if not first:
            waits = await _waits(queue, last[0], watch)
            if waits is None:
                view = await queue.read()
                continue
            await queue.check_session()
            first = not waits
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


async def _waits(queue: CapacityQueue, path: str, watch: Watch) -> bool | None:
    """Whether ``path``, which is watched now, still waits; None if it may be gone. Who is in can have too many ahead of
    him again, when what does not count for a while counts anew: he wakes nobody, so whoever is next is the first."""
    try:
        return not queue.is_admitted(await GetData(path, watch))
    except (NoNodeError, *INTERRUPTED):
        return None
