"""Taking from something that may be empty: who finds nothing stands in a line, and only the first one watches.

Source: recipes.txt, "Queues" (the watch on the queue node), without its herd.

Rules for this file: pure; it does not know what is taken.

Who comes anew tries at once, before those in the line, as threads of the stdlib do. Of the threads of one process
that wait, one stands in the line; it gives its turn to the next, who tries at once. After something was taken
nothing is awaited, so that no interrupt can come between: what is taken is returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from distsync._protocols.retries import delete_until_session_ends
from distsync._protocols.steps import Background, Children, Signal, Wait, WakeReason, Watch
from distsync._protocols.wait_queue import LOCK, QueueEntry, QueueState, check_session, enqueue, wait_for_turn
from distsync.errors import DeadlineError, OutcomeUnknownError, SessionLostError

Taken = TypeVar("Taken", covariant=True)


class TakeSource(Protocol[Taken]):
    """What is taken from."""

    @property
    def poll_interval(self) -> float | None:
        """Look again after so many seconds, though nothing has changed; None: no need to."""

    def attempt(self) -> Awaitable[Taken | None]:
        """The next thing, taken for good; None if there is none."""

    def arm(self, watch: Watch) -> Awaitable[bool]:
        """Whether there was nothing when ``watch`` was armed on all that may change this."""


class LocalTurnQueue:
    """The threads of one process that wait, one of which stands in the line for all of them; FIFO."""

    def __init__(self) -> None:
        self.taken = False
        self.waiting: deque[Signal] = deque()

    async def wait(self) -> bool:
        """Whether it is our turn; False at the deadline."""
        if not self.taken:
            self.taken = True
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
        """It is the next one's turn."""
        turn = next((turn for turn in self.waiting if not turn.fired), None)
        if turn is not None:
            turn.fire()  # it leaves the queue when it wakes, so that an interrupt in this line loses nobody
        else:
            self.taken = False


async def take(
    source: TakeSource[Taken], turns: LocalTurnQueue, directory: str, contender_data: bytes, blocking: bool
) -> Taken | None:
    """The next thing. None: not at once if we do not ``blocking``, or not before the deadline."""
    try:
        taken = await source.attempt()
        if taken is not None or not blocking or not await turns.wait():
            return taken
        try:
            return await _take_in_turn(source, directory, contender_data)
        finally:
            turns.pass_on()
    except DeadlineError:
        return None
    except OutcomeUnknownError as error:
        if error.args[2] == "deadline":  # whatever was taken after it goes back to its place
            return None
        raise


async def _take_in_turn(source: TakeSource[Taken], directory: str, contender_data: bytes) -> Taken | None:
    while (taken := await source.attempt()) is None:
        place, (listing,) = await enqueue(directory, LOCK, contender_data, Children(directory))
        done = Signal()
        try:
            await Background(_leave_when(done, place))
            state = await wait_for_turn(place, listing)
            if state is QueueState.HELD:
                taken = await _first(source, place)
        except SessionLostError:
            continue
        finally:
            done.fire()
        if taken is not None or state is not QueueState.GONE:
            return taken
    return taken


async def _leave_when(finished: Signal, place: QueueEntry) -> None:
    """Begun before anything is taken: afterwards nothing may be awaited, not even the posting of this."""
    await Wait(finished)
    await delete_until_session_ends(place.path, place.session_id)


async def _first(source: TakeSource[Taken], place: QueueEntry) -> Taken | None:
    """The first in the line waits for something to take. None at the deadline. Raises SessionLostError when our place
    has gone with its session: somebody else is first now."""
    while True:
        watch = Watch()
        nothing = await source.arm(watch)
        await check_session(place)  # a watch that was armed in the next session wakes somebody who stands in no line
        if nothing and await Wait(watch, limit=source.poll_interval) is WakeReason.DEADLINE:
            return None
        taken = await source.attempt()
        if taken is not None:
            return taken
