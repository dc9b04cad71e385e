"""SharedLock: a lock for many readers or one writer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from distsync._client.contender_info import Contender, describe
from distsync._objects.base import create_wrapped, current_owner, exit_context, parse_contenders, type_name
from distsync._objects.locks import RLock
from distsync._objects.revocation import Revocable
from distsync._objects.validation import refuse_positional, validate_timeout
from distsync._pickle import stable_pickle_name
from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.cache_revocation import QUERY_TIMEOUT_S, holders_and_waiters
from distsync._protocols.locks.grant import Grant, Subscriber, TemporaryOwner
from distsync._protocols.locks.lock import LockSnapshot
from distsync._protocols.locks.shared_lock import NodeNames, ReadSnapshot, SharedCore, WriterCore
from distsync._signal_handlers import interruptible_at_entry, is_from_handler
from distsync.errors import DistsyncError, LockLostError, MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._objects.unnamed import Reference

MARKS = {"curator": NodeNames(), "kazoo": NodeNames(wait_queue.KAZOO_READ, wait_queue.KAZOO_LOCK)}


def _parsed(contender: Contender) -> wait_queue.ContenderNode:
    name = contender.path.rpartition("/")[2]
    return wait_queue.parse(name) or wait_queue.ContenderNode(name, 0, "")


def _chosen(contenders: list[Contender], matches: wait_queue.Rule, holding: bool) -> list[Contender]:
    """Return those contenders that hold their side, or else those that wait for it."""
    parsed = [_parsed(each) for each in contenders]
    front = wait_queue.current_holders(parsed)
    return [
        contender
        for contender, each in zip(contenders, parsed, strict=True)
        if matches(each) and (each in front) == holding
    ]


class _LockView(Revocable):
    """Base of a SharedLock and of its sides."""

    @property
    def _shared(self) -> SharedCore:
        raise NotImplementedError

    def locked(self) -> bool:
        """Return whether any process holds this side.

        The result is a copy that a watch keeps current. A change by another client is visible as
        soon as the server has notified this client, and before anything that this client reads
        later. After a lost connection the state is read again.

        Returns:
            True if this side is held. False if it is free or only cached.

        Note:
            Costs no request if this process holds this side. Otherwise it costs 1, or 2 if no
            process has ever held it, or 3 if there is a single contender or only readers. It costs
            more if these may just be caching the lock, for each of them as with Lock.locked. It
            also costs 1 watch. After that it costs none until a contender arrives or leaves.
        """
        return self.held or bool(self._ask(self._shared.is_held(self._is_meant)))

    def holders(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current holders of this side, in all processes.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for the writer, or for each reader. Threads of one process that share a
            znode count as one.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips.
        """
        with self._limited(timeout):
            return _chosen(self._holders_and_waiters(), self._is_meant, True)

    def waiters(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current waiters for this side, the first in the queue first.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips.
        """
        with self._limited(timeout):
            return _chosen(self._contenders(), self._is_meant, False)


class _WriterView(_LockView):
    """Base of what has the name, the client and the lifetime of a writer."""

    _writer: SharedWriter

    def _init_view(
        self,
        writer: SharedWriter,
        on_lost: Callable[[LockLostError], Any] | None,
        on_revoke: Callable[[Any], Any] | None,
    ) -> None:
        self._writer = writer
        self._module, self._home = writer._module, writer._home
        self._explicit_client, self._explicit_path = writer._explicit_client, writer._explicit_path
        self._init_loss_callback(on_lost)
        self._init_revocation(on_revoke)

    @property
    def name(self) -> str:
        """The name by which other processes find the lock."""
        return self._writer.name

    @property
    def client(self) -> Client:
        """The client that the lock uses."""
        return self._writer.client

    @property
    def path(self) -> str:
        """The path of the lock's znode."""
        return self._writer.path

    @property
    def linger(self) -> float:
        """Minimum time in seconds for which a released lock stays cached if no writer waits."""
        return self._writer.linger

    @property
    def _shared(self) -> SharedCore:
        return self._writer._shared

    @property
    def _is_fresh(self) -> bool:
        return self._writer._is_fresh

    @property
    def _state_entry(self) -> Any:
        return self._writer._state_entry

    @_state_entry.setter
    def _state_entry(self, entry: Any) -> None:
        self._writer._state_entry = entry

    def _refer(self, client: Client) -> Reference:
        return self._writer._refer(client)


class SuspendedHolds(NamedTuple):
    """What a thread held of a SharedLock before it waited for a notification.

    Attributes:
        writes: How many times it had acquired the writer.
        reads: How many times it had acquired the reader.
        subscribers: The objects whose callbacks are called for the lock.
    """

    writes: int
    reads: int
    subscribers: tuple[Subscriber, ...]


class SharedWriter(_LockView, RLock):
    """The writer side of a SharedLock, a reentrant lock that excludes all other threads.

    It has the interface of an RLock. A thread that reads but does not write cannot acquire it: that
    raises UpgradeError, because the thread would wait for itself.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks for
            this side with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"`` or ``"kazoo"``, whose own locks they
            share.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        Costs are those of RLock. A release while this thread also reads costs 1 request, and the
        thread continues to read.

        If the lock is lost, it behaves like RLock.

        Processes acquire the lock in FIFO order, readers included.

        Source: ZooKeeper recipes, "Shared Locks", obtaining a write lock; ``threading.RLock``.

    Example:
        >>> from distsync import SharedLock
        >>> table = SharedLock(name="table")
        >>> with table.writer, table.reader:
        ...     print(table.writer.held, table.reader.held)
        True True
    """

    __module__ = "distsync.recipes"

    _kind = "sharedlock"

    @property
    def _shared(self) -> SharedCore:
        marks = MARKS[self._layout]
        core = self._shared_state(partial(SharedCore, name_suffixes=marks))
        if core.name_suffixes != marks:
            raise MismatchError("the layout", self.path, core.name_suffixes.write, marks.write)
        return core

    @property
    def _core(self) -> WriterCore:
        return self._shared.writer

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        return wait_queue.is_writer(contender)

    def revoke(self, grace: float | None = None, *, timeout: float | None = None) -> bool:
        """Ask the writer to release its side, and take it from the writer after ``grace``.

        If the writer also reads, it may continue to read once it has released the writer side. If
        the lock is taken from it, it loses both sides.

        Args:
            grace: Maximum wait in seconds; 0 takes the lock at once. None only asks, and does not
                wait.
            timeout: Maximum wait for the server, in addition to ``grace``, in seconds; None uses the client's
                default, -1 waits forever.

        Returns:
            True if the writer released its side by itself. False if it was taken from it, or if
            ``grace`` is None.

        Raises:
            NotHeldError: No process holds this side.
            TypeError: ``grace`` is not a number.
            ValueError: ``grace`` is negative or not finite.
            DeadlineError: No server answered in time. The lock may or may not be asked for, or
                taken. Subclass of TimeoutError.

        Note:
            Costs as many requests as Lock.revoke.

            Source: ZooKeeper recipes, "Revocable Shared Locks".
        """
        return self._revoke(grace, self._is_meant, marker=revocation.WRITER, timeout=timeout)

    # A wait for a notification releases the reads of the waiting thread too, as they would be downgraded otherwise.

    def _release_save(self) -> Any:
        before: list[LockSnapshot] = []
        try:
            shared, owner = self._shared, current_owner()
            before.append(shared.writer.snapshot._replace(depth=1))
            held = [shared.writer.held_grant, *(share.grant for share in (shared.share_of(owner),) if share)]
            subscribers = tuple(each for grant in held if grant is not None for each in grant.subscribers)
            suspended = SuspendedHolds(shared.writer.depth, shared.depth(owner), subscribers)
            seconds = self.client.settings.session_timeout
            self._run(shared.writer.suspend(owner), seconds)
            return suspended
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo_reads(ReadSnapshot(0))
                self._finish_release(before or [self._core.snapshot._replace(depth=1)])
            raise

    def _acquire_restore(self, saved: Any) -> None:
        before: list[LockSnapshot] = []
        try:
            shared, owner = self._shared, current_owner()
            before.append(shared.writer.snapshot)
            super()._acquire_restore(saved.writes)
            if saved.reads:
                self._run(shared.resume_reads(owner, describe(self.linger), saved.reads))
            for each in saved.subscribers:
                each.subject._subscribe(each.depth)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo_reads(ReadSnapshot(0))
                self._undo(before)
            raise

    def _undo_reads(self, before: ReadSnapshot) -> None:
        """Undo the reads of this thread since ``before``. Idempotent."""
        ending = self._shared.undo_acquire(current_owner(), before, TemporaryOwner())
        if ending is not None:
            self.client.background(ending)

    def __repr__(self) -> str:
        state, depth = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"


class SharedReader(_WriterView):
    """The reader side of a SharedLock: a reentrant lock, held by many threads while none writes.

    It has the interface of an RLock. A thread that reads may acquire it again, even if a writer
    waits. A thread that writes may also read, and continues to read when it releases the writer
    side.

    Args:
        writer: The writer side of the same lock.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks for
            this side with ``revoke()``. None calls nothing.

    Note:
        Acquiring and releasing costs no request while the lock is cached, or while another thread
        of the process reads. Acquiring a free lock costs 2 requests in 1 round trip. Caching it
        costs more in the background: 1 to watch for other contenders, 1 for each of them that
        arrives or leaves while the lock is used, and 1 to delete the znode in the end, or 3 if a
        contender has asked for the lock in vain. Without caching (``linger=0``), acquiring and
        releasing costs 3 requests.

        If the lock is lost, it behaves like RLock.

        Processes acquire the lock in FIFO order, writers included. At most 32 threads of a process
        join a reader's znode while a writer waits, so that a writer waits for that many at most.

        Source: ZooKeeper recipes, "Shared Locks", obtaining a read lock; ``threading.RLock``.

    Example:
        >>> from distsync import SharedLock
        >>> table = SharedLock(name="table")
        >>> with table.reader:
        ...     print(table.reader.held, table.writer.held)
        True False
    """

    __module__ = "distsync.recipes"

    def __init__(
        self,
        writer: SharedWriter,
        *,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
    ) -> None:
        self._init_view(writer, on_lost, on_revoke)

    @property
    def _core(self) -> SharedCore:
        return self._shared

    def _grant(self) -> Grant | None:
        """Return the grant by which this thread reads, or else the latest of this process."""
        core = self._core
        shares = tuple(share for share in core.shares if share.is_held)
        share = core.share_of(current_owner()) or (shares[-1] if shares else None)
        return None if share is None else share.grant

    def _still_valid(self) -> Callable[[], bool]:
        grant = self._grant()
        keeping = None if grant is None else grant.cache
        if keeping is None:
            return lambda: True
        uses = keeping.uses
        return lambda: not keeping.idle and keeping.uses == uses

    def _holders_and_waiters(self) -> list[Contender]:
        return parse_contenders(self._ask(holders_and_waiters(self.path)))

    def _subscribing_owner(self, grant: Grant) -> object:
        share = self._core.share_of(current_owner())
        return current_owner() if share is not None and share.grant is grant else None

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        return not wait_queue.is_writer(contender)

    def _heed(self, grant: Grant) -> Coroutine[Any, Any, None]:
        return revocation.watch_revocation(grant, reads=True)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock for reading, once more if this thread already reads.

        Args:
            blocking: Whether to wait if a process writes or waits to write.
            timeout: Maximum wait in seconds; 0 tries once, -1 waits forever.

        Returns:
            True if the lock was acquired. False on timeout, or if ``blocking`` is False and a
            process writes or waits to write.

        Raises:
            ValueError: ``timeout`` is negative and not -1, or given with ``blocking=False``.
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs 2 requests in 1 round trip if no process writes, and 1 more with
            ``blocking=False``. Costs no request if this thread or another thread of the process
            reads, if the lock is cached, or if this thread writes.

            Processes acquire the lock in FIFO order. If the session ends during the wait, the
            thread enqueues again. If interrupted, no znode is left behind.

            Source: ZooKeeper recipes, "Shared Locks", obtaining a read lock, steps 1 to 6.
        """
        seconds = validate_timeout(timeout, "lock", blocking)
        before: list[ReadSnapshot] = []
        try:
            core, owner = self._core, current_owner()
            before.append(core.reading(owner))
            if core.deepen(owner):
                if self._has_callbacks:
                    self._subscribe(core.depth(owner))
                return True
            is_short_wait = seconds is not None and seconds < QUERY_TIMEOUT_S
            linger = self.linger
            acquired: bool = (
                self._run(core.acquire(owner, describe(linger), blocking, is_short_wait, linger=linger), seconds)
                or self._late()
            )
            if acquired:
                self._subscribe()
            return acquired
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                if before:
                    self._restore(before[0], TemporaryOwner())
            raise

    __enter__ = acquire

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when no thread of the process reads.

        Raises:
            NotHeldError: This thread does not read. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.

        Note:
            Costs no request, except for the last release of the process without caching, which
            costs 1 request.

            If the connection is lost, this waits for at most the session timeout, and the znode is
            deleted in the background. If interrupted, the lock is still released.

            Source: ZooKeeper recipes, "Locks", unlock protocol.
        """
        try:
            before: list[ReadSnapshot] = []
            core, owner = self._core, current_owner()
            before.append(core.reading(owner))
            if not core.ascend(owner):
                seconds = self.client.settings.session_timeout  # before the protocol exists, as in Semaphore.release
                self._run(core.release(owner, self.linger > 0), seconds)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._finish_release(locals().get("before", []))
            elif self._was_released_at_end(error):
                return
            raise

    @interruptible_at_entry
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            before: list[ReadSnapshot] = []
            before.append(self._core.reading(current_owner()))
            exit_context(self._end_block, error)
        except BaseException as failure:
            if not isinstance(failure, DistsyncError) or is_from_handler(failure):
                self._finish_release(locals().get("before", []))
            elif self._was_released_at_end(failure):
                return
            raise

    def _end_block(self) -> None:
        self.release()

    # As in locks.py: an interrupt at any line leaves the recursion level that the completed call would leave.

    def _finish_release(self, before: list[ReadSnapshot]) -> None:
        """Complete an interrupted release. Idempotent."""
        was = before[0] if before else self._core.reading(current_owner())
        self._restore(ReadSnapshot(max(0, was.depth - 1)), TemporaryOwner())

    def _snapshot(self) -> ReadSnapshot:
        """Return a snapshot for `_restore`."""
        return self._core.reading(current_owner())

    def _restore(self, before: ReadSnapshot, temporary_owner: TemporaryOwner) -> None:
        """Undo acquires made since the snapshot ``before``. Idempotent."""
        ending = self._core.undo_acquire(current_owner(), before, temporary_owner)
        if ending is not None:
            self.client.background(ending)

    def _is_owned(self) -> bool:
        return self._core.reads(current_owner())

    def _release_save(self) -> SuspendedHolds:
        try:
            core, owner = self._core, current_owner()
            share, depth = core.share_of(owner), core.depth(owner)
            held = () if share is None else tuple(each for each in share.grant.subscribers if each.owner is owner)
            seconds = self.client.settings.session_timeout
            self._run(core.release(owner, linger=False, all_levels=True), seconds)
            return SuspendedHolds(0, depth, held)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._restore(ReadSnapshot(0), TemporaryOwner())
            raise

    def _acquire_restore(self, saved: SuspendedHolds) -> None:
        try:
            core, owner = self._core, current_owner()
            self._run(core.acquire(owner, describe(self.linger), linger=self.linger, depth=saved.reads))
            for each in saved.subscribers:
                each.subject._subscribe(each.depth)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._restore(ReadSnapshot(0), TemporaryOwner())
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._writer,)

    def __repr__(self) -> str:
        depth = self._core.depth(current_owner()) if self._may_have_state else 0
        state = "locked" if self._may_have_state and self._core.shares else "unlocked"
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"


