"""The objects of ``multiprocessing.synchronize``, shared by processes and hosts.

They are the objects of ``distsync.threading`` with multiprocessing's signatures and messages.
Objects of both modules that have the same name and kind are the same object. Two things differ:
``acquire()`` accepts any timeout, and any process may release a Lock or a permit, whichever process
acquired it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from importlib import import_module
from multiprocessing import process
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe, thread_name
from distsync._import_gate import importing
from distsync._objects import barriers, conditions, events, semaphores
from distsync._objects import locks as _locks
from distsync._objects.base import SharedObject, current_owner
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_timeout
from distsync._protocols.ended_holders import EndedHolders
from distsync._protocols.locks import multiprocessing_lock
from distsync._protocols.locks.lock import Grant
from distsync._protocols.semaphores import multiprocessing_semaphore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._signal_handlers import complete, interruptible_at_entry
from distsync.errors import NotHeldError, NotOwnerError, OverReleaseError, ReleasedTooOftenError
from distsync.multiprocessing._stdlib_names import stdlib_getattr

if TYPE_CHECKING:
    from distsync._objects.semaphores import AnyCore
    from distsync._protocols.locks.lock import LockCore

__all__ = ["Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"]


def _held_grant(core: Any) -> tuple[Grant, ...]:
    grant = core.held_grant
    return () if grant is None else (grant,)


def seconds_of(block: bool, timeout: float | None) -> float:
    """Return the timeout as ``threading.Lock.acquire`` takes it; -1 waits forever or does not wait."""
    seconds = validate_timeout(timeout) if block else None
    return -1 if seconds is None else seconds


def _caller() -> str:
    """Return the name of the running thread, as multiprocessing writes it."""
    name, thread = process.current_process().name, thread_name()
    return name if thread == "MainThread" else f"{name}|{thread}"


def owner_of(lock: _locks.LockBase) -> str:
    """Return the owner of a lock, as multiprocessing writes it."""
    core = lock._core if lock._may_have_state else None
    if core is not None and core.grant is not None and not core.grant.loss.fired:
        return _caller() if core.owner is current_owner() else "SomeOtherThread"
    return {True: "SomeOtherProcess", False: "None"}.get(asked(lock, lambda: lock._core.locked(), False), "unknown")


def record_at_end(obj: SharedObject, core: Any, held: Callable[[Any], Iterable[Grant]], limit: int = 1) -> None:
    """Let another process release what this process holds at its end, without an error, if ``obj`` has no name.

    An object with a name is not the stdlib's, and what it would leave could stay forever.

    Args:
        obj: A lock or semaphore.
        core: Its state.
        held: Called with the state to get its grants.
        limit: Maximum number of holds that are recorded.
    """
    if obj._module is None and obj._home is None:
        return
    client = obj.client
    place = f"{client.namespace.rstrip('/')}/ended"

    def make() -> EndedHolders:
        made = EndedHolders()
        client.at_close(place, made.record)
        return made

    client.local(place, make).watch(core, held, limit)


def asked(obj: SharedObject, protocol: Any, initial: Any) -> Any:
    """Return what the server replies, or "unknown" without a connection."""
    answer = repr_state(obj, protocol, initial)
    return "unknown" if answer == "??" else answer


class Lock(_locks.Lock):
    """A lock shared by processes and hosts, like ``multiprocessing.Lock``.

    At most one thread holds the lock at a time, among all processes that use its name. Any thread
    of any process may release it.

    If another process releases the lock, the former holder simply stops holding it, without the
    notification of a loss. It may acquire the lock again. If it releases the lock instead, it gets
    an error, and the new holder keeps the lock.

    A lock without a name that a process holds at its end is free at once. Any process may still
    release it once afterwards, as in the standard library, unless the holder was killed.

    The lock is lost if the session can no longer be proven alive. Then ``held`` becomes False,
    ``on_lost`` is called, and ``release()`` or the end of the ``with`` block raises LockLostError.
    Another process may hold the lock by then, so stop the work that it protects.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks for
            the lock with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, or ``"kazoo"`` to share the lock with
            kazoo's own Lock.
        linger: Ignored, because this lock is never cached.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        Acquiring and releasing a free lock costs 3 requests in 2 round trips. A release by another
        process costs 4 requests in 3 round trips. The lock is never cached after its release, and
        threads of one process do not hand it over without a request.

        Processes acquire the lock in FIFO order.

        Znodes: those of ``distsync.threading.Lock``.

        Source: ZooKeeper recipes, "Locks"; ``multiprocessing.Lock``.

    Example:
        >>> lock = Lock(name="orders")
        >>> with lock:
        ...     print(lock)
        <Lock(owner=MainProcess)>
    """

    _needs_name = False  # passed to children
    _any_process_releases = True

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock, waiting in FIFO order if another thread or process holds it.

        Args:
            block: Whether to wait if the lock is held.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever. Ignored if
                ``block`` is False.

        Returns:
            True if the lock was acquired. False on timeout, or if ``block`` is False and the lock
            is held.

        Raises:
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs 2 requests in 1 round trip if the lock is free, and 1 more if a thread of this
            process holds it. With ``block=False``, it costs 1 more if the queue is empty and 2 more
            if it is not. If the only contender may just be caching the lock, asking it costs up to
            6 more, once.

            If the session ends during the wait, the thread enqueues again. If interrupted, no znode
            is left behind.

            Source: ZooKeeper recipes, "Locks", steps 1 to 5; ``multiprocessing.Lock``.
        """
        return super().acquire(bool(block), seconds_of(block, timeout))

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        acquired: bool = (
            self._run(multiprocessing_lock.acquire(self._core, current_owner(), describe(), blocking), timeout)
            or self._late()
        )
        if acquired:
            self._subscribe()
            record_at_end(self, self._core, _held_grant)
        return acquired

    @interruptible_at_entry
    def release(self) -> None:
        """Release the lock, whichever process holds it. Any thread of any process may call this.

        Raises:
            ReleasedTooOftenError: No process holds the lock or ended while holding it, or another
                process released it while this process held it. Subclass of ValueError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.
            DeadlineError: Another process holds the lock, and no server replied within the session
                timeout. Whether it was released is unknown.

        Note:
            Costs 1 request if this process holds the lock, otherwise 4 requests in 3 round trips.

            If the connection is lost, this waits for at most the session timeout. The znode of this
            process is then deleted in the background.

            Source: ZooKeeper recipes, "Locks", unlock protocol; ``multiprocessing.Lock``.
        """
        try:
            begun = True
            _locks.Lock.release(self)
        except BaseException:
            if "begun" not in locals():
                complete(_locks.Lock.release, self)
            raise

    def _release(self, core: LockCore, linger: bool = True) -> None:
        """Release the lock without caching it, because other processes rely on the server's state."""
        seconds = self.client.settings.session_timeout  # first, so that an interrupt leaves no coroutine unawaited
        self._run(multiprocessing_lock.release(core, current_owner()), seconds)

    def _end_block(self) -> None:
        seconds = self.client.settings.session_timeout
        self._run(multiprocessing_lock.release(self._core, current_owner(), only_ours=True), seconds)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(owner={owner_of(self)})>"


