"""acquire_all: several locks, all or none.

Rules for this file: no znode, no protocol of its own; it knows locks by their faces.
"""

from __future__ import annotations

from itertools import pairwise
from types import TracebackType
from typing import Any

from distsync.errors import DeadlineError, UsageError
from distsync.locks import LockBase
from distsync.named import checked_timeout, leave_block
from distsync.session.clock import wait_clock
from distsync.shared_locks import SharedReader

Acquirable = LockBase | SharedReader


class Acquired:
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
        _release(list(self._locks))

    def __enter__(self) -> Acquired:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self.release, error)

    def __repr__(self) -> str:
        return f"<distsync.Acquired {', '.join(lock.path for lock in self._locks)}>"


def _release(locks: list[Acquirable]) -> None:
    """The last one first. What is raised on the way, an interrupt too, does not keep the others."""
    try:
        if locks:
            locks[-1].release()
    finally:
        if locks:
            _release(locks[:-1])


def acquire_all(*locks: Acquirable, timeout: float | None = None) -> Acquired:
    """All of these locks are held; ``with acquire_all(one, other):`` releases them at its end.

    Whoever uses it acquires in the same order, that of their paths, so that nobody waits in a circle.
    Units: seconds for all together; None: without end.
    Returns: an object with ``release()``, ``held``, ``locks``, that is a context manager.
    Raises: DeadlineError (a TimeoutError) if not all were free in time; TypeError for what is no lock, ValueError for
        time-outs that the stdlib refuses, UsageError for a lock that is given twice. None is held then.
    On loss: of the session while waiting: LockLostError if one that was held already was lost.
    On cancel: none is held.
    Cost: as acquire of each, one after the other.
    Source: recipes.txt, Locks.
    """
    seconds = checked_timeout(timeout)
    ordered = _in_order(locks)
    deadline = None if seconds is None else wait_clock() + seconds
    before: list[Any] = []
    try:
        for lock in ordered:
            before.append(lock._standing())
            if not lock.acquire(timeout=_left(deadline)):
                raise DeadlineError(f"{lock.path}, one of {len(ordered)} locks")
        _check(ordered)
        return Acquired(ordered)
    except BaseException:
        _undo(list(zip(ordered, before, strict=False)))
        raise


def _check(locks: tuple[Acquirable, ...]) -> None:
    """None of them was lost while the others were waited for."""
    for lock in locks:
        lock._check_held()


def _undo(begun: list[tuple[Acquirable, Any]]) -> None:
    """As they were before, the last one first."""
    try:
        if begun:
            lock, before = begun[-1]
            lock._return_to(before)
    finally:
        if begun:
            _undo(begun[:-1])


def _left(deadline: float | None) -> float:
    return -1 if deadline is None else max(0.0, deadline - wait_clock())


def _in_order(locks: tuple[Any, ...]) -> tuple[Acquirable, ...]:
    """By their paths, servers first: the same for everybody."""
    for lock in locks:
        if not isinstance(lock, (LockBase, SharedReader)):
            raise TypeError(f"acquire_all takes locks, and readers and writers of SharedLocks, not {lock!r}")
    ordered = sorted(locks, key=lambda lock: (lock.client.hosts or "", lock.path))
    for one, other in pairwise(ordered):
        if one.path == other.path and one.client.hosts == other.client.hosts:
            raise UsageError(f"{one.path} was given twice to acquire_all: give each lock once")
    return tuple(ordered)
