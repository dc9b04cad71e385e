"""Lock, RLock, Semaphore, BoundedSemaphore, Condition, Event and Barrier, as ``multiprocessing.synchronize`` has them.

Rules for this file: the objects of ``distsync.threading`` with multiprocessing's spellings; no znode.

``acquire(block, timeout)`` takes any time-out (negative: 0; without ``block`` it does not matter). A Lock or a permit
may be given back by another process than the one that took it. A Lock of this module and one of ``distsync.threading``
with the same name are one lock, and so on.
"""

from __future__ import annotations

from collections.abc import Coroutine
from multiprocessing import process
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe, thread_name
from distsync._objects import barriers, conditions, events, semaphores
from distsync._objects import locks as _locks
from distsync._objects.base import SharedObject, current_owner
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_timeout
from distsync._protocols.locks import cross_process as cross_process_locks
from distsync._protocols.locks.lock import Grant
from distsync._protocols.semaphores import cross_process as cross_process_semaphores
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync.errors import NotHeldError, NotOwnerError, OverReleaseError, ReleasedTooOftenError
from distsync.multiprocessing._stdlib_fallback import stdlib_getattr

if TYPE_CHECKING:
    from distsync._objects.semaphores import AnyCore

__all__ = ["Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"]


def _seconds(block: bool, timeout: float | None) -> float:
    """As ``threading`` spells it: -1 for no end, and where nothing is waited for."""
    seconds = validate_timeout(timeout) if block else None
    return -1 if seconds is None else seconds


def _caller() -> str:
    """How multiprocessing calls the running thread."""
    name, thread = process.current_process().name, thread_name()
    return name if thread == "MainThread" else f"{name}|{thread}"


def _owner(lock: _locks.LockBase) -> str:
    """Who holds it, as multiprocessing shows it."""
    core = lock._core if lock._is_used else None
    if core is not None and core.grant is not None and not core.grant.loss.fired:
        return _caller() if core.owner is current_owner() else "SomeOtherThread"
    return {True: "SomeOtherProcess", False: "None"}.get(_asked(lock, lambda: lock._core.locked()), "unknown")


def _asked(obj: SharedObject, protocol: Any) -> Any:
    """What the server says, if there is a connection, and else "unknown"."""
    answer = repr_state(obj, protocol)
    return "unknown" if answer == "??" else answer


class Lock(_locks.Lock):
    """A lock that one thread of one process on one host holds at a time, and that any may release.

    Whoever held it when another process released it is not the holder any more, and no loss is told: he may acquire
    it again. If he releases it all the same, that is an error, and whoever holds it by then keeps it.
    On loss, Cost, Fair, Znodes: as ``threading.Lock``; a release from outside 4 requests, 3 round trips; it is never
        kept, and threads of one process do not hand it over without a request.
    Source: recipes.txt, Locks; ``multiprocessing.Lock``.

    >>> lock = Lock(name="orders")
    >>> with lock:
    ...     print(lock)
    <Lock(owner=MainProcess)>
    """

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """The lock is held.

        Units: seconds; None: without end; below 0: as 0.
        Returns: True; False if it was not free and ``block`` is False, or not in time.
        Raises, On loss, On cancel, Cost, Fair: as ``threading.Lock.acquire``; 1 request more where a thread of this
            process holds it.
        Source: recipes.txt, Locks, steps 1 to 5; ``multiprocessing.Lock``.
        """
        return super().acquire(bool(block), _seconds(block, timeout))

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        acquired: bool = self._run(
            cross_process_locks.acquire(self._core, current_owner(), describe(), blocking), timeout
        )
        if acquired:
            self._register_loss_callback()
        return acquired

    def release(self) -> None:
        """The lock goes to the next one, whoever holds it. Any thread of any process may call this.

        Raises: ReleasedTooOftenError (a ValueError) if nobody holds it, or another process released what this one
            held; LockLostError if it was lost while held, and then somebody else may hold it.
        On loss: of the connection: it waits as long as a session lasts at most; then its own znode goes in the
            background, and of another's nothing is known (DeadlineError).
        Cost: 1 request if this process holds it, else 4, 3 round trips.
        Source: recipes.txt, Locks, the unlock protocol; ``multiprocessing.Lock``.
        """
        super().release()

    def _release(self, linger: bool = True) -> None:
        """Never kept: whoever releases it from outside has to find it as the server has it."""
        self._run(cross_process_locks.release(self._core, current_owner()), self.client.settings.session_timeout)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(owner={_owner(self)})>"


class RLock(_locks.RLock):
    """A lock that the thread which holds it may acquire again, and nobody else release.

    On loss, Cost, Fair, Znodes: as ``threading.RLock``.
    Source: recipes.txt, Locks; ``multiprocessing.RLock``.

    >>> lock = RLock(name="orders again")
    >>> with lock, lock:
    ...     print(lock)
    <RLock(MainProcess, 2)>
    """

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """The lock is held, once more if this thread held it already.

        Units: seconds; None: without end; below 0: as 0.
        Returns: True; False if it was not free and ``block`` is False, or not in time.
        Raises, On loss, On cancel, Cost, Fair: as ``threading.RLock.acquire``.
        Source: recipes.txt, Locks, steps 1 to 5; ``multiprocessing.RLock``.
        """
        return super().acquire(bool(block), _seconds(block, timeout))

    def release(self) -> None:
        """Held once less; after the last release the lock goes to the next one.

        Raises: NotOwnerError (an AssertionError) if this thread does not hold it; LockLostError if it was lost.
        Cost: none, but for the last: 1 request.
        Source: recipes.txt, Locks, the unlock protocol; ``multiprocessing.RLock``.
        """
        try:
            super().release()
        except NotHeldError:
            raise NotOwnerError("attempt to release recursive lock not owned by thread") from None

    def __repr__(self) -> str:
        owner = _owner(self)
        counts = {"None": 0, "unknown": "unknown", "SomeOtherThread": "nonzero", "SomeOtherProcess": "nonzero"}
        return f"<{type(self).__name__}({owner}, {counts.get(owner, self._repr_state()[1])})>"


