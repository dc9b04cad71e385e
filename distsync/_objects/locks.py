"""Lock and RLock: drop-in replacements for the locks of the threading module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from distsync._client.contender_info import Contender, describe
from distsync._import_gate import importing
from distsync._objects.base import current_owner, exit_context, parse_contenders, shorten_interrupt, type_name
from distsync._objects.lock_fast_path import CachedLockFastPath
from distsync._objects.revocation import Revocable
from distsync._objects.validation import refuse_positional, validate_layout, validate_timeout
from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import QUERY_TIMEOUT_S, holders_and_waiters
from distsync._protocols.locks.grant import TemporaryOwner
from distsync._protocols.locks.lock import Grant, LockCore, LockSnapshot
from distsync._signal_handlers import (
    complete,
    interruptible_at_entry,
    is_from_handler,
    is_interrupt,
    raise_if_from_handler,
)
from distsync.errors import ConfigurationError, DistsyncError, LockLostError, MismatchError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


LockCoreT = TypeVar("LockCoreT", bound=LockCore)


def validate_linger(linger: Any) -> float:
    """Return ``linger`` in seconds, or raise ConfigurationError."""
    with importing():
        from distsync._client.settings import linger_seconds  # deferred: most locks have none of their own

    try:
        return linger_seconds(linger)
    except ValueError as error:
        raise_if_from_handler(error)
        raise ConfigurationError("linger", linger, str(error)) from None


class LockBase(Revocable):
    """Base of Lock and RLock."""

    _kind = "lock"
    #: Whether only the thread that holds the lock can release it.
    _only_owner_releases: ClassVar[bool] = False
    #: Whether the znode above its own is a container, too, because it belongs to an object that has no other data.
    _is_in_container = False
    #: For each layout, the part of a contender's name that denotes its kind.
    _name_suffixes: ClassVar[dict[str, str]] = {"curator": wait_queue.LOCK, "kazoo": wait_queue.KAZOO_LOCK}

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
        layout: str = "curator",
        linger: float | None = None,
    ) -> None:
        refuse_positional(self, _)
        super().__init__(name, client, path, on_lost, on_revoke, acl)
        self._layout = validate_layout(layout, tuple(self._name_suffixes))
        self._explicit_linger = None if linger is None else validate_linger(linger)
        self._fast_path: CachedLockFastPath | None = None

    def _options(self) -> dict[str, Any]:
        linger = {} if self._explicit_linger is None else {"linger": self._explicit_linger}
        return linger if self._layout == "curator" else {**linger, "layout": self._layout}

    @property
    def linger(self) -> float:
        """Minimum time in seconds for which a released lock stays cached; 0 disables caching.

        A lock is cached only if no other process waits for it. The default is the client's
        setting (``connect(linger=...)`` or DISTSYNC_LINGER).
        """
        return self.client.settings.linger if self._explicit_linger is None else self._explicit_linger

    @property
    def _core(self) -> LockCore:
        return self._core_of(LockCore)

    def _core_of(self, kind: Callable[..., LockCoreT]) -> LockCoreT:
        suffix = self._name_suffixes[self._layout]
        core = self._shared_state(partial(kind, name_suffix=suffix))
        if core.name_suffix != suffix:
            raise MismatchError("the layout", self.path, core.name_suffix, suffix)
        if self._is_in_container:
            core.ensure_directory = wait_queue.ensure_container_in_container
        return core

    def _grant(self) -> Grant | None:
        return self._core.held_grant

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        core, linger = self._core, self.linger
        is_short_wait = timeout is not None and timeout < QUERY_TIMEOUT_S
        work = core.acquire(current_owner(), describe(linger), blocking, linger=linger, is_short_wait=is_short_wait)
        acquired: bool = self._run(work, timeout) or self._late()
        if acquired:
            self._fast_path = None
            self._subscribe()
            if linger:
                self._enable_fast_path(core)
        return acquired

    def _still_valid(self) -> Callable[[], bool]:
        core = self._core
        grant, acquire_count = core.held_grant, core.acquire_count
        return lambda: core.held_grant is grant and core.acquire_count == acquire_count

    def _holders_and_waiters(self) -> list[Contender]:
        """Return holder and waiters, without a process that merely caches the lock."""
        core = self._core
        if core.grant is not None:
            return self._contenders()
        return parse_contenders(self._ask(holders_and_waiters(self.path)))

    def _enable_fast_path(self, core: LockCore) -> None:
        """Let later calls re-acquire the cached lock without running a protocol."""
        grant = core.grant
        if grant is not None and grant.cache is not None:
            self._fast_path = CachedLockFastPath(core, grant, self.client, self._explicit_client is None)

    def _release(self, core: LockCore, linger: bool = True) -> None:
        linger = linger and self.linger > 0
        seconds = self.client.settings.session_timeout  # first, so that an interrupt leaves no coroutine unawaited
        self._run(core.release(current_owner(), linger), seconds)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see Lock and RLock."""
        raise NotImplementedError

    def release(self) -> None:
        """Release the lock; see Lock and RLock."""
        raise NotImplementedError

    @interruptible_at_entry
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            before: list[LockSnapshot] = []
            fast_path = self._fast_path
            if fast_path is not None and fast_path.release_to_cache(before, self._only_owner_releases):
                return
            before.append(self._core.snapshot)
            exit_context(self._end_block, error)
        except BaseException as failure:
            if not isinstance(failure, DistsyncError) or is_from_handler(failure):
                self._finish_release(locals().get("before", []))
            elif self._was_released_at_end(failure):
                return
            raise

    def _end_block(self) -> None:
        """Release the lock at the end of a ``with`` block, if this process holds it.

        A forked child also ends the blocks that its parent has entered.
        """
        self.release()

    # KeyboardInterrupt can be raised at any line of acquire() and release(), even after the
    # protocol has ended. Both therefore take a snapshot first. From it, an interrupted acquire
    # is undone, and an interrupted release is completed.

    def _finish_release(self, before: list[LockSnapshot]) -> None:
        """Complete an interrupted release. Idempotent."""
        core = self._core
        self.client.background(
            core.finish_release(LockSnapshot(*before[0]) if before else core.snapshot, current_owner())
        )

    def _undo(self, before: list[LockSnapshot]) -> None:
        """Undo an interrupted acquire. Idempotent."""
        if before:
            self.client.background(self._core.undo_acquire(current_owner(), LockSnapshot(*before[0]), TemporaryOwner()))

    def _snapshot(self) -> LockSnapshot:
        """Return a snapshot for `_restore`."""
        return self._core.snapshot

    def _restore(self, before: LockSnapshot, temporary_owner: TemporaryOwner) -> None:
        """Undo acquires made since ``before``, and forget their unreported losses. Idempotent."""
        self.client.background(self._core.undo_acquire(current_owner(), before, temporary_owner))

    def _repr_state(self) -> tuple[str, int]:
        """Return the lock's state in this process and its depth, for `__repr__`.

        Sends no request, and does not start an unused client.
        """
        if not self._may_have_state:
            return "unlocked", 0
        core = self._core
        return ("unlocked", 0) if core.held_grant is None else ("locked", core.depth)


