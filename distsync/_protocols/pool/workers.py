"""The workers of a pool, as a caller that shows its progress counts them.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

A worker that runs a task and one that waits for a task look different in the znodes of a queue, and one
that does neither is not there at all. So each worker has a znode of its own. Its name begins with the
GUID of the caller that has started it, so that one listing tells a caller how many others have started.

Znodes:
  ``<path>/workers/<caller>_<guid>``  ephemeral; ``<caller>`` is ``command`` if none has started it
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from distsync._protocols.pool.tasks import PoolCore
from distsync._protocols.retries import REFUSED_S
from distsync._protocols.state.persistent_ephemeral import Presence
from distsync._protocols.state.watch_cache import names_below
from distsync._protocols.steps import Guid, KeepResults, Signal, Wait, Watch
from distsync.errors import ClientClosedError, DistsyncError

#: Seconds between two listings of the workers, at least.
LISTING_PAUSE_S = 5.0

COMMAND = "command"


async def announce_worker(core: PoolCore, caller: str | None, contender_data: bytes) -> None:
    """Create the znode of a worker, which ends with its session.

    ``caller`` is the GUID of the caller that has started it; None if a command has. If the znode cannot be
    created, the worker is not counted.
    """
    name = f"{caller or COMMAND}_{await Guid()}"
    presence = Presence(f"{core.znodes.workers}/{name}", contender_data, _ignore)
    with suppress(DistsyncError):
        await presence.create()


async def count_other_workers(core: PoolCore, caller: str, on_count: Callable[[int], object], stop: Signal) -> None:
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
        on_count(sum(not name.startswith(f"{caller}_") for name in names))
        await Wait(watch, stop)
        await Wait(stop, limit=LISTING_PAUSE_S)


def _ignore() -> None:
    """Do nothing."""