class RLock(_locks.RLock):
    """A reentrant lock shared by processes and hosts, like ``multiprocessing.RLock``.

    The thread that holds the lock may acquire it again, and must release it once for each acquire.
    No other thread can release it.

    If the lock is lost, each outstanding release raises an error: the first LockLostError, the
    others NotOwnerError.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock assigned
            at module or class level is named after its variable; any other lock gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks for
            the lock with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, or ``"kazoo"`` to share the lock with
            kazoo's own Lock.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching, None
            uses the client's setting.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.threading.RLock``.

        Source: ZooKeeper recipes, "Locks"; ``multiprocessing.RLock``.

    Example:
        >>> lock = RLock(name="orders again")
        >>> with lock, lock:
        ...     print(lock)
        <RLock(MainProcess, 2)>
    """

    _needs_name = False  # passed to children

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock, or increment the recursion level if this thread holds it.

        Args:
            block: Whether to wait if another thread holds the lock.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever. Ignored if
                ``block`` is False.

        Returns:
            True if the lock was acquired. False on timeout, or if ``block`` is False and another
            thread holds the lock.

        Raises:
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs no request if this thread holds the lock, otherwise as many as
            ``distsync.threading.RLock.acquire``.

            If the session ends during the wait, the thread enqueues again. If interrupted, no znode
            is left behind.

            Source: ZooKeeper recipes, "Locks", steps 1 to 5; ``multiprocessing.RLock``.
        """
        return super().acquire(bool(block), seconds_of(block, timeout))

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when it reaches zero.

        Raises:
            NotOwnerError: This thread does not hold the lock. Subclass of AssertionError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.

        Note:
            Costs no request, except for the last release, which costs at most 1.

            Source: ZooKeeper recipes, "Locks", unlock protocol; ``multiprocessing.RLock``.
        """
        try:
            begun = True
            _locks.RLock.release(self)
        except NotHeldError:
            raise NotOwnerError("attempt to release recursive lock not owned by thread") from None
        except BaseException:
            if "begun" not in locals():
                complete(_locks.RLock.release, self)
            raise

    def __repr__(self) -> str:
        owner = owner_of(self)
        counts = {"None": 0, "unknown": "unknown", "SomeOtherThread": "nonzero", "SomeOtherProcess": "nonzero"}
        return f"<{type(self).__name__}({owner}, {counts.get(owner, self._repr_state()[1])})>"


