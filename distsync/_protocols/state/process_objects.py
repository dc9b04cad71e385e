"""The objects without a name that this and other processes have created, and that this process uses.

They live below a folder of the process that created them, as a generation of its own
(module_generation.py): this process is a member while it uses any of them. A process leaves the
generation of another one a while after it has dropped the last object of it, since it often gets the
next one soon.

A process that is killed, or has no time to delete its objects, leaves a folder without a member.
Each process looks for such folders once.

Znodes:
  ``<path>/<process>``     the generation of the objects that ``process`` created
"""

from __future__ import annotations

from collections.abc import Callable

from distsync._protocols.retries import read_all
from distsync._protocols.state.module_generation import GenerationCore
from distsync._protocols.steps import Children, Guid, Listing, Wait

#: Seconds after which a process that uses no object of another process leaves its generation.
LINGER_S = 5.0

#: Seconds for which a process of another host must have no member, to count as gone.
ABSENCE_S = 60.0

#: How many folders of processes are checked of which it is not known that they do not run any more.
SAMPLE = 5


class ProcessObjects:
    """This process's memberships in the generations of processes.

    Args:
        path: Path of the folders of all processes.
        process: What identifies this process; without ``_``.
        is_dead: Whether a process that is so identified does provably not run any more.
        is_local: Whether it is certain that a process which is not dead runs.
    """

    def __init__(
        self, path: str, process: str, is_dead: Callable[[str], bool], is_local: Callable[[str], bool]
    ) -> None:
        self.path = path
        self.process = process
        self.is_dead = is_dead
        self.is_local = is_local
        #: The generations in which this process is a member, or becomes one, by creator.
        self.generations: dict[str, GenerationCore] = {}
        #: What uses objects of a creator in this process.
        self.users: dict[str, set[object]] = {}
        #: The creators whose generations this process is about to leave.
        self._leaving: set[str] = set()

    def generation(self, creator: str) -> GenerationCore:
        """Return the generation of the objects that ``creator`` has created."""
        core = self.generations.get(creator)
        return core or self.generations.setdefault(creator, self._make(creator))

    def _make(self, creator: str) -> GenerationCore:
        return GenerationCore(f"{self.path}/{creator}", self.process, self.is_dead, creator)

    def add_user(self, creator: str, user: object) -> None:
        """Note that ``user`` uses an object of ``creator``. Any thread may do so."""
        self.users.setdefault(creator, set()).add(user)

    async def remove_user(self, creator: str, user: object) -> None:
        """Note that ``user`` has been dropped. Leave the generation after a while if it was the last one."""
        users = self.users.setdefault(creator, set())
        users.discard(user)
        if users or creator == self.process or creator in self._leaving:
            return
        self._leaving.add(creator)
        try:
            await Wait(limit=LINGER_S)
        finally:
            self._leaving.discard(creator)
        if not users:
            core = self.generations.pop(creator, None)
            if core is not None:
                await core.leave()
            for each in self.users.pop(creator, ()) if not users else ():
                self.add_user(creator, each)  # another thread has added it in this moment

    async def rejoin(self) -> None:
        """Become a member of the same generations in the current session."""
        for core in tuple(self.generations.values()):
            await core.rejoin()

    async def leave(self, may_be_used: bool) -> None:
        """End all memberships, that of this process's own generation last.

        Args:
            may_be_used: Whether other processes may have used objects that this process has created and not used.
        """
        own = self.generations.pop(self.process, None)
        while self.generations:
            await self.generations.popitem()[1].leave()
        if own is None and may_be_used:
            own = self._make(self.process)
            await own.join()
        if own is not None:
            await own.leave()

    async def sweep(self) -> None:
        """Delete what processes have left that do not run any more, as far as a limited search finds it.

        A process of another host is not known to run or not. It counts as gone if it has no member for
        `ABSENCE_S`.
        """
        (listing,) = await read_all(Children(self.path))
        names = sorted(set(listing.names) - self.generations.keys()) if isinstance(listing, Listing) else []
        dead = [each for each in names if self.is_dead(each)]
        others = [each for each in names if each not in dead]
        start = int((await Guid())[:8], 16) % len(others) if others else 0
        absent = []
        for each in (*dead, *(others[start:] + others[:start])[:SAMPLE]):
            version = await self._make(each).sweep_if_unused()
            if version is not None and not self.is_local(each):
                absent.append((each, version))
        if absent:
            await Wait(limit=ABSENCE_S)
        for each, version in absent:
            await self._make(each).sweep_if_unused(version)