class Semaphore(semaphores.Semaphore):
    """A number of permits. Any process may release what another acquired; what is not released comes back at its end.

    A permit that another process gave back is not held any more, and no loss is told. ``Semaphore(0)`` is a signal: a
    permit taken is used up for good, whoever dies.
    On loss, Cost, Fair, Znodes: as ``threading.Semaphore``.
    Source: recipes.txt, Locks, with a limit; ``multiprocessing.Semaphore``.

    >>> slots = Semaphore(3, name="slots of processes")
    >>> with slots:
    ...     print(slots)
    <Semaphore(value=2)>
    """

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """A permit is taken.

        Units: seconds; None: without end; below 0: as 0.
        Returns: True; False if none was free and ``block`` is False, or not in time.
        Raises, On loss, On cancel, Fair: as ``threading.Semaphore.acquire``.
        Cost: 3 requests, 1 round trip, if one is free (after the first acquire of this process).
        Source: recipes.txt, Locks; ``multiprocessing.Semaphore``.
        """
        return super().acquire(bool(block), timeout if block else None)

    def _acquiring(self, core: AnyCore, blocking: bool) -> Coroutine[Any, Any, Any]:
        if isinstance(core, SemaphoreCore):
            return cross_process_semaphores.acquire_permit(core, describe(), blocking, current_owner(), self._bound)
        return super()._acquiring(core, blocking)

    def _dropping(self, core: AnyCore, grant: Grant) -> Coroutine[Any, Any, None]:
        if isinstance(core, SemaphoreCore):
            return cross_process_semaphores.drop_permit(core, grant, self._bound)
        return super()._dropping(core, grant)

    def release(self, n: int = 1) -> None:
        """``n`` permits are free again: first those of this process, then those of others, then new ones.

        Raises: ValueError for ``n`` below 1; LockLostError if a permit of this process had been lost while held, and
            then the others of the ``n`` are free;
            ReleasedTooOftenError (a ValueError) for a BoundedSemaphore of which none is taken.
        Cost: for each, 1 request for a permit of this process; 4 for one of another, 6 for a new one.
        Source: ``multiprocessing.Semaphore``.
        """
        try:
            super().release(n)
        except ReleasedTooOftenError:
            raise
        except OverReleaseError:
            raise ReleasedTooOftenError(self.path) from None

    def _releasing(self, core: AnyCore, n: int, started: list[bool]) -> Coroutine[Any, Any, None]:
        if isinstance(core, SemaphoreCore):
            return cross_process_semaphores.release_permits(core, n, self._bound, started, current_owner())
        return super()._releasing(core, n, started)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(value={_asked(self, lambda: self._core.value())})>"


class BoundedSemaphore(Semaphore):
    """A semaphore that is never released more often than acquired, by all processes together.

    On loss, Cost, Fair, Znodes: as Semaphore.
    Source: recipes.txt, Locks, with a limit; ``multiprocessing.BoundedSemaphore``.

    >>> slots = BoundedSemaphore(2, name="bounded slots of processes")
    >>> with slots:
    ...     print(slots)
    <BoundedSemaphore(value=1, maxvalue=2)>
    """

    @property
    def _bound(self) -> int | None:
        return self._initial

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-2]}, maxvalue={self._initial})>"


class Condition(conditions.Condition):
    """Threads of any processes wait under a lock until one of them says that something has changed.

    ``lock`` is a Lock or RLock of this module; by default an RLock that belongs to the condition.
    Raises: NotOwnerError (an AssertionError) from ``wait`` and ``notify`` where the lock is not held.
    On loss, Cost, Fair, Znodes: as ``threading.Condition``.
    Source: ``multiprocessing.Condition``; recipes.txt, Queues, for the line of waiters.

    >>> changed = Condition(name="changed for processes")
    >>> with changed:
    ...     changed.notify_all()
    """

    _lock_type = RLock
    _not_held = NotOwnerError

    def __repr__(self) -> str:
        waiting = _asked(self, lambda: self._core.waiting())
        return f"<{type(self).__name__}({self._lock}, {waiting})>"


class Event(events.Event):
    """A flag that one sets and many wait for.

    Cost, Znodes: as ``threading.Event``.
    Source: recipes.txt, Barriers; ``multiprocessing.Event``.

    >>> ready = Event(name="ready for processes")
    >>> ready.set()
    >>> ready.wait(timeout=10)
    True
    """

    def __repr__(self) -> str:
        state = {True: "set", False: "unset"}.get(repr_state(self, lambda: self._core.is_set()), "unknown")
        return f"<{type(self).__qualname__} at {id(self):#x} {state}>"


class Barrier(barriers.Barrier):
    """A place where ``parties`` threads, of any processes, wait for each other; again and again.

    ``action`` goes to other processes by pickle; the last one to arrive calls its own.
    On loss, On cancel, Cost, Znodes: as ``threading.Barrier``.
    Source: recipes.txt, Double Barriers; ``multiprocessing.Barrier``.

    >>> start = Barrier(1, name="start of processes")
    >>> start.wait()
    0
    """


__getattr__ = stdlib_getattr("multiprocessing.synchronize", __name__)
