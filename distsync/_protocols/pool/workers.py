"""The workers of a pool, as a caller that shows its progress counts them.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

A worker that runs a task and one that waits for a task look different in the znodes of a queue, and one
that does neither is not there at all. So each worker of the command line has a znode of its own, and so
has each caller with local workers. Its name has the GUID of the caller and the number of workers, so that
one listing tells a caller how many others have started.

Znodes:
  ``<path>/workers/<caller>_<number>_<guid>``  ephemeral; ``<caller>`` is ``command`` if none has started it,
                                               and the first GUID of a caller that was removed and is back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from distsync._protocols.pool.tasks import PoolCore
from distsync._protocols.retries import REFUSED_S, read_all
from distsync._protocols.state.persistent_ephemeral import Presence
from distsync._protocols.state.watch_cache import names_below
from distsync._protocols.steps import Children, Guid, KeepResults, Signal, Wait, Watch
from distsync.errors import ClientClosedError, DistsyncError, NoNodeError

#: Seconds between two listings of the workers, at least.
LISTING_PAUSE_S = 5.0

COMMAND = "command"


async def announce_workers(
    core: PoolCore, caller: str | None, contender_data: bytes, count: int = 1, stop: Signal | None = None
) -> None:
    """Create the znode of ``count`` workers, which ends with the session, or when ``stop`` fires.

    ``caller`` is the GUID of the caller that has started them; None if a command has. If the znode cannot be
    created, they are not counted.
    """
    name = f"{caller or COMMAND}_{count}_{await Guid()}"
    presence = Presence(f"{core.znodes.workers}/{name}", contender_data, _ignore)
    with suppress(DistsyncError):
        await presence.create()
        if stop is not None:
            await KeepResults()
            await Wait(stop)
            await presence.delete()


def _other_workers(names: Iterable[str], caller: str) -> int:
    """Return the number of workers that ``caller`` has not started, by the names of the znodes."""
    numbers = [name.split("_")[1] for name in names if name.count("_") == 2 and not name.startswith(f"{caller}_")]
    return sum(int(number) for number in numbers if number.isdecimal())


async def count_other_workers(core: PoolCore, caller: str) -> int:
    """Return the number of workers that ``caller`` has not started."""
    (listing,) = await read_all(Children(core.znodes.workers))
    return 0 if isinstance(listing, NoNodeError) else _other_workers(listing.names, caller)


async def watch_other_workers(core: PoolCore, caller: str, on_count: Callable[[int], object], stop: Signal) -> None:
    """Call ``on_count`` with the number of workers that ``caller`` has not started, after each change,
    until ``stop`` fires.
    """
    while not stop.fired:
        await KeepResults()
        watch = Watch()
        try:
            names = await names_below(core.znodes.workers, watch)
        except ClientClosedError:
            return
        except DistsyncError:  # access is denied, for example
            await Wait(stop, limit=REFUSED_S)
            continue
        on_count(_other_workers(names, caller))
        await Wait(watch, stop)
        await Wait(stop, limit=LISTING_PAUSE_S)


def _ignore() -> None:
    """Do nothing."""
