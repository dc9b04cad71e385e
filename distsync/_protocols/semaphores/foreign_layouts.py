"""Semaphores in the znodes of kazoo's own and of Curator's: a lock in front of a pool of leases.

Source: kazoo.recipe.lock.Semaphore, Curator's InterProcessSemaphoreV2: whoever wants a lease takes the lock first, and
waits in it until the pool has room; so one waiter at a time watches the pool. Curator's waiter has put his lease into
it by then; what counts is who was there before.

Rules for this file: pure; the state of a PoolSemaphoreCore is shared by the threads of one process. Permits are never
added: in these znodes there is no place to note them.

Picture: kazoo    ``<path>``                                     data = the number of permits, as text
                  ``<path>/<guid>``                              ephemeral, a lease
                  ``<path>-__lock__/<guid>__lock__<sequence>``   ephemeral, who waits for one
         Curator  ``<path>/leases/_c_<guid>-lease-<sequence>``   ephemeral, a lease
                  ``<path>/locks/_c_<guid>-lock-<sequence>``     ephemeral, who waits for one
"""

from __future__ import annotations

from collections import deque

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, hold, of_owner
from distsync._protocols.retries import delete_guaranteed, delete_own, delete_until_session_ends, ensure, read, read_all
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Check,
    Children,
    Connected,
    Create,
    Exists,
    GetData,
    Guid,
    Multi,
    Node,
    StopHolding,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import (
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    LockLostError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
    OverReleaseError,
    SessionLostError,
)

#: More than any number of leases has.
DIGITS = 20


