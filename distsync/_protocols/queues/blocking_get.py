"""Waiting for something to take: waiters form a queue, and only the first one watches the source.

Source: recipes.txt, "Queues" (the watch on the queue node), without its herd effect.

A new caller tries at once, before the waiters, as threads do in the standard library. Of the
waiting threads of one process, only one is in the queue; it passes its turn to the next, which
tries at once. Invariant: nothing is awaited after something was taken, so that no interrupt can
lose it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from distsync._protocols.retries import delete_until_session_ends
from distsync._protocols.steps import Background, Children, Signal, Wait, WakeReason, Watch
from distsync._protocols.wait_queue import LOCK, QueueEntry, QueueState, check_session, enqueue, wait_for_turn
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError, OutcomeUnknownError, SessionLostError

Taken = TypeVar("Taken", covariant=True)


class TakeSource(Protocol[Taken]):
    """A source from which items are taken."""

    @property
    def poll_interval(self) -> float | None:
        """Seconds after which to look again without a change; None for never."""

    def try_take(self) -> Awaitable[Taken | None]:
        """Take and return the next item; None if there is none."""

    def set_watch(self, watch: Watch) -> Awaitable[bool]:
        """Set ``watch`` on all that may add an item. Return whether there was none."""


class LocalTurnQueue:
    """FIFO turns of the waiting threads of one process, one of which is in the distributed queue."""

    def __init__(self) -> None:
        self.is_held = False
        self.waiting: deque[Signal] = deque()

    async def wait(self) -> bool:
        """Wait for this thread's turn. Return False at the deadline."""
        if not self.is_held:
            self.is_held = True
            return True
        turn = Signal()
        self.waiting.append(turn)
        try:
            await Wait(turn)
        except BaseException:
            if turn.fired:
                self.pass_on()
            raise
        finally:
            self.waiting.remove(turn)
        return turn.fired

    def pass_on(self) -> None:
        """Give the turn to the next thread."""
        turn = next((turn for turn in self.waiting if not turn.fired), None)
        if turn is not None:
            # the waiter removes itself when it wakes, so that an interrupt here loses no waiter
            turn.fire()
        else:
            self.is_held = False


async def take(
    source: TakeSource[Taken], turns: LocalTurnQueue, directory: str, contender_data: bytes, blocking: bool
) -> Taken | None:
    """Take the next item; return None if there is none, without ``blocking`` or at the deadline."""
    try:
        taken = await source.try_take()
        if taken is not None or not blocking or not await turns.wait():
            return taken
        try:
            return await _take_in_turn(source, directory, contender_data)
        finally:
            turns.pass_on()
    except DeadlineError as error:
        raise_if_from_handler(error)
        return None
    except OutcomeUnknownError as error:
        if error.args[2] == "deadline":  # an item taken after the deadline is restored
            return None
        raise


async def _take_in_turn(source: TakeSource[Taken], directory: str, contender_data: bytes) -> Taken | None:
    while (taken := await source.try_take()) is None:
        entry, (listing,) = await enqueue(directory, LOCK, contender_data, Children(directory))
        finished = Signal()
        try:
            await Background(_delete_when(finished, entry))
            state = await wait_for_turn(entry, listing)
            if state is QueueState.HELD:
                taken = await _wait_as_first(source, entry)
        except SessionLostError:
            continue
        finally:
            finished.fire()
        if taken is not None or state is not QueueState.GONE:
            return taken
    return taken


async def _delete_when(finished: Signal, entry: QueueEntry) -> None:
    """Delete ``entry`` when ``finished`` fires. Started before anything is taken, because nothing may
    be awaited afterwards.
    """
    await Wait(finished)
    await delete_until_session_ends(entry.path, entry.session_id)


async def _wait_as_first(source: TakeSource[Taken], entry: QueueEntry) -> Taken | None:
    """Wait, as the first in the queue, for an item. Return None at the deadline.

    Raises SessionLostError if the entry has ended with its session, so that another waiter is the
    first.
    """
    while True:
        watch = Watch()
        is_empty = await source.set_watch(watch)
        # a watch set in a new session would wake a waiter that is no longer in the queue
        await check_session(entry)
        if is_empty and await Wait(watch, limit=source.poll_interval) is WakeReason.DEADLINE:
            return None
        taken = await source.try_take()
        if taken is not None:
            return taken
