"""Base of all locks that another client can revoke: Lock, RLock and both sides of a SharedLock.

A holder that neither has an ``on_revoke`` callback nor reads ``revoked`` sends no request for this.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from distsync._client.deadlines import TIMEOUT_MAX, limit_calls
from distsync._objects.base import ask_timeout_of
from distsync._objects.ownership import Ownable
from distsync._objects.validation import validate_callback, validate_positive, validate_timeout
from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import Grant
from distsync.errors import LockLostError

if TYPE_CHECKING:
    from distsync._client.client import Client


class RevocationFlag:
    """An event-like flag that is set if the held lock is to be released.

    Args:
        lock: The lock, whose latest grant in this process is looked at.

    Note:
        Costs 1 request for each grant, in the background of the first look at it, and then 1 for
        each change of the lock's znode.

        Source: ZooKeeper recipes, "Revocable Shared Locks"; ``threading.Event``.

    Example:
        >>> from distsync import Lock
        >>> lock = Lock(name="a long job")
        >>> with lock:
        ...     print(lock.revoked.is_set())
        False
    """

    def __init__(self, lock: Revocable) -> None:
        self._lock = lock

    def is_set(self) -> bool:
        """Return whether a client asks for the lock that this process holds, or the lock was lost.

        Returns:
            True if the lock is asked for or lost. False otherwise, or if this process does not hold
            it. The first call for a grant starts watching it, and may return before the watch is
            set.
        """
        grant = self._lock._watched_grant()
        return grant is not None and (grant.revoke_requested.fired or grant.loss.fired)

    __bool__ = is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a client asks for the lock that this process holds, or the lock is lost.

        Args:
            timeout: Maximum wait in seconds; 0 looks once, None waits forever.

        Returns:
            True if the lock is asked for or lost; False on timeout.

        Raises:
            NotHeldError: This process does not hold the lock.
        """
        seconds = validate_timeout(timeout)
        grant = self._lock._watched_grant() or self._lock._held_grant()
        return bool(self._lock._run(revocation.until_asked(grant), seconds))


class Revocable(Ownable):
    """Base of all objects that can be held, revoked and lost."""

    def __init__(
        self,
        name: str | None,
        client: Client | None,
        path: str | None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, on_lost, acl)
        self._init_revocation(on_revoke)

    def _init_revocation(self, on_revoke: Callable[[Any], Any] | None) -> None:
        self._on_revoke = validate_callback("on_revoke", on_revoke)
        self._has_callbacks = self._has_callbacks or on_revoke is not None

    @property
    def on_revoke(self) -> Callable[[Any], Any] | None:
        """The callback for revocations, called with this object in a thread of distsync's own.

        It is called if a client asks for the lock while this process holds it. It may be set at any
        time, also while the lock is held. None calls nothing.

        Note:
            Costs 1 request for each grant.
        """
        return self._on_revoke

    @on_revoke.setter
    def on_revoke(self, callback: Callable[[Any], Any] | None) -> None:
        self._on_revoke = validate_callback("on_revoke", callback)
        self._callback_was_set(callback)

    @property
    def revoked(self) -> RevocationFlag:
        """A RevocationFlag that is set if a client asks for the held lock.

        It has the methods ``is_set()`` and ``wait(timeout)``.
        """
        return RevocationFlag(self)

    def _subscribe_to(self, grant: Grant, depth: int = 1) -> None:
        super()._subscribe_to(grant, depth)
        if self._on_revoke is not None:
            self._watch(grant)

    @property
    def _core(self) -> Any:
        """The in-process state of this object, shared by all threads."""
        raise NotImplementedError

    def _watched_grant(self) -> Grant | None:
        """Return the latest grant of this process, and start watching it for revocation."""
        grant = self._grant() if self._may_have_state else None
        if grant is not None:
            self._watch(grant)
        return grant

    def _watch(self, grant: Grant) -> None:
        if not grant.watched:
            self.client.background(self._heed(grant))
            grant.watched = True  # although the background may not have begun

    def _heed(self, grant: Grant) -> Coroutine[Any, Any, None]:
        return revocation.watch_revocation(grant)

    def _revocation_requested(self) -> None:
        if self._on_revoke is not None:
            self._on_revoke(self)

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        """Return whether ``revoke`` asks this contender, if it is a holder."""
        return True

    def revoke(self, grace: float | None = None, *, timeout: float | None = None) -> bool:
        """Ask the holder to release the lock, and take the lock from it after ``grace``.

        Any process may call this. A holder that does not release the lock in time loses it, also if
        it is in another process or uses another library. The holder is notified as of any loss, by
        ``on_lost``, ``held`` and LockLostError. Its ``held`` is False before another process can hold
        the lock, unless the holder does not notice within a second: its process is stopped, has no
        connection, or uses another library. Even then its guarded ``transaction()`` is refused.

        If the calling process exits, or this call is interrupted, after the lock was taken, the
        lock is free as soon as the holder notices. Until then, the lock stays with a holder that
        does not notice, at most until its session ends.

        Args:
            grace: Maximum wait in seconds, for all holders together; 0 takes the lock at once. None
                only asks, and does not wait.
            timeout: Maximum wait for the server, in addition to ``grace``, in seconds; None uses the client's
                default, -1 waits forever.

        Returns:
            True if all holders released the lock by themselves. False if it was taken from any of
            them, or if ``grace`` is None.

        Raises:
            NotHeldError: No process holds the lock.
            TypeError: ``grace`` is not a number.
            ValueError: ``grace`` is negative or not finite.
            DeadlineError: No server answered in time. The lock may or may not be asked for, or
                taken. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 for each holder. With ``grace``, it costs 2 more for each holder
            that releases the lock, and 5 for each from which it is taken.
            Costs 3 requests in 2 round trips if no process holds the lock.

            Source: ZooKeeper recipes, "Revocable Shared Locks".
        """
        return self._revoke(grace, self._is_meant, timeout=timeout)

    def _revoke(
        self,
        grace: float | None,
        matches: wait_queue.Rule,
        include_downgraded: bool = False,
        marker: object = True,
        timeout: float | None = None,
    ) -> bool:
        seconds = None if grace is None else min(validate_positive("grace", grace, allow_zero=True), TIMEOUT_MAX)
        limit = ask_timeout_of(self.client, timeout)
        each = -1.0 if limit is None else limit
        with limit_calls(None if limit is None else limit + (seconds or 0.0) + revocation.NOTICE_S):
            asked = self._ask(revocation.request_revocation(self.path, matches, marker), each)
            if seconds is None:
                return False
            remaining = self._run(revocation.still_held(asked, include_downgraded), seconds)
            if not remaining:
                return True
            noticing = self._ask(revocation.mark_revoked(remaining, include_downgraded), each)
            late = self._run(revocation.still_held(noticing, include_downgraded), revocation.NOTICE_S)
            others = [path for path in remaining if path not in noticing]
            return not (self._ask(revocation.delete([*others, *late], include_downgraded), each) or noticing)
