"""Objects of ``distsync.multiprocessing`` that the standard library does not have."""

from __future__ import annotations

from typing import ClassVar

from distsync._objects import election, shared_lock
from distsync._signal_handlers import complete, interruptible_at_entry
from distsync.errors import NotHeldError, NotOwnerError
from distsync.multiprocessing.synchronize import Condition, RLock, asked, owner_of, seconds_of


class SharedWriter(shared_lock.SharedWriter, RLock):
    """The writer side of a SharedLock, with the signatures and errors of ``multiprocessing.RLock``.

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
        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedWriter``.

        Source: ZooKeeper recipes, "Shared Locks"; ``multiprocessing.RLock``.

    Example:
        >>> from distsync.multiprocessing import SharedLock
        >>> table = SharedLock(name="table of processes")
        >>> with table.writer:
        ...     print(table.writer)
        <SharedWriter(MainProcess, 1)>
    """

    __module__ = "distsync.multiprocessing.synchronize"
    _needs_name = False  # passed to children
    __repr__ = RLock.__repr__


class SharedReader(shared_lock.SharedReader):
    """The reader side of a SharedLock, with the signatures and errors of ``multiprocessing.RLock``.

    Args:
        writer: The writer side of the same lock.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks for
            this side with ``revoke()``. None calls nothing.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedReader``.

        Source: ZooKeeper recipes, "Shared Locks"; ``multiprocessing.RLock``.

    Example:
        >>> from distsync.multiprocessing import SharedLock
        >>> table = SharedLock(name="table of processes")
        >>> with table.reader:
        ...     print(table.reader.held, table)
        True <SharedLock(None, 0)>
    """

    __module__ = "distsync.multiprocessing.synchronize"

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock for reading, once more if this thread already reads.

        Args:
            block: Whether to wait if a process writes or waits to write.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever. Ignored if
                ``block`` is False.

        Returns:
            True if the lock was acquired. False on timeout, or if ``block`` is False and a process
            writes or waits to write.

        Raises:
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs as many requests as ``distsync.recipes.SharedReader.acquire``.

            Processes acquire the lock in FIFO order. If the session ends during the wait, the
            thread enqueues again. If interrupted, no znode is left behind.

            Source: ZooKeeper recipes, "Shared Locks", obtaining a read lock, steps 1 to 6.
        """
        return super().acquire(bool(block), seconds_of(block, timeout))

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when no thread of the process reads.

        Raises:
            NotOwnerError: This thread does not read. Subclass of AssertionError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.

        Note:
            Costs no request, except for the last release of the process without caching, which
            costs 1 request.

            Source: ZooKeeper recipes, "Locks", unlock protocol.
        """
        try:
            begun = True
            shared_lock.SharedReader.release(self)
        except NotHeldError:
            raise NotOwnerError("attempt to release a reader not owned by thread") from None
        except BaseException:
            if "begun" not in locals():
                complete(shared_lock.SharedReader.release, self)
            raise


class SharedLock(shared_lock.SharedLock, SharedWriter):
    """A lock shared by processes and hosts, for many readers or one writer.

    It is an RLock of this package, with which a thread writes, and may be used in place of one. In
    all other respects it is a ``distsync.recipes.SharedLock``. Objects of both classes that have
    the same name are the same lock.

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
        Releases of what the thread does not hold raise NotOwnerError, a subclass of AssertionError.

        Costs, losses, fairness and znodes are those of ``distsync.recipes.SharedLock``.

        Source: ZooKeeper recipes, "Shared Locks"; ``multiprocessing.RLock``.

    Example:
        >>> from distsync.multiprocessing import SharedLock
        >>> table = SharedLock(name="table of processes")
        >>> with table, table.reader:
        ...     print(table)
        <SharedLock(MainProcess, 1)>
    """

    __module__ = "distsync.multiprocessing.synchronize"
    _writer_type: ClassVar[type[shared_lock.SharedWriter]] = SharedWriter
    _reader_type: ClassVar[type[shared_lock.SharedReader]] = SharedReader


class Election(election.Election, Condition, RLock):
    """A leader election, with the signatures and errors of ``multiprocessing.Condition``.

    In all other respects it is a ``distsync.recipes.Election``. Objects of both classes that have the
    same name are the same election.

    Args:
        data: Any JSON value that other processes can read of this candidate, such as an address.
        name: Name of the election, shared by all processes that use it. Without a name, an election
            assigned at module or class level is named after its variable; any other election gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the election's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_elected: Called with the fencing token when this process becomes the leader, in a thread
            of distsync's own; None calls nothing.
        on_deposed: Called with a LockLostError, in the same thread, when the leadership is lost;
            None calls nothing.
        on_change: Called with the leader before and after each change, two Candidates or None, in a
            thread of distsync's own; None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, ``"latch"`` or ``"kazoo"``, as in
            ``distsync.recipes.Election``.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` or ``layout`` is not valid.
        PayloadPickleError: ``data`` is not JSON.
        PayloadTooLargeError: ``data`` is too large.

    Note:
        ``wait()``, ``notify()`` and ``release()`` raise NotOwnerError, a subclass of AssertionError, if
        the thread does not lead.

        Costs, losses, fairness and znodes are those of ``distsync.recipes.Election``.

        Source: ZooKeeper recipes, "Leader Election"; ``multiprocessing.Condition``.

    Example:
        >>> from distsync.multiprocessing import Election
        >>> election = Election("10.0.0.7:8080", name="scheduler of processes")
        >>> with election:
        ...     print(election.leader.data, election)
        10.0.0.7:8080 <Election(MainProcess, 0)>
    """

    __module__ = "distsync.multiprocessing.synchronize"
    _needs_name = False  # passed to children

    def __repr__(self) -> str:
        """Return the leader and the number of waiters, as multiprocessing's Condition shows its lock's."""
        return f"<{type(self).__name__}({owner_of(self)}, {asked(self, lambda: self._condition.waiting(), 0)})>"

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Become a candidate, and wait until this thread leads; if it does, increment its recursion level.

        Args:
            block: Whether to wait if another candidate leads.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever. Ignored if
                ``block`` is False.

        Returns:
            True if this thread leads. False on timeout, or if ``block`` is False and another
            candidate leads.

        Raises:
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs as many requests as ``distsync.recipes.Election.acquire``.

            Processes lead in FIFO order. If the session ends during the wait, the candidate enqueues
            again, as the last one. If interrupted, no znode is left behind.

            Source: ZooKeeper recipes, "Leader Election", steps 1 to 3; the mail of June 2008
            (LEADER).
        """
        return election.Election.acquire(self, bool(block), seconds_of(block, timeout))

    __enter__ = election.Election.__enter__

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and resign when it reaches zero.

        Raises:
            NotOwnerError: This thread does not lead. Subclass of AssertionError.
            LockLostError: The leadership was lost. Another process may lead now.

        Note:
            Costs 1 request for the last release, and none for the others.

            Source: the mail of June 2008: delete the node before relinquishing leadership.
        """
        try:
            begun = True
            election.Election.release(self)
        except NotHeldError:
            raise NotOwnerError("attempt to release an election in which this thread does not lead") from None
        except BaseException:
            if "begun" not in locals():
                complete(election.Election.release, self)
            raise
