"""The process whose workers run the tasks of a pool, as the other callers of the pool see it.

Source: ours; stdlib ``multiprocessing.managers``, where a server process has the pool.

The owner is a caller of the pool too. The others request the end of the pool by a child of its
znode, and the pool has ended when that znode does not exist any more. If the owner exited without
deleting it, it is deleted as that of any caller: by the owner's workers, or by a caller that has
seen no ``alive`` for the owner's session timeout.

Znodes, in addition to those of callers.py:
  ``<path>/callers/<owner>/close``      the pool accepts no more tasks, and ends when it has no other caller
  ``<path>/callers/<owner>/terminate``  the pool is to end at once
"""

from __future__ import annotations

from distsync._protocols.pool.callers import sweep
from distsync._protocols.pool.tasks import PoolCore
from distsync._protocols.retries import read
from distsync._protocols.steps import Children, Create, Signal, Wait, Watch
from distsync.errors import NodeExistsError, NoNodeError

#: The states of a pool. The names of znodes are among them.
RUN, CLOSE, TERMINATE, ENDED = "run", "close", "terminate", "ended"

#: Seconds between looks at an owner whose session has ended.
ABSENCE_CHECK_S = 5.0


class PoolOwner:
    """The owner of a pool.

    Args:
        core: State of the pool.
        caller: GUID of the owner, as a caller of the pool.
    """

    def __init__(self, core: PoolCore, caller: str) -> None:
        self.core, self.caller = core, caller
        self.path = core.znodes.caller_path(caller)
        #: Fires when this process waits no longer.
        self.stop = Signal()

    async def request(self, state: str) -> None:
        """Request the end of the pool: ``CLOSE`` or ``TERMINATE``."""
        try:
            await read(Create(f"{self.path}/{state}"))
        except (NodeExistsError, NoNodeError):  # it was requested before, or it has ended
            pass

    async def state(self) -> str:
        """Return the state of the pool."""
        return (await self._look(Watch()))[0]

    async def wait(self, known: str) -> str:
        """Return the state of the pool as soon as it differs from ``known``, or `stop` has fired."""
        while True:
            watch = Watch()
            state, is_alive = await self._look(watch)
            if state != known or self.stop.fired:
                return state
            await Wait(watch, self.stop, limit=None if is_alive else ABSENCE_CHECK_S)
            if not is_alive:
                await sweep(self.core)

    async def _look(self, watch: Watch) -> tuple[str, bool]:
        """Return the state of the pool, and whether its owner has a session."""
        try:
            names = (await read(Children(self.path, watch))).names
        except NoNodeError:
            return ENDED, False
        state = TERMINATE if TERMINATE in names else CLOSE if CLOSE in names else RUN
        return state, "alive" in names

    async def wait_until_alone(self) -> None:
        """Wait until the pool has no caller but its owner, or `stop` has fired."""
        while not self.stop.fired:
            watch = Watch()
            try:
                listing = await read(Children(self.core.znodes.callers, watch))
            except NoNodeError:
                return
            if set(listing.names) <= {self.caller}:
                return
            await Wait(watch, self.stop)
