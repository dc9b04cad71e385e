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
from distsync._signal_handlers import interruptible_at_entry, raise_if_from_handler
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
    """FIFO turns of the threads of one process.

    Each call waits with a Signal of its own, and passes that on in any case, even if the wait was
    interrupted or not begun.
    """

    def __init__(self) -> None:
        self.holder: Signal | None = None
        self.waiting: deque[Signal] = deque()

    @property
    def is_held(self) -> bool:
        """Whether a thread has the turn."""
        return self.holder is not None

    async def wait(self, turn: Signal) -> bool:
        """Wait for the turn. Return False at the deadline."""
        if self.holder is None:
            self.holder = turn
        else:
            self.waiting.append(turn)
            await Wait(turn)
        return self.holder is turn

    @interruptible_at_entry
    def pass_on(self, turn: Signal) -> None:
        """Give the turn, if ``turn`` has it, to the next thread, and wait no longer. Idempotent."""
        try:
            self._pass_on(turn)
        except BaseException:  # a signal handler's
            self._pass_on(turn)
            raise

    def _pass_on(self, turn: Signal) -> None:
        # wherever an interrupt stops this, the same call again completes it
        if turn in self.waiting:
            self.waiting.remove(turn)
        if self.holder is turn:
            following = self.waiting[0] if self.waiting else None
            if following is not None:
                following.fire()
            self.holder = following
            if following is not None:
                self.waiting.remove(following)


async def take(
    source: TakeSource[Taken], turns: LocalTurnQueue, directory: str, contender_data: bytes, blocking: bool
) -> Taken | None:
    """Take the next item; return None if there is none, without ``blocking`` or at the deadline."""
    try:
        taken = await source.try_take()
        if taken is not None or not blocking:
            return taken
        turn = Signal()
        try:
            return await _take_in_turn(source, directory, contender_data) if await turns.wait(turn) else None
        finally:
            turns.pass_on(turn)
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
