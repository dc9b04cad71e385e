"""Lock, RLock, Semaphore, BoundedSemaphore, Condition, Event and Barrier, as ``multiprocessing.synchronize`` has them.

Rules for this file: the objects of ``distsync.threading`` with multiprocessing's spellings; no znode.
"""

from __future__ import annotations

from distsync import barriers, conditions, events, semaphores
from distsync import locks as _locks


class Lock(_locks.Lock):
    """A lock that one process holds at a time."""


class RLock(_locks.RLock):
    """A lock that the thread which holds it may acquire again."""


class Semaphore(semaphores.Semaphore):
    """A number of permits."""


class BoundedSemaphore(semaphores.BoundedSemaphore):
    """A semaphore that is never released more often than acquired."""


class Condition(conditions.Condition):
    """Processes wait under a lock until one says that something has changed."""


class Event(events.Event):
    """A flag that one sets and many wait for."""


class Barrier(barriers.Barrier):
    """A place where so many wait for each other."""
