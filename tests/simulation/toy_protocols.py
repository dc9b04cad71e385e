"""Small protocols for the simulator's own tests: a correct lock, and incorrect variants with one bug
each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from simulation.engine import Run, SimProcess, Simulation

from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    Create,
    Delete,
    GetData,
    Guid,
    Hold,
    Loss,
    Pipeline,
    SessionAlive,
    StopHolding,
    Sync,
    Wait,
    Watch,
)
from distsync.errors import DisconnectedError, NodeExistsError, NoNodeError, SessionLostError

BROKEN = (DisconnectedError, SessionLostError)
DIRECTORY = "/lock"


class Held(NamedTuple):
    path: str
    session_id: int
    token: int
    loss: Loss


async def ensure(path: str) -> None:
    while True:
        try:
            await Create(path)
            return
        except NodeExistsError:
            return
        except BROKEN:
            await Connected()


async def remove(path: str, session_id: int) -> None:
    while (await Connected()).session_id == session_id:
        try:
            await Delete(path)
            return
        except (NoNodeError, SessionLostError):
            return
        except DisconnectedError:
            continue


class Lock:
    """The published recipe with a GUID, an owner check and a leader's proof; each can be left out."""

    def __init__(self, *, search: bool = True, relist: bool = True, owner: bool = True) -> None:
        self.search = search
        self.relist = relist
        self.owner = owner

    async def acquire(self) -> Held:
        while True:
            held = await self._attempt()
            if held is not None:
                return held

    async def _attempt(self) -> Held | None:
        session_id = (await Connected()).session_id
        guid = await Guid()
        created = await self._create(guid, session_id)
        if created is None:
            return None
        path, session_id = created
        try:
            return await self._wait(path, session_id)
        except BaseException:
            await Background(remove(path, session_id))
            raise

    async def _create(self, guid: str, session_id: int) -> tuple[str, int] | None:
        """Return the znode, and the session that owns it, which may be a later one than known before."""
        await ensure(DIRECTORY)
        try:
            created = await Create(f"{DIRECTORY}/{guid}-lock-", ephemeral=True, sequence=True)
            return created.path, created.stat.ephemeral_owner if self.owner else session_id
        except SessionLostError:
            return None
        except DisconnectedError:
            return await self._find(guid, session_id) if self.search else None

    async def _find(self, guid: str, session_id: int) -> tuple[str, int] | None:
        while (await Connected()).session_id == session_id:
            _, listing = await Pipeline(Sync(), Children(DIRECTORY))
            if not isinstance(listing, Exception):
                return next(((f"{DIRECTORY}/{name}", session_id) for name in listing.names if guid in name), None)
        return None

    async def _wait(self, path: str, session_id: int) -> Held | None:
        mine = path.rpartition("/")[2]
        while (await Connected()).session_id == session_id:
            _, listing = await Pipeline(Sync(), Children(DIRECTORY))
            if isinstance(listing, Exception):
                continue
            names = sorted(listing.names, key=lambda name: name[-10:])
            if mine not in names:
                return None
            place = names.index(mine)
            if place == 0:
                return await self._held(path, session_id, int(mine[-10:]))
            await self._wait_until_deleted(f"{DIRECTORY}/{names[place - 1]}")
            if not self.relist:
                return await self._held(path, session_id, int(mine[-10:]))
        return None

    async def _held(self, path: str, session_id: int, token: int) -> Held | None:
        """Return None if the lease expired in the meantime: the driver then deletes the znode."""
        loss = Loss()
        await Hold(path, session_id, loss)
        if not await SessionAlive(session_id):
            await StopHolding(loss)
            await Background(remove(path, session_id))
            return None
        return Held(path, session_id, token, loss)

    async def _wait_until_deleted(self, path: str) -> None:
        watch = Watch()
        try:
            await GetData(path, watch)
        except (NoNodeError, *BROKEN):
            return
        await Wait(watch)

    async def release(self, held: Held) -> None:
        """Start the delete in the background, before anything can interrupt the release."""
        await Background(remove(held.path, held.session_id))
        await StopHolding(held.loss)


async def pause(seconds: float) -> None:
    await Wait(limit=seconds)


async def use(world: Simulation, lock: Any, rounds: int) -> None:
    """Acquire the lock a few times, with the records that invariants.Exclusion needs."""
    for _ in range(rounds):
        held = await Run(lock.acquire())
        try:
            world.record("granted", what="lock", path=held.path, session_id=held.session_id, loss=held.loss)
            await Run(pause(0.01))
            world.record("working", what="lock")
        finally:
            world.record("released", what="lock")
            await Run(lock.release(held))


def contend(world: Simulation, lock: Any, processes: int = 3, rounds: int = 2) -> list[SimProcess]:
    """Let ``processes`` processes use the lock."""
    made = [world.process(name) for name in "abcdefgh"[:processes]]
    for process in made:
        process.spawn(use(world, lock, rounds))
    return made
