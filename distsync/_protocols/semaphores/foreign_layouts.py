"""Semaphores in the layouts of kazoo and of Curator: a lock, and a pool of leases.

Source: kazoo.recipe.lock.Semaphore, Curator's InterProcessSemaphoreV2.

A client acquires the lock, waits in it until the pool has room, and adds a lease. So only one
waiter watches the pool. Curator adds its lease before it waits; only the oldest leases count.
Permits cannot be added, as these layouts do not store their number.

Znodes:
kazoo    ``<path>``                                    data = number of permits, as text
         ``<path>/<guid>``                             ephemeral, a lease
         ``<path>-__lock__/<guid>__lock__<sequence>``  ephemeral, a waiter
Curator  ``<path>/leases/_c_<guid>-lease-<sequence>``  ephemeral, a lease
         ``<path>/locks/_c_<guid>-lock-<sequence>``    ephemeral, a waiter
"""

from __future__ import annotations

from collections import deque
from functools import partial

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, TemporaryOwner, hold, of_owner
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
from distsync._signal_handlers import raise_if_from_handler
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

#: A number with this many digits is not taken for a number of leases.
DIGITS = 20


class PoolSemaphoreCore:
    """In-process state of a semaphore, shared by all its threads."""

    #: Suffix of the names of waiters.
    name_suffix: str
    #: Its users are not known, since other clients do not register, so that its number cannot be changed.
    user = None

    def __init__(self, path: str, initial: int) -> None:
        self.path = path
        self.initial = initial
        self.wanted = {"initial value": initial}
        self.grants: deque[Grant] = deque()

    @property
    def idle(self) -> bool:
        """Whether this process holds no permit."""
        return not self.grants

    @property
    def pool(self) -> str:
        """Path of the pool of leases."""
        raise NotImplementedError

    @property
    def wait_queue_path(self) -> str:
        """Path of the lock that is held while waiting for a lease."""
        raise NotImplementedError

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        """Return the name of a lease."""
        raise NotImplementedError

    async def _ensure_pool(self) -> None:
        """Create the pool, or check that its number of permits is ours."""
        raise NotImplementedError

    async def acquire(
        self, contender_data: bytes, blocking: bool = True, owner: object = None, max_permits: int | None = None
    ) -> Grant | None:
        """Acquire a lease. Return None at the deadline, or if not ``blocking`` and none is free."""
        try:
            await self._ensure_pool()
            if not blocking and await self._is_full():
                return None
            while True:
                turn = await wait_queue.acquire(self.wait_queue_path, self.name_suffix, contender_data)
                if turn is None:
                    return None
                try:
                    grant = await self._take(turn, contender_data, blocking, owner)
                except SessionLostError:
                    await Background(partial(delete_until_session_ends, turn.path, turn.session_id))
                    continue
                except BaseException:
                    await Background(partial(delete_until_session_ends, turn.path, turn.session_id))
                    raise
                return await self._release_turn(turn, grant)
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None

    async def _release_turn(self, turn: wait_queue.QueueEntry, grant: Grant | None) -> Grant | None:
        """Release the lock, and then return the grant."""
        try:
            await delete_own(turn.path, turn.session_id)
        except BaseException:
            await Background(partial(delete_until_session_ends, turn.path, turn.session_id))
            if grant is not None:
                await Background(partial(delete_until_session_ends, grant.entry.path, grant.entry.session_id))
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
        """Wait until the pool has room, and add a lease. Only the holder of the lock can do so."""
        while True:
            watch = Watch()
            (pool,) = await wait_queue.read_consistent(turn, Children(self.pool, watch))
            if isinstance(pool, NoNodeError):
                await self._ensure_pool()
            elif isinstance(pool, DistsyncError):
                raise pool
            elif len(pool.names) < self.initial:
                return await self._lease(turn, contender_data, owner)
            elif not blocking or await Wait(watch) is WakeReason.DEADLINE:
                return None

    async def _lease(self, turn: wait_queue.QueueEntry, contender_data: bytes, owner: object) -> Grant:
        path = f"{self.pool}/{self._name(await Guid(), turn)}"
        try:
            entry = await self._create(path, turn, contender_data)
            return await hold(entry, owner)
        except BaseException:
            # A later session may have created it while the lock's znode lived on.
            await Background(delete_guaranteed(path))
            raise

    async def _create(self, path: str, turn: wait_queue.QueueEntry, contender_data: bytes) -> wait_queue.QueueEntry:
        """Add a lease, in a transaction that fails if we no longer hold the lock.

        Otherwise another client could already have filled the pool.
        """
        while True:
            if (await Connected()).session_id != turn.session_id:
                raise SessionLostError(f"the wait in {self.path}")
            try:
                await Multi((Check(turn.path), Create(path, contender_data, ephemeral=True)))
            except DisconnectedError:
                continue
            except NodeExistsError:
                pass  # executed, but the reply was lost
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
                    raise SessionLostError(f"the wait in {self.path}") from error
                await self._ensure_pool()
                continue
            stat = await read(Exists(path))
            if stat is None or stat.ephemeral_owner != turn.session_id:
                raise SessionLostError(f"the wait in {self.path}")
            return wait_queue.QueueEntry(self.pool, path.rpartition("/")[2], stat.czxid, turn.session_id)

    async def capacity(self) -> int:
        """Return the total number of permits, free or not."""
        return self.initial

    async def leases(self) -> list[tuple[str, Node]]:
        """Return path and znode of each lease that counts, the oldest first."""
        try:
            listing = await read(Children(self.pool))
        except NoNodeError:
            return []
        paths = [f"{self.pool}/{name}" for name in listing.names]
        nodes = await read_all(*map(GetData, paths)) if paths else ()
        there = [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
        return sorted(there, key=lambda lease: lease[1].stat.czxid)[: self.initial]

    async def value(self) -> int:
        """Return the number of free permits."""
        try:
            return max(0, self.initial - len((await read(Children(self.pool))).names))
        except NoNodeError:
            return self.initial

    async def release(
        self, count: int = 1, max_permits: int | None = None, started: list[bool] | None = None, owner: object = None
    ) -> None:
        """Release ``count`` leases of this process, those of ``owner`` first.

        Raise OverReleaseError, and release none, if it has fewer: no permits can be added. Set the
        element of ``started`` to True at the start. From then on, an interrupted call is completed
        in the background.
        """
        mine: list[Grant] = []
        try:
            if started is not None:
                started[0] = True
            chosen = of_owner(self.grants, owner, count)
            if count > len(chosen):
                raise OverReleaseError("Semaphore released too many times")
            mine += chosen
            for grant in mine:
                self.grants.remove(grant)
            lost = [grant for grant in mine if not await self._delete_lease(grant)]
        except OverReleaseError:
            raise
        except BaseException:
            for grant in mine or of_owner(self.grants, owner, count):
                grant.owner = TemporaryOwner()
                await Background(self.force_release(grant))
            raise
        if lost:
            raise LockLostError(self.path, lost[0].loss.reason or ZNODE_DELETED)

    async def force_release(self, grant: Grant) -> None:
        """Release a permit whose acquire or release was interrupted at an unknown point."""
        await self._delete_lease(grant)

    async def _delete_lease(self, grant: Grant) -> bool:
        if grant in self.grants:
            self.grants.remove(grant)
        try:
            await StopHolding(grant.loss)
            return await delete_own(grant.entry.path, grant.entry.session_id) and not grant.loss.fired
        except BaseException:
            await Background(partial(delete_until_session_ends, grant.entry.path, grant.entry.session_id))
            raise


def kazoo_wait_queue(path: str) -> str:
    """Return the path of the queue of waiters of kazoo's semaphore at ``path``."""
    return f"{path}-__lock__"


class KazooSemaphoreCore(PoolSemaphoreCore):
    """Layout of kazoo: the semaphore's znode is the pool, and its data the number of permits."""

    name_suffix = wait_queue.KAZOO_LOCK

    @property
    def pool(self) -> str:
        return self.path

    @property
    def wait_queue_path(self) -> str:
        return kazoo_wait_queue(self.path)

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        return guid.replace("-", "")

    async def _ensure_pool(self) -> None:
        """Create the pool, or check that its number of permits is ours.

        Like kazoo, ignore data that is not a number.
        """
        await ensure(self.path, str(self.initial).encode())
        try:
            node = await read(GetData(self.path))
        except NoNodeError:
            return
        recorded = node.data.decode(errors="replace").strip()
        if recorded.isdecimal() and len(recorded) < DIGITS and int(recorded) != self.initial:
            raise MismatchError("the initial value", self.path, int(recorded), self.initial)


class CuratorSemaphoreCore(PoolSemaphoreCore):
    """Layout of Curator. No znode states the number of permits, so all clients must agree on it."""

    name_suffix = wait_queue.LOCK

    @property
    def pool(self) -> str:
        return f"{self.path}/leases"

    @property
    def wait_queue_path(self) -> str:
        return f"{self.path}/locks"

    def _name(self, guid: str, turn: wait_queue.QueueEntry) -> str:
        """Return a name without a sequence number of its own, so that it is known in advance.

        The number is that of the lock's znode, and leases are created in the same order.
        """
        return f"_c_{guid}-lease-{turn.name[-10:]}"

    async def _ensure_pool(self) -> None:
        await wait_queue.ensure_container(self.pool)