class PoolSemaphoreCore:
    """What the threads of one process know together about one semaphore."""

    #: How those are marked who wait for a lease.
    name_suffix: str

    def __init__(self, path: str, initial: int) -> None:
        self.path = path
        self.initial = initial
        self.grants: deque[Grant] = deque()

    @property
    def idle(self) -> bool:
        """No permit is held."""
        return not self.grants

    @property
    def pool(self) -> str:
        """Where the leases are."""
        raise NotImplementedError

    @property
    def wait_queue_path(self) -> str:
        """Where those stand in line who want a lease."""
        raise NotImplementedError

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        """What a lease is called."""
        raise NotImplementedError

    async def _agree(self) -> None:
        """The pool is there, for as many leases as we think."""
        raise NotImplementedError

    async def acquire(
        self, contender_data: bytes, blocking: bool = True, owner: object = None, max_permits: int | None = None
    ) -> Grant | None:
        """A lease. None: not at once if we do not ``blocking``, or not before the deadline."""
        try:
            await self._agree()
            if not blocking and await self._is_full():
                return None
            while True:
                turn = await wait_queue.acquire(self.wait_queue_path, self.name_suffix, contender_data)
                if turn is None:
                    return None
                try:
                    grant = await self._take(turn, contender_data, blocking, owner)
                except SessionLostError:
                    await Background(delete_until_session_ends(turn.path, turn.session_id))
                    continue
                except BaseException:
                    await Background(delete_until_session_ends(turn.path, turn.session_id))
                    raise
                return await self._release_turn(turn, grant)
        except DeadlineError:
            return None

    async def _release_turn(self, turn: wait_queue.QueueEntry, grant: Grant | None) -> Grant | None:
        """It is the next one's turn; what we took is ours once that is done."""
        try:
            await delete_own(turn.path, turn.session_id)
        except BaseException:
            await Background(delete_until_session_ends(turn.path, turn.session_id))
            if grant is not None:
                await Background(delete_until_session_ends(grant.place.path, grant.place.session_id))
            raise
        if grant is not None:
            self.grants.append(grant)
        return grant

    async def _is_full(self) -> bool:
        pool, waiting = await read_all(Children(self.pool), Children(self.wait_queue_path))
        taken = 0 if isinstance(pool, NoNodeError) else len(pool.names)
        return taken >= self.initial or (
            not isinstance(waiting, NoNodeError) and bool(wait_queue.in_order(waiting.names))
        )

    async def _take(
        self, turn: wait_queue.QueueEntry, contender_data: bytes, blocking: bool, owner: object
    ) -> Grant | None:
        """It is our turn: a lease as soon as the pool has room. Who has the turn only can make one."""
        while True:
            watch = Watch()
            (pool,) = await wait_queue.read_consistent(turn, Children(self.pool, watch))
            if isinstance(pool, NoNodeError):
                await self._agree()
            elif isinstance(pool, DistsyncError):
                raise pool
            elif len(pool.names) < self.initial:
                return await self._lease(turn, contender_data, owner)
            elif not blocking or await Wait(watch) is WakeReason.DEADLINE:
                return None

    async def _lease(self, turn: wait_queue.QueueEntry, contender_data: bytes, owner: object) -> Grant:
        path = f"{self.pool}/{self._name(await Guid(), turn)}"
        try:
            place = await self._create(path, turn, contender_data)
            return await hold(place, owner)
        except BaseException:
            # it may have been made in a later session, beside a turn that lives on
            await Background(delete_guaranteed(path))
            raise

    async def _create(self, path: str, turn: wait_queue.QueueEntry, contender_data: bytes) -> wait_queue.QueueEntry:
        """One transaction, which fails where our turn is over: somebody else may have taken the room."""
        while True:
            if (await Connected()).session_id != turn.session_id:
                raise SessionLostError(f"waiting in {self.path}")
            try:
                await Multi((Check(turn.path), Create(path, contender_data, ephemeral=True)))
            except DisconnectedError:
                continue
            except NodeExistsError:
                pass  # it was done, and the answer was lost
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
                    raise SessionLostError(f"waiting in {self.path}") from error
                await self._agree()
                continue
            stat = await read(Exists(path))
            if stat is None or stat.ephemeral_owner != turn.session_id:
                raise SessionLostError(f"waiting in {self.path}")
            return wait_queue.QueueEntry(self.pool, path.rpartition("/")[2], stat.czxid, turn.session_id)

    async def capacity(self) -> int:
        """How many permits there are, free or not."""
        return self.initial

    async def leases(self) -> list[tuple[str, Node]]:
        """Path and znode of every lease that counts, the oldest first."""
        try:
            listing = await read(Children(self.pool))
        except NoNodeError:
            return []
        paths = [f"{self.pool}/{name}" for name in listing.names]
        nodes = await read_all(*map(GetData, paths)) if paths else ()
        there = [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
        return sorted(there, key=lambda lease: lease[1].stat.czxid)[: self.initial]

    async def value(self) -> int:
        """How many permits are free now."""
        try:
            return max(0, self.initial - len((await read(Children(self.pool))).names))
        except NoNodeError:
            return self.initial

    async def release(
        self, count: int = 1, max_permits: int | None = None, started: list[bool] | None = None, owner: object = None
    ) -> None:
        """``count`` leases of this process go, those of ``owner`` first. Raises OverReleaseError if it has fewer, and
        then none goes: a permit that nobody took cannot be added here. Once ``started`` says so, whatever interrupts
        it, the leases go."""
        mine: list[Grant] = []
        try:
            if started is not None:
                started[0] = True
            if count > len(self.grants):
                raise OverReleaseError("Semaphore released too many times")
            mine += of_owner(self.grants, owner, count)
            for grant in mine:
                self.grants.remove(grant)
            lost = [grant for grant in mine if not await self._give_back(grant)]
        except OverReleaseError:
            raise
        except BaseException:
            for grant in mine or of_owner(self.grants, owner, count):
                await Background(self.force_release(grant))
            raise
        if lost:
            raise LockLostError(self.path, lost[0].loss.reason or ZNODE_DELETED)

    async def force_release(self, grant: Grant) -> None:
        """Its acquire or its release was interrupted somewhere."""
        await self._give_back(grant)

    async def _give_back(self, grant: Grant) -> bool:
        if grant in self.grants:
            self.grants.remove(grant)
        try:
            await StopHolding(grant.loss)
            return await delete_own(grant.place.path, grant.place.session_id) and not grant.loss.fired
        except BaseException:
            await Background(delete_until_session_ends(grant.place.path, grant.place.session_id))
            raise


class KazooSemaphoreCore(PoolSemaphoreCore):
    """The pool is the semaphore's own znode, which says for how many leases it is."""

    name_suffix = wait_queue.KAZOO_LOCK

    @property
    def pool(self) -> str:
        return self.path

    @property
    def wait_queue_path(self) -> str:
        return f"{self.path}-__lock__"

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        return guid.replace("-", "")

    async def _agree(self) -> None:
        """The pool is there, for as many leases as we think. Whatever is no number says nothing, as with kazoo."""
        await ensure(self.path, str(self.initial).encode())
        try:
            node = await read(GetData(self.path))
        except NoNodeError:
            return
        recorded = node.data.decode(errors="replace").strip()
        if recorded.isdecimal() and len(recorded) < DIGITS and int(recorded) != self.initial:
            raise MismatchError("the initial value", self.path, int(recorded), self.initial)


class CuratorSemaphoreCore(PoolSemaphoreCore):
    """Nothing says for how many leases it is: all who use it have to agree, as in Curator."""

    name_suffix = wait_queue.LOCK

    @property
    def pool(self) -> str:
        return f"{self.path}/leases"

    @property
    def wait_queue_path(self) -> str:
        return f"{self.path}/locks"

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        """No sequence of its own, so that it is known before it is made; leases are made in the order of the turns."""
        return f"_c_{guid}-lease-{turn.name[-10:]}"

    async def _agree(self) -> None:
        await wait_queue.ensure_container(self.pool)