class Semaphore(semaphores.Semaphore):
    """A counting semaphore shared by processes and hosts, like ``multiprocessing.Semaphore``.

    Any process may release a permit that another process acquired. Permits held by a process that
    exits are released.

    If the semaphore has no name, any process may still release the permit of a process that has
    ended. As the permit is free already, such a release adds none. The permit of a killed process
    is an exception: its release adds a permit.

    If another process releases a permit, the former holder simply stops holding it, without the
    notification of a loss. ``Semaphore(0)`` is a signal: a permit that was acquired is consumed,
    and does not come back when its process exits.

    Args:
        value: Initial number of permits, the same for all processes that use the name at the same
            time; 0 makes a signal.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if a permit is lost
            while it is held. None calls nothing.
        layout: Naming scheme of the znodes: ``"distsync"``, ``"kazoo"`` to share the permits with
            kazoo's own Semaphore, or ``"curator"`` to share them with Curator's
            InterProcessSemaphoreV2.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, ``on_lost`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl``, ``layout`` or ``on_mismatch`` is not valid, ``value`` is 0 with
            a layout other than ``"distsync"``, or ``on_mismatch`` is given with either of them.

    Note:
        Costs, losses, fairness and znodes are those of ``distsync.threading.Semaphore``.

        Source: ZooKeeper recipes, "Locks", with a limit; ``multiprocessing.Semaphore``.

    Example:
        >>> slots = Semaphore(3, name="slots of processes")
        >>> with slots:
        ...     print(slots)
        <Semaphore(value=2)>
    """

    _needs_name = False  # passed to children
    _any_process_releases = True

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire a permit, waiting in FIFO order if none is free.

        Args:
            block: Whether to wait if no permit is free.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever. Ignored if
                ``block`` is False.

        Returns:
            True if a permit was acquired. False on timeout, or if ``block`` is False and no permit
            is free.

        Raises:
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            MismatchError: Other processes use another initial value, or the layout is another one.

        Note:
            Costs 3 requests in 1 round trip if a permit is free. The first call of a process costs
            more.

            If the session ends during the wait, the thread enqueues again. If interrupted, no
            permit is taken and no znode is left behind.

            Source: ZooKeeper recipes, "Locks"; ``multiprocessing.Semaphore``.
        """
        return super().acquire(bool(block), timeout if block else None)

    def _acquire(self, attempt: Any, blocking: bool, timeout: float | None) -> bool:
        acquired, core = super()._acquire(attempt, blocking, timeout), self._core
        if acquired and isinstance(core, SemaphoreCore):
            record_at_end(self, core, attrgetter("grants"), max(1, self._initial))
        return acquired

    def _acquiring(self, core: AnyCore, blocking: bool) -> Coroutine[Any, Any, Any]:
        if isinstance(core, SemaphoreCore):
            data, owner, acquire = describe(), current_owner(), multiprocessing_semaphore.acquire_permit
            return self._using(core, lambda: acquire(core, data, blocking, owner, self._bound(core)))
        return super()._acquiring(core, blocking)

    def _dropping(self, core: AnyCore, grant: Grant) -> Coroutine[Any, Any, None]:
        if isinstance(core, SemaphoreCore):
            return multiprocessing_semaphore.drop_permit(core, grant, self._bound(core))
        return super()._dropping(core, grant)

    @interruptible_at_entry
    def release(self, n: int = 1) -> None:
        """Release permits: first those of this process, then those of other processes, then new ones.

        Args:
            n: Number of permits to release, 1 or more.

        Raises:
            ValueError: ``n`` is less than 1.
            LockLostError: A permit of this process was lost while it was held. The other permits
                were released.
            ReleasedTooOftenError: No permit of a BoundedSemaphore is held. Subclass of ValueError.

        Note:
            Costs 1 request for each permit of this process, 4 for each permit of another process,
            and 6 for each new one.

            Source: ``multiprocessing.Semaphore``.
        """
        try:
            begun = True
            semaphores.Semaphore.release(self, n)
        except ReleasedTooOftenError:
            raise
        except OverReleaseError:
            raise ReleasedTooOftenError(self.path) from None
        except BaseException:
            if "begun" not in locals():
                complete(semaphores.Semaphore.release, self, n)
            raise

    def _releasing(self, core: AnyCore, n: int, started: list[bool]) -> Coroutine[Any, Any, Any]:
        if isinstance(core, SemaphoreCore):
            owner, release = current_owner(), multiprocessing_semaphore.release_permits
            return self._changing(core, n, lambda: release(core, n, self._bound(core), started, owner))
        return super()._releasing(core, n, started)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(value={asked(self, lambda: self._core.value(), self._initial)})>"


class BoundedSemaphore(Semaphore):
    """A semaphore with a maximum number of permits, like ``multiprocessing.BoundedSemaphore``.

    All processes together cannot release it more often than they acquired it.

    Args:
        value: Initial and maximum number of free permits, the same for all processes that use the
            name at the same time.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if a permit is lost
            while it is held. None calls nothing.
        layout: Naming scheme of the znodes: ``"distsync"``, ``"kazoo"`` to share the permits with
            kazoo's own Semaphore, or ``"curator"`` to share them with Curator's
            InterProcessSemaphoreV2.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, ``on_lost`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl``, ``layout`` or ``on_mismatch`` is not valid, ``value`` is 0 with
            a layout other than ``"distsync"``, or ``on_mismatch`` is given with either of them.

    Note:
        Costs, losses, fairness and znodes are those of Semaphore.

        Source: ZooKeeper recipes, "Locks", with a limit; ``multiprocessing.BoundedSemaphore``.

    Example:
        >>> slots = BoundedSemaphore(2, name="bounded slots of processes")
        >>> with slots:
        ...     print(slots)
        <BoundedSemaphore(value=1, maxvalue=2)>
    """

    def _bound(self, core: AnyCore) -> int | None:
        return core.initial

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-2]}, maxvalue={self._initial})>"


class Condition(conditions.Condition):
    """A condition variable shared by processes and hosts, like ``multiprocessing.Condition``.

    Args:
        lock: A Lock, RLock or SharedLock of this module, which all processes of this condition
            share. None uses an RLock that belongs to the condition.
        name: Name of the condition, shared by all processes that use it. Without a name, a
            condition assigned at module or class level is named after its variable; any other
            condition gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the condition's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        AttributeError: ``lock`` is no lock.
        ConfigurationError: ``acl`` is not valid.

    Note:
        ``wait()`` and ``notify()`` raise NotOwnerError, a subclass of AssertionError, if the caller
        does not hold the lock.

        Costs, losses, fairness and znodes are those of ``distsync.threading.Condition``.

        Source: ``multiprocessing.Condition``; ZooKeeper recipes, "Queues", for the queue of
        waiters.

    Example:
        >>> changed = Condition(name="changed for processes")
        >>> with changed:
        ...     changed.notify_all()
    """

    _needs_name = False  # passed to children
    _lock_type = RLock
    _not_held = NotOwnerError

    def __repr__(self) -> str:
        waiting = asked(self, lambda: self._condition.waiting(), 0)
        return f"<{type(self).__name__}({self._lock}, {waiting})>"


class Event(events.Event):
    """A flag shared by processes and hosts, like ``multiprocessing.Event``.

    Args:
        name: Name of the event, shared by all processes that use it. Without a name, an event
            assigned at module or class level is named after its variable; any other event gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the event's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Costs and znodes are those of ``distsync.threading.Event``.

        Source: ZooKeeper recipes, "Barriers"; ``multiprocessing.Event``.

    Example:
        >>> ready = Event(name="ready for processes")
        >>> ready.set()
        >>> ready.wait(timeout=10)
        True
    """

    _needs_name = False  # passed to children

    def __repr__(self) -> str:
        state = {True: "set", False: "unset"}.get(repr_state(self, lambda: self._core.is_set(), False), "unknown")
        return f"<{type(self).__qualname__} at {id(self):#x} {state}>"


class Barrier(barriers.Barrier):
    """A cyclic barrier shared by processes and hosts, like ``multiprocessing.Barrier``.

    ``parties`` threads of any processes wait for each other, again and again.

    Args:
        parties: Number of threads to wait for, 1 or more. It must be the same in all processes that
            use the name at the same time.
        action: Called without arguments by one of the threads, before they are released: the last
            one to arrive calls its own action. None calls nothing. It must pickle if the barrier is
            sent to another process.
        timeout: Default timeout of ``wait()`` in seconds; None waits forever.
        name: Name of the barrier, shared by all processes that use it. Without a name, a barrier
            assigned at module or class level is named after its variable; any other barrier gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the barrier's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``parties`` is taken over in each case.

    Raises:
        ValueError: ``parties`` is less than 1.
        TypeError: ``parties`` is not an integer, ``action`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        Costs, losses, interrupts and znodes are those of ``distsync.threading.Barrier``.

        Source: ZooKeeper recipes, "Double Barriers"; ``multiprocessing.Barrier``.

    Example:
        >>> start = Barrier(1, name="start of processes")
        >>> start.wait()
        0
    """

    _needs_name = False  # passed to children


#: Names that the standard library does not have. They are imported at their first use, and not by ``import *``.
_ADDED = ("Election", "SharedLock", "SharedReader", "SharedWriter")
_stdlib_attribute = stdlib_getattr("multiprocessing.synchronize", __name__)


def __getattr__(name: str) -> Any:
    """Return an added name, or any other name of the standard library's module."""
    if name not in _ADDED:
        return _stdlib_attribute(name)
    with importing():
        return getattr(import_module("distsync.multiprocessing._recipes"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ADDED})
