"""SharedLock of ``distsync.asyncio``, which asyncio does not have."""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple

from distsync._client.contender_info import describe
from distsync._objects import shared_lock
from distsync._objects.aio.base import AsyncOwnable, async_object, done_at_end, mine, raise_or_note
from distsync._objects.aio.locks import Lock
from distsync._protocols.locks.grant import TemporaryOwner
from distsync._protocols.locks.shared_lock import SharedCore, WriterCore
from distsync._signal_handlers import is_from_handler
from distsync.errors import DistsyncError, LockLostError, NotHeldError


class SuspendedDepths(NamedTuple):
    """How many times a task held each side of a lock before it waited for a notification."""

    writes: int
    reads: int


class SharedWriter(Lock):
    """The writer side of a SharedLock, a reentrant lock that excludes all other tasks.

    It belongs to the task that acquired it. A task that reads but does not write cannot acquire it:
    that raises UpgradeError, because the task would wait for itself.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``linger`` is not valid.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedWriter``, with tasks
        in place of threads.

        Source: ZooKeeper recipes, "Shared Locks", obtaining a write lock; ``threading.RLock``.

    Example:
        >>> from distsync.asyncio import SharedLock
        >>> async def main():
        ...     table = SharedLock(name="table of tasks")
        ...     async with table.writer, table.reader:
        ...         print(table.writer.held, table.reader.held)
        >>> asyncio.run(main())
        True True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = shared_lock.SharedWriter

    async def acquire(self) -> Literal[True]:
        """Acquire the lock, or increment the recursion level if this task holds it.

        Returns:
            True.

        Raises:
            UpgradeError: This task reads, and does not write. Subclass of RuntimeError.
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs no request if this task holds the lock or the lock is cached, and 2 requests in 1
            round trip if it is free.

            If the session ends during the wait, the task enqueues again. If cancelled, no znode is
            left behind.

            Source: ZooKeeper recipes, "Shared Locks", obtaining a write lock, steps 1 to 5.
        """
        await self._ready()
        if self._is_owned():
            self._core.depth += 1
            return True
        return await super().acquire()

    @done_at_end
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when it reaches zero.

        This does not wait for the deletion of the znode. A task that also reads continues to read.

        Raises:
            NotHeldError: This task does not hold the lock. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held, as far as is known without a
                request.

        Note:
            Costs no request, except for the last release, which costs as many as Lock.release.
        """
        if not self._ends_hold():
            return
        core = self._core
        grant = core.grant if core.owner is mine() else None
        sure = self._surely(grant)
        self._run_in_background(core.release(core.detach(mine()), self._may_linger()))
        if not sure:
            raise self._lost(grant)

    async def _leave(self, linger: bool = True) -> None:
        if self._ends_hold():
            await super()._leave(linger)

    def _ends_hold(self) -> bool:
        """Return whether this is the last release. If it is not, decrement the recursion level."""
        core = self._core
        if self._is_owned() and core.depth > 1:
            core.reduce_depth(core.depth - 1)
            return False
        if core.owner is not mine() and core.loss_of(mine()) is None:
            raise NotHeldError(f"cannot release {self.path}: it is not held by this task")
        return True

    def _is_owned(self) -> bool:
        return self._core.is_held_by(mine())

    @property
    def _core(self) -> WriterCore:
        core: WriterCore = self._sync._core
        return core

    def _held(self) -> SuspendedDepths:
        return SuspendedDepths(self._core.depth, self._core.shared.depth(mine()))

    async def _suspend(self) -> None:
        await self._await(self._core.suspend(mine()), self.client.settings.session_timeout)

    async def _resume(self, held: SuspendedDepths) -> None:
        if not self._is_owned():
            await super().acquire()
        core, me = self._core, mine()
        if core.owner is me:
            core.depth = held.writes
        if held.reads and not core.shared.depth(me):
            await self._await(core.shared.resume_reads(me, describe(self._sync.linger), held.reads))


