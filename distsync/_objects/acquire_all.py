"""acquire_all: acquire several locks, or none.

Only the public methods of the locks are used, because each lock may belong to another client, which
drives its own protocols only. The simulator runs the same loop with the locks' cores (scenario
``acquire-all``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from types import TracebackType
from typing import Any

from distsync._client.clocks import wait_clock
from distsync._objects.base import exit_context
from distsync._objects.locks import LockBase
from distsync._objects.shared_lock import SharedReader
from distsync._objects.validation import validate_timeout
from distsync._protocols.locks.grant import TemporaryOwner
from distsync._signal_handlers import interruptible_at_entry, is_from_handler
from distsync.errors import DeadlineError, DistsyncError, UsageError

Acquirable = LockBase | SharedReader
#: A lock, its snapshot before the acquire, and the temporary owner while that is restored.
_Started = tuple[Acquirable, Any, TemporaryOwner]


class HeldLocks:
    """Locks that are held together, until `release` or the end of a ``with`` block.

    `acquire_all` returns it.

    Args:
        locks: The locks, in the order in which they were acquired.

    Note:
        Source: ZooKeeper recipes, "Locks", once for each lock.

    Example:
        >>> with acquire_all(Lock(name="a"), Lock(name="b")) as locks:  # doctest: +SKIP
        ...     print(locks.held)  # doctest: +SKIP
        True
    """

    def __init__(self, locks: tuple[Acquirable, ...]) -> None:
        self._locks = locks

    @property
    def locks(self) -> tuple[Acquirable, ...]:
        """The locks, in the order in which they were acquired."""
        return self._locks

    @property
    def held(self) -> bool:
        """Whether this process provably holds all of the locks.

        Note:
            Costs no request.
        """
        return all(lock.held for lock in self._locks)

    @interruptible_at_entry
    def release(self) -> None:
        """Release all locks, the last acquired one first, even if releasing one fails.

        If several releases fail, the error of the first one is raised.

        Raises:
            LockLostError: A lock was lost while it was held. Another process may hold it now.
            NotHeldError: A lock is not held. Subclass of RuntimeError.

        Note:
            Costs as many requests as the releases of all locks.

            If interrupted, all locks are still released.
        """
        try:
            before: list[Any] = []
            before += [[lock._snapshot()] for lock in self._locks]
            _call_all(lock.release for lock in reversed(self._locks))
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._finish_release(locals().get("before", []))
            elif all(lock._was_released_at_end(error) for lock in self._locks):
                return
            raise

    def _finish_release(self, before: list[Any]) -> None:
        """Complete an interrupted release. Idempotent."""
        for lock, was in zip(self._locks, before or [[] for _ in self._locks], strict=True):
            lock._finish_release(was)

    def __enter__(self) -> HeldLocks:
        return self

    @interruptible_at_entry
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            before: list[Any] = []
            before += [[lock._snapshot()] for lock in self._locks]
            exit_context(lambda: _call_all(lock._end_block for lock in reversed(self._locks)), error)
        except BaseException as failure:
            if not isinstance(failure, DistsyncError) or is_from_handler(failure):
                self._finish_release(locals().get("before", []))
            elif all(lock._was_released_at_end(failure) for lock in self._locks):
                return
            raise

    def __repr__(self) -> str:
        return f"<distsync.HeldLocks {', '.join(lock.path for lock in self._locks)}>"


def _call_all(releases: Iterable[Callable[[], None]]) -> None:
    """Call all functions that release the locks, and then raise the first error."""
    failed: list[DistsyncError] = []
    for release in releases:
        try:
            release()
        except DistsyncError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def acquire_all(*locks: Acquirable, timeout: float | None = None) -> HeldLocks:
    """Acquire several locks, or none of them.

    Use the result in ``with acquire_all(one, other):`` to release them all at the end. All callers
    acquire locks in the same order, that of their paths, so deadlocks are impossible. For locks of
    several ensembles, give the same host names in the ``hosts`` of all clients.

    Args:
        *locks: Locks, RLocks, SharedLocks, and readers and writers of SharedLocks.
        timeout: Maximum wait for all locks together, in seconds; 0 tries each once, None and -1
            wait forever.

    Returns:
        The held locks, a context manager with ``release()``, ``held`` and ``locks``.

    Raises:
        DeadlineError: Not all locks were free in time, and none is held. Subclass of TimeoutError.
        TypeError: An argument is not a lock.
        ValueError: ``timeout`` is negative and not -1.
        UsageError: A lock is given twice.
        LockLostError: A lock that was already held was lost while waiting for another one.

    Note:
        Costs as many requests as acquiring the locks one after the other.

        If interrupted, none of the locks is held. An interrupt between the return of this call and
        the start of the ``with`` block comes too late for that.

        Source: ZooKeeper recipes, "Locks".
    """
    seconds = validate_timeout(timeout, "call")
    ordered = _in_order(locks)
    deadline = None if seconds is None else wait_clock() + seconds
    started: list[_Started] = []
    try:
        for lock in ordered:
            started.append((lock, lock._snapshot(), TemporaryOwner()))
            # A timeout of -1 does not wait in multiprocessing.
            if not (lock.acquire() if deadline is None else lock.acquire(timeout=_left(deadline))):
                raise DeadlineError(f"{lock.path}, one of {len(ordered)} locks")
        _check(ordered)
        return HeldLocks(ordered)
    except BaseException:
        try:
            _undo(started)
        except BaseException:  # interrupted
            _undo(started)
            raise
        raise


def _check(locks: tuple[Acquirable, ...]) -> None:
    """Raise LockLostError if a lock was lost while the others were waited for."""
    for lock in locks:
        lock._check_held()


def _undo(started: list[_Started]) -> None:
    """Restore the locks' earlier states, the last one first. Idempotent."""
    for lock, before, temporary_owner in reversed(started):
        lock._restore(before, temporary_owner)


def _left(deadline: float) -> float:
    return max(0.0, deadline - wait_clock())


def _in_order(locks: tuple[Any, ...]) -> tuple[Acquirable, ...]:
    """Return the locks in an order that is the same for all processes: by servers, then path."""
    for lock in locks:
        if not isinstance(lock, (LockBase, SharedReader)):
            raise TypeError(f"acquire_all takes locks, and sides of SharedLocks, not {lock!r}")
    ordered = sorted(locks, key=lambda lock: (sorted((lock.client.hosts or "").split(",")), lock.path))
    for one, other in pairwise(ordered):
        if one.path == other.path and one.client.hosts == other.client.hosts:
            raise UsageError(f"{one.path} was given twice to acquire_all: give each lock once")
    return tuple(ordered)
