"""Waiting for something to take: waiters form a queue, and the first one watches the source, with backups.

Source: recipes.txt, "Queues" (the watch on the queue node), without its herd effect.

A new caller tries at once, before the waiters, as threads do in the standard library. Of the
waiting threads of one process, only one is in the queue; it passes its turn to the next, which
tries at once. Invariant: nothing is awaited after something was taken, so that no interrupt can
lose it.

The first waiter takes what arrives. But its process may have been killed or stopped, which the
server notices only when the session ends. So some of the other waiters are backups: they watch the
arrival of items as well, and then give those ahead of them a moment to take the item. If it is still
there, the backup deletes the entries of all waiters ahead, and so is the first one. Of these
waiters, each one that runs is woken, tries at once, and enqueues again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from distsync._protocols.retries import INTERRUPTED, delete_until_session_ends
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    GetData,
    Listing,
    Signal,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import (
    LOCK,
    QueueEntry,
    QueueState,
    WaitForDeletion,
    check_session,
    delete_predecessors,
    enqueue,
    ensure_container,
    parse,
    predecessors,
    wait_for_turn,
)
from distsync._signal_handlers import interruptible_at_entry, raise_if_from_handler
from distsync.errors import DeadlineError, NoNodeError, OutcomeUnknownError, SessionLostError

#: Half of the time that a backup gives those ahead of it to take an item, as a fraction of the session
#: timeout. The second number is added in part, depending on the position, so that the foremost backup
#: acts first. Together, that is less than a tenth of the session timeout.
MOMENT, MOMENT_BEHIND = 0.02, 0.02

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

    def watch_arrivals(self, watch: Watch) -> Awaitable[str | None]:
        """Set ``watch`` on what most items arrive in. Return the path of an item, or None if there is none.

        Costs as few requests as possible, and need not see each item that `try_take` takes.
        """


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
    source: TakeSource[Taken],
    turns: LocalTurnQueue,
    directory: str,
    contender_data: bytes,
    blocking: bool,
    ensure_directory: Callable[[str], Awaitable[None]] = ensure_container,
) -> Taken | None:
    """Take the next item; return None if there is none, without ``blocking`` or at the deadline."""
    try:
        taken = await source.try_take()
        if taken is not None or not blocking:
            return taken
        turn = Signal()
        try:
            if not await turns.wait(turn):
                return None
            return await _take_in_turn(source, directory, contender_data, ensure_directory)
        finally:
            turns.pass_on(turn)
    except DeadlineError as error:
        raise_if_from_handler(error)
        return None
    except OutcomeUnknownError as error:
        if error.args[2] == "deadline":  # an item taken after the deadline is restored
            return None
        raise


async def _take_in_turn(
    source: TakeSource[Taken],
    directory: str,
    contender_data: bytes,
    ensure_directory: Callable[[str], Awaitable[None]],
) -> Taken | None:
    while (taken := await source.try_take()) is None:
        entry, (listing,) = await enqueue(
            directory, LOCK, contender_data, Children(directory), ensure_directory=ensure_directory
        )
        finished = Signal()
        try:
            await Background(_delete_when(finished, entry))
            state = await wait_for_turn(entry, listing, wait=_wait_of_backup(source, entry, listing))
            if state is QueueState.HELD:
                taken = await _wait_as_first(source, entry)
        except SessionLostError:
            continue
        finally:
            finished.fire()
        if taken is not None or state is not QueueState.GONE:
            return taken
    return taken


def is_backup(number: int, ahead: int) -> bool:
    """Return whether a waiter that found ``ahead`` others ahead is a backup, by its sequence number.

    In a queue of up to four waiters all are, and in a longer one about three, at even distances.
    """
    return ahead > 0 and number % ((ahead + 2) // 3) == 0


def _wait_of_backup(source: TakeSource[Taken], entry: QueueEntry, listing: Any) -> WaitForDeletion | None:
    """Return how the waiter waits for the one ahead if it is a backup."""
    ahead = predecessors(listing.names, entry.name) if isinstance(listing, Listing) else None
    mine = parse(entry.name)
    if not ahead or mine is None or not is_backup(mine.number, len(ahead)):
        return None
    return partial(_wait_as_backup, source, MOMENT + MOMENT_BEHIND * len(ahead) / (len(ahead) + 1))


async def _wait_as_backup(
    source: TakeSource[Taken], moment: float, entry: QueueEntry, behind: str
) -> tuple[WakeReason, bool]:
    """Wait as `wait_until_deleted` does, but delete all waiters ahead if they leave an item for too long."""
    deleted = Watch()
    try:
        await GetData(f"{entry.directory}/{behind}", deleted)
    except NoNodeError:
        return WakeReason.SIGNAL, True
    except INTERRUPTED:
        return WakeReason.SIGNAL, False
    seen: str | None = None
    while not deleted.fired:
        arrival = Watch()
        item = await source.watch_arrivals(arrival)
        await check_session(entry)
        if item is not None and item == seen:
            await delete_predecessors(entry)
            return WakeReason.SIGNAL, False
        seen = item
        if item is None and await Wait(deleted, arrival, limit=source.poll_interval) is WakeReason.DEADLINE:
            return WakeReason.DEADLINE, False
        moment_s = moment * (await Connected()).timeout_ms / 1000
        if not deleted.fired and await Wait(deleted, limit=moment_s) is WakeReason.DEADLINE:
            return WakeReason.DEADLINE, False
    return WakeReason.SIGNAL, deleted.is_deleted


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