class SharedReader(AsyncOwnable):
    """The reader side of a SharedLock: a reentrant lock, held by many tasks while none writes.

    It belongs to the task that acquired it. A task that reads may acquire it again, even if a
    writer waits. A task that writes may also read, and continues to read when it releases the
    writer side.

    Args:
        writer: The writer side of the same lock.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedReader``, with tasks
        in place of threads.

        Source: ZooKeeper recipes, "Shared Locks", obtaining a read lock; ``threading.RLock``.

    Example:
        >>> from distsync.asyncio import SharedLock
        >>> async def main():
        ...     table = SharedLock(name="table of tasks")
        ...     async with table.reader:
        ...         print(table.reader.held, table.writer.held)
        >>> asyncio.run(main())
        True False
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = shared_lock.SharedReader

    def __init__(self, writer: SharedWriter) -> None:
        self._sync = shared_lock.SharedReader(writer._sync)

    async def acquire(self) -> Literal[True]:
        """Acquire the lock for reading, once more if this task already reads.

        Returns:
            True.

        Raises:
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs 2 requests in 1 round trip if no process writes. Costs no request if this or
            another task of the process reads, if the lock is cached, or if this task writes.

            Processes acquire the lock in FIFO order. If the session ends during the wait, the task
            enqueues again. If cancelled, no znode is left behind.

            Source: ZooKeeper recipes, "Shared Locks", obtaining a read lock, steps 1 to 6.
        """
        await self._ready()
        await self._acquire(1)
        return True

    async def _acquire(self, depth: int) -> None:
        core, me, linger = self._core, mine(), self._sync.linger
        before = core.reading(me)
        try:
            await self._await(core.acquire(me, describe(linger), linger=linger, depth=depth))
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                ending = core.undo_acquire(me, before, TemporaryOwner())
                if ending is not None:
                    self.client.background(ending)
            raise

    @done_at_end
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when no task of the process reads.

        This does not wait for the deletion of the znode.

        Raises:
            NotHeldError: This task does not read. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held, as far as is known without a
                request.

        Note:
            Costs no request, except for the last release of the process without caching, which
            costs 1 request. The event loop does not wait for it.
        """
        core = self._core
        if core.ascend(mine()):
            return
        share = core.share_of(mine())
        grant = None if share is None else share.grant
        sure = self._surely(grant)
        self._run_in_background(core.release(core.detach(mine()), self._sync.linger > 0))
        if not sure:
            raise self._lost(grant)

    def locked(self) -> bool:
        """Return whether any process reads.

        Returns:
            True if this side is held. False if it is free or only cached.

        Note:
            Costs no request if this process reads. Otherwise it costs as many as
            ``distsync.recipes.SharedReader.locked``, for which the event loop waits.
        """
        return self.held or bool(self._run_blocking(self._core.is_held(self._sync._is_meant)))

    def _is_owned(self) -> bool:
        return self._core.reads(mine())

    def _held(self) -> SuspendedDepths:
        return SuspendedDepths(0, self._core.depth(mine()))

    async def _suspend(self) -> None:
        released = self._core.release(mine(), linger=False, all_levels=True)
        await self._await(released, self.client.settings.session_timeout)

    async def _resume(self, held: SuspendedDepths) -> None:
        if not self._is_owned():
            await self._acquire(held.reads)

    @property
    def _core(self) -> SharedCore:
        core: SharedCore = self._sync._core
        return core

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            client = self.client
            await self._await(self._core.release(mine(), self._sync.linger > 0), client.settings.session_timeout)
        except (LockLostError, NotHeldError) as lost:
            raise_or_note(lost, error)

    def __repr__(self) -> str:
        is_read = self._sync._may_have_state and bool(self._core.shares)
        return self._repr_state("locked" if is_read else "unlocked")


class SharedLock(SharedWriter):
    """A lock shared by tasks, processes and hosts, for many readers or one writer.

    With the lock itself a task writes: ``async with lock`` does what ``async with lock.writer``
    does. It is reentrant, belongs to the task that acquired it, and may be the lock of a Condition,
    whose wait releases both sides and acquires both again. A ``distsync.threading.SharedLock`` of
    the same name is the same lock.

    On Python 3.10 and 3.11, ``asyncio.wait_for`` calls ``acquire`` and a Condition's ``wait`` in a
    task of its own, which then owns the lock, or does not hold it. Use ``asyncio.timeout`` instead.

    A task that writes may also read. When it then releases the writer side, it continues to read,
    and no other writer gets the lock in between. A task that reads cannot acquire the writer side:
    that raises UpgradeError, because the task would wait for itself.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``linger`` is not valid.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedLock``, with tasks
        in place of threads.

        Source: ZooKeeper recipes, "Shared Locks"; ``threading.RLock`` for the lock and each side.

    Example:
        >>> from distsync.asyncio import SharedLock
        >>> async def main():
        ...     table = SharedLock(name="table of tasks")
        ...     async with table.reader:
        ...         print("many tasks at a time")
        ...     async with table:
        ...         print(table.held)
        >>> asyncio.run(main())
        many tasks at a time
        True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = shared_lock.SharedLock
    _sides: tuple[SharedReader, SharedWriter] | None = None

    def _made_sides(self) -> tuple[SharedReader, SharedWriter]:
        if self._sides is None:
            self._sides = async_object(SharedReader, self._sync.reader), async_object(SharedWriter, self._sync.writer)
        return self._sides

    @property
    def reader(self) -> SharedReader:
        """The reader side, which is acquired and released for reading."""
        return self._made_sides()[0]

    @property
    def writer(self) -> SharedWriter:
        """The writer side, which is acquired and released for writing."""
        return self._made_sides()[1]


def of_twin(twin: Any) -> SharedWriter | SharedReader:
    """Return the asyncio object around a SharedLock for threads, or around one of its sides."""
    if isinstance(twin, shared_lock.SharedReader):
        return async_object(SharedReader, twin)
    return async_object(SharedLock if isinstance(twin, shared_lock.SharedLock) else SharedWriter, twin)
