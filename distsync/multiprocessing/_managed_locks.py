"""The locks and semaphores of a manager: any process may release them, as in the stdlib, where a server holds them.

They are those of `distsync.multiprocessing.synchronize`, with the signatures of the stdlib's proxies.
"""

from __future__ import annotations

from distsync._objects import conditions, locks, semaphores
from distsync._pickle import stable_pickle_name
from distsync.multiprocessing import synchronize


def _seconds(timeout: float | None) -> float:
    """Return the timeout as a lock of threading takes it. A proxy of the stdlib's also takes None."""
    return -1 if timeout is None else timeout


@stable_pickle_name
class ManagedLock(synchronize.Lock):
    """A lock of a manager. Any process may release it."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return locks.Lock.acquire(self, blocking, _seconds(timeout))

    __repr__ = locks.Lock.__repr__


@stable_pickle_name
class ManagedRLock(locks.RLock):
    """A reentrant lock of a manager. It belongs to a thread, as the stdlib's belongs to one of the server."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return super().acquire(blocking, _seconds(timeout))


@stable_pickle_name
class ManagedCondition(conditions.Condition):
    """A condition of a manager."""

    _lock_type = ManagedRLock


@stable_pickle_name
class ManagedSemaphore(synchronize.Semaphore):
    """A semaphore of a manager. Any process may release its permits."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return semaphores.Semaphore.acquire(self, blocking, timeout)

    __repr__ = semaphores.Semaphore.__repr__


@stable_pickle_name
class ManagedBoundedSemaphore(synchronize.BoundedSemaphore, semaphores.BoundedSemaphore):
    """A bounded semaphore of a manager. Any process may release its permits."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return semaphores.Semaphore.acquire(self, blocking, timeout)

    __repr__ = semaphores.Semaphore.__repr__
