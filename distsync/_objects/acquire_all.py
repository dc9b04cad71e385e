"""acquire_all: several locks, all or none.

Rules for this file: no znode, no protocol of its own; it knows locks by their faces, for each may be another client's,
which drives its own protocols only. The simulator plays the same loop with their cores (scenario ``acquire-all``).
"""

from __future__ import annotations

from itertools import pairwise
from types import TracebackType
from typing import Any

from distsync._client.clocks import wait_clock
from distsync._objects.base import exit_context
from distsync._objects.locks import LockBase
from distsync._objects.shared_lock import SharedReader
from distsync._objects.validation import validate_timeout
from distsync.errors import DeadlineError, DistsyncError, UsageError

Acquirable = LockBase | SharedReader
#: A lock, how this thread held it before, and who owns it while it returns to that.
_Started = tuple[Acquirable, Any, object]


class HeldLocks:
    """Locks that are held together, until ``release`` or the end of a ``with`` block.

    Source: recipes.txt, Locks, once for each.
    """

    def __init__(self, locks: tuple[Acquirable, ...]) -> None:
        self._locks = locks

    @property
    def locks(self) -> tuple[Acquirable, ...]:
        """The locks, in the order in which they were acquired."""
        return self._locks

    @property
    def held(self) -> bool:
        """Whether this process provably holds all of them. Cost: no request."""
        return all(lock.held for lock in self._locks)

    def release(self) -> None:
        """All are released, the last one first, whatever one of them raises.

        Raises: what the first that failed raised: LockLostError, NotHeldError.
        On cancel: all are released all the same.
        Cost: as release of each.
        """
        before: list[Any] = []
        try:
            before += [[lock._snapshot()] for lock in self._locks]
            _release(self._locks)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def _finish_release(self, before: list[Any]) -> None:
        """A release was interrupted: it has happened. What was held is let go at last. May be done twice."""
        for lock, was in zip(self._locks, before or [[] for _ in self._locks], strict=True):
            lock._finish_release(was)

    def __enter__(self) -> HeldLocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before: list[Any] = []
        try:
            before += [[lock._snapshot()] for lock in self._locks]
            exit_context(self.release, error)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def __repr__(self) -> str:
        return f"<distsync.HeldLocks {', '.join(lock.path for lock in self._locks)}>"


def _release(locks: tuple[Acquirable, ...]) -> None:
    """The last one first. What one raises does not keep the others."""
    failed: list[DistsyncError] = []
    for lock in reversed(locks):
        try:
            lock.release()
        except DistsyncError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def acquire_all(*locks: Acquirable, timeout: float | None = None) -> HeldLocks:
    """All of these locks are held; ``with acquire_all(one, other):`` releases them at its end.

    Whoever uses it acquires in the same order, that of their paths, so that nobody waits in a circle; with locks of
    several ensembles, if each ensemble's servers have the same names for all who use it.
    Units: seconds for all together; None: without end.
    Returns: an object with ``release()``, ``held``, ``locks``, that is a context manager.
    Raises: DeadlineError (a TimeoutError) if not all were free in time; TypeError for what is no lock, ValueError for
        time-outs that the stdlib refuses, UsageError for a lock that is given twice. None is held then.
    On loss: of the session while waiting: LockLostError if one that was held already was lost.
    On cancel: none is held; what comes between the call and the ``with`` comes too late for that.
    Cost: as acquire of each, one after the other.
    Source: recipes.txt, Locks.
    """
    seconds = validate_timeout(timeout, "call")
    ordered = _in_order(locks)
    deadline = None if seconds is None else wait_clock() + seconds
    begun: list[_Started] = []
    try:
        for lock in ordered:
            begun.append((lock, lock._snapshot(), object()))
            if not lock.acquire(timeout=_left(deadline)):
                raise DeadlineError(f"{lock.path}, one of {len(ordered)} locks")
        _check(ordered)
        return HeldLocks(ordered)
    except BaseException:
        try:
            _undo(begun)
        except BaseException:  # interrupted
            _undo(begun)
            raise
        raise


def _check(locks: tuple[Acquirable, ...]) -> None:
    """None of them was lost while the others were waited for."""
    for lock in locks:
        lock._check_held()


def _undo(begun: list[_Started]) -> None:
    """As they were before, the last one first. May be done twice."""
    for lock, before, stranger in reversed(begun):
        lock._restore(before, stranger)


def _left(deadline: float | None) -> float:
    return -1 if deadline is None else max(0.0, deadline - wait_clock())


def _in_order(locks: tuple[Any, ...]) -> tuple[Acquirable, ...]:
    """By their paths, servers first: the same for everybody."""
    for lock in locks:
        if not isinstance(lock, (LockBase, SharedReader)):
            raise TypeError(f"acquire_all takes locks, and readers and writers of SharedLocks, not {lock!r}")
    ordered = sorted(locks, key=lambda lock: (sorted((lock.client.hosts or "").split(",")), lock.path))
    for one, other in pairwise(ordered):
        if one.path == other.path and one.client.hosts == other.client.hosts:
            raise UsageError(f"{one.path} was given twice to acquire_all: give each lock once")
    return tuple(ordered)