class SharedLock(_WriterView, SharedWriter):
    """A lock shared by threads, processes and hosts, for many readers or one writer.

    It is an RLock, with which a thread writes, and which may be used in place of one: alone, as the
    lock of a Condition, in `acquire_all` and with `synchronized`. Its sides, ``lock.reader`` and
    ``lock.writer``, have the whole interface of an RLock. ``lock.acquire()`` does what
    ``lock.writer.acquire()`` does.

    A thread that writes may also read. When it then releases the writer side, it continues to read,
    and no other writer gets the lock in between. A thread that reads cannot acquire the writer
    side: that raises UpgradeError, because the thread would wait for itself. The wait of a
    Condition releases both sides, and acquires both again.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock or a side
            is lost while it is held. None calls nothing.
        on_revoke: Called with the lock or side that is held, in a thread of distsync's own, if any
            client asks for it with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, or ``"kazoo"`` to share the lock with
            kazoo's own ReadLock and WriteLock.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        Acquiring and releasing the lock or a side alone costs 3 requests in 2 round trips. Readers
        of one process share a znode. Both sides are cached like a Lock, readers until a writer
        arrives.

        If a side is lost, it behaves like a Lock.

        Processes acquire the lock in FIFO order. A reader that arrives after a waiting writer waits
        for it.

        Znodes: ``<namespace>/sharedlock/<name>/_c_<guid>-__READ__<sequence>``, ephemeral, one for
        the readers of a process; ``..._c_<guid>-__WRIT__<sequence>``, one for each writer.

        Source: ZooKeeper recipes, "Shared Locks" and "Revocable Shared Locks"; ``threading.RLock``
        for the lock and each side.

    Example:
        >>> table = SharedLock(name="table")
        >>> with table.reader, table.reader:
        ...     print(table.reader.held, table.locked())
        True False
        >>> with table:
        ...     print(table.held, table.writer.held)
        True True
    """

    __module__ = "distsync.recipes"
    #: The types of the sides.
    _writer_type: ClassVar[type[SharedWriter]] = SharedWriter
    _reader_type: ClassVar[type[SharedReader]] = SharedReader

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
        layout: str = "curator",
        linger: float | None = None,
    ) -> None:
        refuse_positional(self, _)
        writer = create_wrapped(
            self._naming_target or self,
            self._writer_type,
            name=name,
            client=client,
            path=path,
            acl=acl,
            on_lost=on_lost,
            on_revoke=on_revoke,
            layout=layout,
            linger=linger,
        )
        self._init_sides(writer, on_lost, on_revoke)

    def _init_sides(
        self,
        writer: SharedWriter,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
    ) -> None:
        self._reader = self._reader_type(writer, on_lost=on_lost, on_revoke=on_revoke)
        self._init_view(writer, on_lost, on_revoke)
        self._fast_path = None

    @property
    def reader(self) -> SharedReader:
        """The reader side, which is acquired and released for reading."""
        return self._reader

    @property
    def writer(self) -> SharedWriter:
        """The writer side, which is acquired and released for writing."""
        return self._writer

    def revoke(self, grace: float | None = None, *, timeout: float | None = None) -> bool:
        """Ask all holders to release the lock, and take it from them after ``grace``.

        A writer that also reads and releases only the writer side is still asked, and has not
        released the lock. ``writer.revoke`` asks a writer to release only that side.
        ``reader.revoke`` asks only threads that do not write.

        Args:
            grace: Maximum wait in seconds, for all holders together; 0 takes the lock at once. None
                only asks, and does not wait.
            timeout: Maximum wait for the server, in addition to ``grace``, in seconds; None uses the
                client's default, -1 waits forever.

        Returns:
            True if all holders released the lock by themselves. False if it was taken from any of
            them, or if ``grace`` is None.

        Raises:
            NotHeldError: No process holds the lock.
            TypeError: ``grace`` is not a number.
            ValueError: ``grace`` is negative or not finite.
            DeadlineError: No server answered in time. The lock may or may not be asked for, or
                taken. Subclass of TimeoutError.

        Note:
            Costs as many requests as Lock.revoke, and with ``grace`` 1 more for a writer.

            Source: ZooKeeper recipes, "Revocable Shared Locks".
        """
        return self._revoke(grace, revocation.any_contender, include_downgraded=True, timeout=timeout)

    def holders(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current readers or the current writer, in all processes.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each. Threads of one process that share a znode count as one.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips.
        """
        with self._limited(timeout):
            return _chosen(self._holders_and_waiters(), revocation.any_contender, True)

    def waiters(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current waiters of both sides, the first in the queue first.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips.
        """
        with self._limited(timeout):
            return _chosen(self._contenders(), revocation.any_contender, False)

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_lock, (type(self), self._writer)


@stable_pickle_name
def shared_lock(kind: type[SharedLock], writer: SharedWriter) -> SharedLock:
    """Return the lock of this writer, in the process where its pickle arrived."""
    lock = kind.__new__(kind)
    lock._init_sides(writer)
    return lock
