"""Condition.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._client.deadlines import deadline_in, remaining
from distsync._objects.base import SharedObject
from distsync._objects.locks import Lock, LockDelegate, RLock
from distsync._objects.validation import validate_timeout
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.wait_queue import QueueEntry
from distsync.errors import DeadlineError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


class Condition(LockDelegate, SharedObject):
    """Threads of any processes wait under a lock until one of them says that something has changed.

    ``lock`` is a Lock or RLock of distsync; by default an RLock that belongs to the condition. With a lock of the
    stdlib only the threads of one process exclude each other.
    On loss: of the session while waiting: ``wait`` returns True, since a notify may have been missed; look again.
    Cost: wait 6 requests, and what the lock costs; notify 3 requests for any number of waiters.
    Fair: the one that waits longest is notified first.
    Source: ``threading.Condition``; recipes.txt, Queues, for the line of waiters.

    Znodes: ``<namespace>/condition/<name>/waiters/_c_<guid>-lock-<sequence>``, ephemeral, who waits; ``.../lock``.

    >>> changed = Condition(name="changed")
    >>> with changed:
    ...     changed.notify_all()
    """

    __module__ = "distsync.threading"
    _kind = "condition"
    #: The lock of a condition that is given none, and what is raised where it is not held.
    _lock_type: ClassVar[Callable[..., Any]] = RLock
    _not_held: ClassVar[type[NotHeldError]] = NotHeldError

    def __init__(
        self,
        lock: Any = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)
        self._explicit_lock = lock

    def _arguments(self) -> tuple[Any, ...]:
        return (self._explicit_lock,)

    @property
    def _lock(self) -> Any:
        if self._explicit_lock is None:
            self._core  # noqa: B018  what is below our znode goes with it
            self._explicit_lock = self._lock_type(client=self._explicit_client, path=f"{self.path}/lock")
        return self._explicit_lock

    @property
    def _core(self) -> ConditionCore:
        return self._shared_state(partial(ConditionCore, receipts=self._receipts))

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """The lock is held; arguments and result are those of the lock's own ``acquire``."""
        acquired: bool = self._lock.acquire(*args, **kwargs)
        return acquired

    def release(self) -> None:
        """The lock goes to the next one, as by its own ``release``."""
        self._lock.release()

    def _its_lock(self) -> Any:
        return self._lock

    def _is_owned(self) -> bool:
        lock = self._lock
        if hasattr(lock, "_is_owned"):
            return bool(lock._is_owned())
        if isinstance(lock, Lock):
            return lock._core.grant is not None
        if lock.acquire(False):
            lock.release()
            return False
        return True

    def _release_save(self) -> Any:
        lock = self._lock
        return lock._release_save() if hasattr(lock, "_release_save") else lock.release()

    def _acquire_restore(self, saved: Any) -> None:
        lock = self._lock
        if hasattr(lock, "_acquire_restore"):
            lock._acquire_restore(saved)
        else:
            lock.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        """Somebody has notified us, and the lock, released meanwhile, is held again.

        Units: seconds; None: without end. It is the wait for the notify that has this time; the lock is had again
            when it is free, and a server can be reached.
        Returns: True; False if not in time.
        Raises: RuntimeError if the lock is not held; LockLostError if it had been lost.
        On loss: of the session while waiting: True, since a notify may have been missed.
        On cancel: no znode is left; a notify that had come goes to another waiter; the lock is held again, unless the
            interrupt came while it was being released or taken again: it may be free then, and ``release`` raises.
        Cost: 6 requests, 1 watch, and those of the lock; 3 more at half of each session time-out.
        Fair: the one that waits longest is notified first.
        Source: ``threading.Condition``.
        """
        deadline = deadline_in(validate_timeout(timeout))
        if not self._is_owned():
            raise self._not_held("cannot wait on un-acquired lock")
        core = self._core
        places: list[QueueEntry] = []
        try:
            try:
                self._run(core.enlist(describe(), places), remaining(deadline))
            except DeadlineError:  # nobody answers
                return False
            saved = self._release_save()
            notified = False
            try:
                notified = bool(self._run(core.wait(places[0]), remaining(deadline)))
            finally:
                self._acquire_restore(saved)
            if notified:
                self._run(core.confirm(places[0]))
            return notified
        except BaseException:
            for place in places:
                self.client.background(core.abandon_wait(place))
            raise

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """``predicate()`` is true, or the time is over; the lock is held.

        Units: seconds; None: without end.
        Returns: what ``predicate`` returned last.
        Raises, On loss, On cancel, Cost, Fair, Source: as wait.
        """
        deadline = None if timeout is None else wait_clock() + timeout
        validate_timeout(timeout)
        result = predicate()
        while not result:
            seconds = None if deadline is None else deadline - wait_clock()
            if seconds is not None and seconds <= 0:
                break
            self.wait(seconds)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """The first ``n`` who wait are woken, fewer if fewer wait.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests; 1 event to each who is woken.
        Fair: the one that waits longest is notified first.
        """
        if not self._is_owned():
            raise self._not_held("cannot notify on un-acquired lock")
        self._run(self._core.notify(n))

    def notify_all(self) -> None:
        """All who wait are woken.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests for each 1,000 waiters.
        """
        if not self._is_owned():
            raise self._not_held("cannot notify on un-acquired lock")
        self._run(self._core.notify(None))

    notifyAll = notify_all

    def __repr__(self) -> str:
        return f"<distsync.threading.Condition({self._lock!r}) name={self.name!r} at {id(self):#x}>"
