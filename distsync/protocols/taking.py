"""Taking from something that may be empty: who finds nothing stands in a line, and only the first one watches.

Source: recipes.txt, "Queues" (the watch on the queue node), without its herd.

Rules for this file: pure; it does not know what is taken.

Who comes anew tries at once, before those in the line, as threads of the stdlib do. After something was taken
nothing is awaited that can fail: what is taken is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from distsync.errors import DeadlineError, OutcomeUnknownError, SessionLostError
from distsync.protocols.guard import leave, remove
from distsync.protocols.line import LOCK, Place, Standing, reach_front, stand
from distsync.session.steps import Background, Children, Connected, Wait, Watch, Woke

Taken = TypeVar("Taken", covariant=True)


class Source(Protocol[Taken]):
    """What is taken from."""

    def attempt(self) -> Awaitable[Taken | None]:
        """The next thing, taken for good; None if there is none."""

    def arm(self, watch: Watch) -> Awaitable[bool]:
        """Whether there was nothing when ``watch`` was armed on all that may change this."""


async def take(source: Source[Taken], directory: str, data: bytes, wait: bool) -> Taken | None:
    """The next thing. None: not at once if we do not ``wait``, or not before the deadline."""
    try:
        taken = await source.attempt()
        while taken is None and wait:
            place, (listing,) = await stand(directory, LOCK, data, Children(directory))
            try:
                standing = await reach_front(place, listing)
                if standing is Standing.HELD:
                    taken = await _first(source, place)
            except SessionLostError:
                continue
            except BaseException:
                await Background(remove(place.path, place.session_id))
                raise
            if taken is not None:
                await Background(remove(place.path, place.session_id))
            elif standing is not Standing.GONE:
                await leave(place.path, place.session_id)
                return None
        return taken
    except DeadlineError:
        return None
    except OutcomeUnknownError as error:
        if error.args[2] == "deadline":  # whatever was taken after it goes back to its place
            return None
        raise


async def _first(source: Source[Taken], place: Place) -> Taken | None:
    """The first in the line waits for something to take. None at the deadline. Raises SessionLostError when our place
    has gone with its session: somebody else is first now."""
    while (await Connected()).session_id == place.session_id:
        watch = Watch()
        if await source.arm(watch) and await Wait(watch) is Woke.DEADLINE:
            return None
        taken = await source.attempt()
        if taken is not None:
            return taken
    raise SessionLostError(f"waiting in {place.directory}")