class BlockDelegate:
    """Mixin for objects that delegate ``with`` to an underlying lock."""

    # An interrupted call of the lock's own __exit__() or release() still releases it. So only an interrupt before that
    # call is handled here. No signal handler runs between ``begun = True`` and the call.

    def _underlying_lock(self) -> Any:
        """Return the underlying lock: one of distsync's, or a compatible one of the user's."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self._underlying_lock().__enter__()

    @interruptible_at_entry
    def __exit__(self, *details: Any) -> Any:
        try:
            leave = self._underlying_lock().__exit__
            begun = True
            return leave(*details)
        except BaseException as error:
            if "begun" not in locals() and is_interrupt(error):
                complete(self._underlying_lock().__exit__, *details)
            raise


class LockDelegate(BlockDelegate):
    """Mixin for objects that delegate all of a lock's interface to an underlying lock."""

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """Acquire the underlying lock.

        Args:
            *args: Positional arguments of the lock's ``acquire()``.
            **kwargs: Keyword arguments of the lock's ``acquire()``.

        Returns:
            The result of the lock's ``acquire()``: True if it was acquired.

        Note:
            Costs as many requests as the lock's ``acquire()``.
        """
        lock = self._underlying_lock()
        before = [lock._snapshot()] if isinstance(lock, LockBase) else []
        try:
            acquired: bool = lock.acquire(*args, **kwargs)
            return acquired
        except BaseException as error:  # perhaps interrupted right after the lock's own acquire() has returned
            if before and is_interrupt(error):
                lock._undo(before)
            raise

    @interruptible_at_entry
    def release(self) -> None:
        """Release the underlying lock, as by its own ``release()``."""
        try:
            release = self._underlying_lock().release
            begun = True
            release()
        except BaseException as error:
            if "begun" not in locals() and is_interrupt(error):
                complete(self._underlying_lock().release)
            raise


