"""What Lock, RLock and SharedLock share: whoever holds one can be asked to let go of it.

Rules for this file: no znode; each method checks its arguments and runs one protocol. Who neither gives ``on_revoke``
nor looks at ``revoked`` pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.ownership import Ownable
from distsync._objects.validation import TIMEOUT_MAX, validate_positive, validate_timeout
from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.lock import Grant
from distsync.errors import LockLostError

if TYPE_CHECKING:
    from distsync._client.client import Client


class RevocationFlag:
    """Whether what is held has to be given back: event-like, for a holder that looks now and then.

    Cost: 1 request, once for each holding, apart from the call that looks first; then 1 for each change.
    Source: recipes.txt, Revocable Shared Locks; ``threading.Event``.

    >>> from distsync import Lock
    >>> lock = Lock(name="a long job")
    >>> with lock:
    ...     print(lock.revoked.is_set())
    False
    """

    def __init__(self, lock: Revocable) -> None:
        self._lock = lock

    def is_set(self) -> bool:
        """Whether somebody has asked for what this process holds, or it was lost. False where it holds nothing.

        The first look at each holding begins to watch, and may come before the watch.
        """
        grant = self._lock._watched_grant()
        return grant is not None and (grant.revoke_requested.fired or grant.loss.fired)

    __bool__ = is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Somebody has asked for what is held, or it was lost.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        Raises: NotHeldError when this process does not hold it.
        """
        seconds = validate_timeout(timeout)
        grant = self._lock._watched_grant() or self._lock._held_grant()
        return bool(self._lock._run(revocation.until_asked(grant), seconds))


class Revocable(Ownable):
    """What can be held, asked for, and lost."""

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
        self._on_revoke = on_revoke
        self._watched_for_revocation: Grant | None = None

    @property
    def on_revoke(self) -> Callable[[Any], Any] | None:
        """What is called with this object, in a thread of distsync's own, when somebody asks for what is held.

        It may be set at any time, also while held; None: nothing is called. Cost: 1 request for each holding.
        """
        return self._on_revoke

    @on_revoke.setter
    def on_revoke(self, callback: Callable[[Any], Any] | None) -> None:
        self._on_revoke = callback
        if callback is not None and self._is_used:
            self._register_loss_callback()

    @property
    def revoked(self) -> RevocationFlag:
        """Whether somebody asks for what is held: ``is_set()``, ``wait(timeout)``."""
        return RevocationFlag(self)

    def _register_loss_callback(self) -> None:
        super()._register_loss_callback()
        if self._on_revoke is not None:
            self._watched_grant()

    @property
    def _core(self) -> Any:
        """The state of this object that the threads of this process share."""
        raise NotImplementedError

    def _watched_grant(self) -> Grant | None:
        """The latest grant of this process, which is asked for from now on if it was not before."""
        grant = self._grant() if self._is_used else None
        if grant is not None and grant is not self._watched_for_revocation:
            self._watched_for_revocation = grant
            self.client.background(self._heed(grant))
            self.client.on_loss(grant.revoke_requested, partial(self._asked_for, self._core, grant))
        return grant

    def _heed(self, grant: Grant) -> Coroutine[Any, Any, None]:
        return revocation.watch_revocation(grant)

    def _asked_for(self, core: Any, grant: Grant) -> None:
        """Run the callback. Ask ``core``, as ``self._core`` starts a default client if that of the grant was closed."""
        if self._on_revoke is not None and self._stands(core, grant):
            self._on_revoke(self)

    def _stands(self, core: Any, grant: Grant) -> bool:
        """Whether this process still holds by it."""
        return core.grant is grant

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        """Whether ``revoke`` asks this one, if he holds."""
        return True

    def revoke(self, grace: float | None = None) -> bool:
        """Whoever holds it is asked to let go, and after ``grace`` it is taken from him.

        Anybody may call this. A holder of another process, or of another make of client, that does not heed it loses
        what he holds at the end of the grace time, and learns of it as of any loss (``on_lost``, ``held``,
        LockLostError); he may go on for a moment, but a guarded ``transaction()`` of his is refused.
        Units: seconds for all holders together; None: they are asked, and nothing more.
        Returns: True if they let go by themselves; False if it was taken from them, or if they were only asked.
        Raises: NotHeldError if nobody holds it; TypeError, ValueError for a time that is none, or negative.
        Cost: 1 request, and 2 for each holder; with ``grace`` 1 or 2 more for each. 3, 2 round trips, if nobody does.
        Source: recipes.txt, Revocable Shared Locks, with the laser beams.
        """
        return self._revoke(grace, self._is_meant)

    def _revoke(
        self, grace: float | None, matches: wait_queue.Rule, include_downgraded: bool = False, marker: object = True
    ) -> bool:
        seconds = None if grace is None else min(validate_positive("grace", grace, allow_zero=True), TIMEOUT_MAX)
        asked = self._run(revocation.request_revocation(self.path, matches, marker))
        if seconds is None:
            return False
        remaining = self._run(revocation.still_held(asked, include_downgraded), seconds)
        return not (remaining and self._run(revocation.delete(remaining, include_downgraded)))
