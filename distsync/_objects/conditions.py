"""Condition: a drop-in replacement for ``threading.Condition``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, ClassVar

from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._client.deadlines import deadline_in, remaining
from distsync._objects.base import SharedObject, current_owner
from distsync._objects.locks import Lock, LockDelegate, RLock
from distsync._objects.revocation import Revocable
from distsync._objects.validation import validate_timeout
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.wait_queue import QueueEntry
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError, LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


def lock_loss(lock: Any, owner: object) -> LockLostError | None:
    """Return the error of the lock's loss that ``owner`` has not been notified of yet, or None."""
    grant = lock._core.loss_of(owner) if isinstance(lock, Revocable) else None
    return None if grant is None else LockLostError(lock.path, grant.loss.reason or "session expired")


class Condition(LockDelegate, SharedObject):
    """A condition variable shared by threads, processes and hosts, like ``threading.Condition``.

    Args:
        lock: A Lock, RLock or SharedLock of distsync, which all processes of this condition share.
            None uses an RLock that belongs to the condition. With a lock of the standard library,
            only the threads of one process exclude each other.
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
        `wait` costs 6 requests, and those of the lock. `notify` costs 3 requests for any number of
        waiters.

        If the session ends during `wait`, it returns True, because a notification may have been
        missed. Check the awaited state again.

        Waiters are notified in FIFO order.

        Znodes: ``<namespace>/condition/<name>``, a container, which the server deletes when no process
        waits and none has the lock; ``.../waiters/_c_<guid>-lock-<sequence>``, ephemeral, one for each
        waiter; ``.../lock``, the condition's own lock.

        Source: ``threading.Condition``; ZooKeeper recipes, "Queues", for the queue of waiters.

    Example:
        >>> changed = Condition(name="changed")
        >>> with changed:
        ...     changed.notify_all()
    """

    __module__ = "distsync.threading"
    _kind = "condition"
    #: The type of the lock of a condition without an explicit one, and the error if it is not held.
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
        if lock is not None and not hasattr(lock, "acquire"):
            hint = f"; pass a name as name={lock!r}" if isinstance(lock, str) else ""
            raise AttributeError(f"lock={lock!r} has no acquire(){hint}")
        super().__init__(name, client, path, acl)
        self._explicit_lock = lock
        self._own_lock: Any = None

    def _arguments(self) -> tuple[Any, ...]:
        return (self._explicit_lock,)

    @property
    def _lock(self) -> Any:
        if self._explicit_lock is not None:
            return self._explicit_lock
        if self._own_lock is None:
            self._condition  # noqa: B018  the lock's znodes are below ours and are deleted with it
            self._own_lock = self._lock_type(client=self._explicit_client, path=f"{self.path}/lock")
            self._own_lock._bind(self._module)
            self._own_lock._is_in_container = True
        return self._own_lock

    @property
    def _condition(self) -> ConditionCore:
        return self._shared_state(partial(self._with_receipts, ConditionCore))

    def _underlying_lock(self) -> Any:
        return self._lock

    def _is_owned(self) -> bool:
        lock = self._lock
        if hasattr(lock, "_is_owned"):
            return bool(lock._is_owned())
        if isinstance(lock, Lock):
            return lock._core.held_grant is not None
        if lock.acquire(False):
            lock.release()
            return False
        return True

    def _check_owned(self, doing: str) -> None:
        """Raise an error if this thread does not hold the lock."""
        if not self._is_owned():
            raise lock_loss(self._lock, current_owner()) or self._not_held(f"cannot {doing} on un-acquired lock")

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
        """Release the lock, wait until notified, and re-acquire it.

        Args:
            timeout: Maximum wait for the notification, in seconds; 0 or less looks once, None waits
                forever. Re-acquiring the lock has no timeout: it takes until the lock is free and a
                server can be reached.

        Returns:
            True if notified, or if the session ended during the wait; False on timeout.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            LockLostError: The lock was lost before the wait.

        Note:
            Costs 6 requests and 1 watch, and those of the lock. Each half of a session timeout
            costs 3 more.

            Waiters are notified in FIFO order.

            If the session ends during the wait, this returns True, because a notification may have
            been missed. If interrupted, no znode is left behind, and a received notification is
            passed to another waiter. The lock is then held, unless the interrupt came while it was
            being released or re-acquired. In that case it may be free, and ``release()`` raises.

            Source: ``threading.Condition``.
        """
        deadline = deadline_in(validate_timeout(timeout))
        self._check_owned("wait")
        core = self._condition
        entries: list[QueueEntry] = []
        try:
            try:
                seconds = remaining(deadline)
                self._run(core.enlist(describe(), entries), seconds)
            except DeadlineError as error:  # no server answers
                raise_if_from_handler(error)
                return self._late()
            saved = self._release_save()
            notified = False
            try:
                seconds = remaining(deadline)
                notified = bool(self._run(core.wait(entries[0]), seconds))
            finally:
                self._acquire_restore(saved)
            if not notified:
                return self._late()
            self._run(core.confirm(entries[0]))
            return True
        except BaseException:
            for entry in entries:
                self.client.background(core.abandon_wait(entry))
            raise

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until ``predicate()`` is true, evaluating it at first and after each notification.

        Args:
            predicate: Called without arguments while the lock is held.
            timeout: Maximum wait in seconds; 0 or less evaluates the predicate once, None waits
                forever.

        Returns:
            What ``predicate`` returned last.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            LockLostError: The lock was lost before the wait.
            OverflowError: ``predicate()`` is false, and ``timeout`` is greater than ``TIMEOUT_MAX``.
            ValueError: ``predicate()`` is false, and ``timeout`` is NaN.

        Note:
            Costs as many requests as `wait`, for each notification.

            Fairness, and behaviour when the session ends or on an interrupt, are those of `wait`.

            Source: ``threading.Condition``.
        """
        deadline = None if timeout is None else wait_clock() + timeout
        result = predicate()
        while not result:
            seconds = None if deadline is None else deadline - wait_clock()
            if seconds is not None and not seconds > 0:
                if isnan(seconds):  # the standard library would wait for no time, again and again
                    raise ValueError("timeout must be a number of seconds, not NaN")
                break
            self.wait(seconds)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """Wake the first ``n`` waiters, or all if fewer wait.

        Args:
            n: Maximum number of waiters to wake; 0 or less wakes none.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            DeadlineError: No server answered within the client's default timeout, and the waiters may
                or may not be notified. Subclass of TimeoutError.

        Note:
            Costs 3 requests, and 1 event for each waiter that is woken.

            Waiters are notified in FIFO order.
        """
        self._check_owned("notify")
        self._ask(self._condition.notify(n))

    def notify_all(self) -> None:
        """Wake all waiters.

        Raises:
            NotHeldError: The lock is not held. Subclass of RuntimeError.
            DeadlineError: No server answered within the client's default timeout, and the waiters may
                or may not be notified. Subclass of TimeoutError.

        Note:
            Costs 3 requests for each 1,000 waiters.
        """
        self._check_owned("notify")
        self._ask(self._condition.notify(None))

    notifyAll = notify_all

    def __repr__(self) -> str:
        return f"<distsync.threading.Condition({self._lock!r}) name={self.name!r} at {id(self):#x}>"