class Lock(LockBase):
    """A lock shared by threads, processes and hosts, like ``threading.Lock``.

    At most one thread holds the lock at a time, among all processes that use its name.

    If no other process was waiting when the lock was acquired, it stays cached in this process
    after its release, for ``linger`` seconds and at most twice as long. A cached lock is not
    held. Re-acquiring it in this process costs no request and yields the same fencing token.
    Another process gets it at once, even with ``blocking=False``, and then has a greater token.
    A client of another library gets it if it waits, but its non-blocking attempts see the lock
    as taken; use ``linger=0`` to avoid that.

    The lock is lost if the session can no longer be proven alive, or if its znode is deleted.
    Then ``held`` becomes False, ``on_lost`` is called, and ``release()`` or the end of the
    ``with`` block raises LockLostError. Another process may hold the lock by then, so stop the
    work that it protects.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock
            assigned at module or class level is named after its variable; any other lock gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks
            for the lock with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, or ``"kazoo"`` to share the lock
            with kazoo's own Lock.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching,
            None uses the client's setting.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        Acquiring and releasing a cached lock costs no request. Acquiring a free lock costs 2
        requests in 1 round trip. Caching it costs 2 more in the background: 1 to watch for other
        contenders, and 1 to delete the znode in the end. Without caching, acquiring and
        releasing a lock costs 3 requests in 2 round trips if it is free, and 5 requests after
        waiting for another process. Handing it to another thread of this process costs none.

        Processes acquire the lock in FIFO order. While another process waits, threads of one
        process hand the lock to each other at most 32 times in a row. A thread that arrives
        while the lock is cached may overtake waiting threads of its process, at most 32 times
        in a row.

        Znodes: ``<namespace>/lock/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one for each
        process that holds the lock or waits for it.

        Source: ZooKeeper recipes, "Locks"; ``threading.Lock``.

    Example:
        >>> lock = Lock(name="orders")
        >>> with lock:
        ...     print(lock.held)
        True
    """

    __module__ = "distsync.threading"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, waiting in FIFO order if another process holds it.

        Args:
            blocking: Whether to wait if the lock is held.
            timeout: Maximum wait in seconds; 0 tries once, -1 waits forever.

        Returns:
            True if the lock was acquired. False on timeout, or if ``blocking`` is False and the
            lock is held.

        Raises:
            ValueError: ``timeout`` is negative and not -1, or given with ``blocking=False``.
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs no request if the lock is cached, and 2 requests in 1 round trip if it is
            free. With ``blocking=False`` or a timeout below 0.5 s, it costs 1 more if no contender
            exists, otherwise 2 more. If the only other process may be caching the lock, asking it
            to give the lock up costs up to 6 more, once.

            If the session ends during the wait, the thread enqueues again. If interrupted, no
            znode is left behind.

            Source: ZooKeeper recipes, "Locks", steps 1 to 5.
        """
        before: list[LockSnapshot] = []
        try:
            fast_path = self._fast_path
            if fast_path is not None and timeout == -1 and fast_path.acquire_from_cache(before):
                if self._has_callbacks:
                    self._subscribe_to(fast_path.grant)
                return True
            seconds = validate_timeout(timeout, "lock", blocking)
            before.append(self._core.snapshot)
            return self._acquire(seconds, blocking)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo(before)
            shorten_interrupt(error)
            raise

    __enter__ = acquire

    @interruptible_at_entry
    def release(self) -> None:
        """Release the lock. Any thread of the process that holds it may call this.

        Raises:
            NotHeldError: This process does not hold the lock. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.

        Note:
            Costs no request if the lock stays cached or is handed to another thread of this
            process, otherwise 1.

            If the connection is lost, this waits for at most the session timeout, and the znode
            is deleted in the background. If interrupted, the lock is still released.

            Source: ZooKeeper recipes, "Locks", unlock protocol.
        """
        try:
            before: list[LockSnapshot] = []
            fast_path = self._fast_path
            if fast_path is not None and fast_path.release_to_cache(before):
                return
            core = self._core
            before.append(core.snapshot)
            self._release(core)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._finish_release(locals().get("before", []))
            elif self._was_released_at_end(error):
                return
            raise

    def locked(self) -> bool:
        """Return whether any process holds the lock or waits for it.

        Returns:
            True if the lock is held or waited for. False if it is free or cached.

        Note:
            Costs no request if this process holds or caches the lock. Otherwise it costs 1 if the
            queue is empty and 2 if it is not. If the only contender may just be caching the lock,
            asking it costs up to 6 more, once.
        """
        return self.held or bool(self._ask(self._core.locked()))

    def __repr__(self) -> str:
        state, _ = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} at {id(self):#x}>"


class RLock(LockBase):
    """A reentrant lock shared by threads, processes and hosts, like ``threading.RLock``.

    The thread that holds the lock may acquire it again, and must release it once for each
    acquire. In all other respects it is a Lock: an RLock and a Lock of the same name are the
    same lock.

    If the lock is lost, each outstanding release raises an error: the first LockLostError, the
    others NotHeldError.

    Args:
        name: Name of the lock, shared by all processes that use it. Without a name, a lock
            assigned at module or class level is named after its variable; any other lock gets
            a unique name.
        client: The client to use; None uses the default client.
        path: Path of the lock's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if the lock is lost
            while it is held. None calls nothing.
        on_revoke: Called with this object, in a thread of distsync's own, if any client asks
            for the lock with ``revoke()``. None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, or ``"kazoo"`` to share the lock
            with kazoo's own Lock.
        linger: Seconds for which the lock stays cached after its release; 0 disables caching,
            None uses the client's setting.

    Raises:
        TypeError: A callback is not callable, or both a name and a path are given.
        ConfigurationError: ``acl``, ``layout`` or ``linger`` is not valid.

    Note:
        The first acquire and the last release cost and behave as those of Lock. Those in
        between cost no request.

        Processes acquire the lock in FIFO order, as with Lock. The znodes are those of Lock.

        Source: ZooKeeper recipes, "Locks"; ``threading.RLock``.

    Example:
        >>> lock = RLock(name="orders")
        >>> with lock, lock:
        ...     print(lock.held)
        True
    """

    __module__ = "distsync.threading"
    _only_owner_releases = True

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, or increment the recursion level if this thread holds it.

        Args:
            blocking: Whether to wait if another thread holds the lock.
            timeout: Maximum wait in seconds; 0 tries once, -1 waits forever.

        Returns:
            True if the lock was acquired. False on timeout, or if ``blocking`` is False and
            another thread holds the lock.

        Raises:
            ValueError: ``timeout`` is negative and not -1, or given with ``blocking=False``.
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs no request if this thread holds the lock, otherwise as many as Lock.acquire.

            If the session ends during the wait, the thread enqueues again. If interrupted, no
            znode is left behind.

            Source: ZooKeeper recipes, "Locks", steps 1 to 5.
        """
        before: list[LockSnapshot] = []
        try:
            fast_path = self._fast_path
            if fast_path is not None and timeout == -1 and fast_path.acquire_from_cache(before):
                if self._has_callbacks:
                    self._subscribe_to(fast_path.grant)
                return True
            seconds = validate_timeout(timeout, "lock", blocking)
            core = self._core
            before.append(core.snapshot)
            if core.is_held_by(current_owner()):
                core.depth += 1
                if self._has_callbacks:
                    self._subscribe(core.depth)
                return True
            return self._acquire(seconds, blocking)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo(before)
            shorten_interrupt(error)
            raise

    __enter__ = acquire

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and release the lock when it reaches zero.

        Raises:
            NotHeldError: This thread does not hold the lock. Subclass of RuntimeError.
            LockLostError: The lock was lost while it was held. Another process may hold it now.

        Note:
            Costs no request, except for the last release, which costs as many as Lock.release.

            Source: ZooKeeper recipes, "Locks", unlock protocol.
        """
        try:
            before: list[LockSnapshot] = []
            fast_path = self._fast_path
            if fast_path is not None and fast_path.release_to_cache(before, mine=True):
                return
            core = self._core
            before.append(core.snapshot)
            if core.depth > 1 and core.is_held_by(current_owner()):
                core.reduce_depth(core.depth - 1)
            else:
                self._release_all(core)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._finish_release(locals().get("before", []))
            elif self._was_released_at_end(error):
                return
            raise

    def _finish_release(self, before: list[LockSnapshot]) -> None:
        if (LockSnapshot(*before[0]) if before else self._core.snapshot).owner is current_owner():
            super()._finish_release(before)

    def _release_all(self, core: LockCore, linger: bool = True) -> None:
        before: list[LockSnapshot] = []
        try:
            owner = current_owner()
            before.append(core.snapshot._replace(depth=1))
            if not core.is_held_by(owner) and core.loss_of(owner) is None:
                raise NotHeldError("cannot release un-acquired lock")
            self._release(core, linger)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._finish_release(before)
            raise

    def _is_owned(self) -> bool:
        return self._core.is_held_by(current_owner())

    def _recursion_count(self) -> int:
        return self._core.depth if self._is_owned() else 0

    def _release_save(self) -> int:
        core = self._core
        depth = core.depth
        self._release_all(core, linger=False)  # a wait for a notification depends on others acquiring the lock
        return depth

    def _acquire_restore(self, saved: int) -> None:
        before: list[LockSnapshot] = []
        try:
            core = self._core
            before.append(core.snapshot)
            self._acquire(None, True)
            core.depth = saved
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo(before)
            shorten_interrupt(error)
            raise

    def __repr__(self) -> str:
        state, depth = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"
