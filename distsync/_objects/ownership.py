"""Base of all objects that can be held and lost: locks and semaphores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender
from distsync._objects.base import FencingToken, SharedObject, parse_contenders
from distsync._objects.fenced_transaction import GuardedTransaction
from distsync._objects.validation import validate_callback
from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, Subscriber
from distsync._protocols.steps import ZNODE_DELETED, Several
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DistsyncError, LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


def repr_state(obj: SharedObject, protocol: Callable[[], Any], initial: Any = "??") -> Any:
    """Return the result of ``protocol()`` for a repr; ``"??"`` if it takes more than 1 s.

    Without a connection, it is ``"??"`` and no request is sent. It is ``initial`` if the object is
    unnamed and was not used yet.
    """
    if obj._is_fresh and initial != "??":
        return initial
    client = obj.client
    if client.state != "connected":
        return "??"
    try:
        return client.run(protocol(), 1.0)
    except (DistsyncError, RuntimeError) as error:
        raise_if_from_handler(error)
        return "??"


def _report_loss(path: str, grant: Grant) -> Several:
    """Return the calls of ``on_lost`` of all objects that held by a lost grant. Idempotent.

    ``path`` is given because an object's own ``path`` would start a new default client if the
    grant's was closed.
    """
    pending = [each for each in tuple(grant.subscribers) if not each.loss_reported]
    only_cached = grant.cache is not None and grant.cache.idle
    for each in pending:
        each.loss_reported = True
    was_deleted = grant.loss.reason == ZNODE_DELETED
    subjects = [each for each in _distinct(pending) if not (was_deleted and each._any_process_releases)]
    callbacks = [subject._on_lost for subject in subjects]
    calls: list[Callable[[], object]] = [
        partial(each, LockLostError(path, grant.loss.reason)) for each in callbacks if each is not None
    ]
    return Several([] if only_cached else calls)


def _report_revocation(grant: Grant) -> Several:
    """Return the calls that notify all objects that hold by this grant of the request to revoke it. Idempotent."""
    pending = [each for each in tuple(grant.subscribers) if not (each.revocation_reported or grant.loss.fired)]
    for each in pending:
        each.revocation_reported = True
    return Several([subject._revocation_requested for subject in _distinct(pending)])


def _distinct(subscribers: list[Subscriber]) -> list[Any]:
    """Return the objects in their order, each once: threads may share one."""
    return list({id(each.subject): each.subject for each in subscribers}.values())


class Ownable(SharedObject):
    """Base of all objects that can be held and lost."""

    #: Whether another process may release what this one holds, so that a deleted znode is no loss.
    _any_process_releases = False

    def __init__(
        self,
        name: str | None,
        client: Client | None,
        path: str | None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)
        self._init_loss_callback(on_lost)

    def _init_loss_callback(self, on_lost: Callable[[LockLostError], Any] | None) -> None:
        self._on_lost = validate_callback("on_lost", on_lost)
        #: Whether a callback was given. If not, an acquire does not subscribe the object.
        self._has_callbacks = on_lost is not None

    def _holder_among(self, names: tuple[str, ...]) -> str | None:
        """Return the first contender, which holds the object alone or with others."""
        order = wait_queue.in_order(names)
        return order[0].name if order else None

    @property
    def on_lost(self) -> Callable[[LockLostError], Any] | None:
        """The callback for a loss, called with a LockLostError in a thread of distsync's own.

        It is called if the object is lost between its acquire and its release. It may be set at any
        time, also while the object is held. None calls nothing.

        Note:
            Costs no request.
        """
        return self._on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LockLostError], Any] | None) -> None:
        self._on_lost = validate_callback("on_lost", callback)
        self._callback_was_set(callback)

    def _callback_was_set(self, callback: Callable[..., Any] | None) -> None:
        """Let a callback that was set while the object is held be called for its present grant."""
        if callback is not None:
            self._has_callbacks = True
            if self._may_have_state:
                self._subscribe()

    @property
    def _may_have_state(self) -> bool:
        """Whether there can be any state in this process. Starts no client."""
        return self.client.state not in ("connecting", "closed")

    def _grant(self) -> Grant | None:
        """Return the latest grant of this process."""
        raise NotImplementedError

    def _subscribe(self, depth: int = 1) -> None:
        """Let the callbacks be called for the latest grant, until it is released to below ``depth``."""
        grant = self._grant() if self._has_callbacks else None
        if grant is not None:
            self._subscribe_to(grant, depth)

    def _subscribe_to(self, grant: Grant, depth: int = 1) -> None:
        owner = self._subscribing_owner(grant)
        for each in tuple(grant.subscribers):
            if each.subject is self and each.owner is owner:
                return
        grant.subscribers.append(Subscriber(self, depth, owner))
        # These functions refer to no object, so that it is collectable after its release.
        if not grant.reports:
            self.client.on_loss(grant.loss, partial(_report_loss, self.path, grant))
            self.client.on_loss(grant.revoke_requested, partial(_report_revocation, grant))
            grant.reports = True
        elif grant.loss.fired:
            self.client.call_back(partial(_report_loss, self.path, grant))
        elif grant.revoke_requested.fired:
            self.client.call_back(partial(_report_revocation, grant))

    def _subscribing_owner(self, grant: Grant) -> object:
        """Return the owner whose release ends the subscription; None if any release does."""
        return None

    def _revocation_requested(self) -> None:
        """Handle a request of revocation while this object holds the grant."""

    @property
    def held(self) -> bool:
        """Whether this process provably holds the object now.

        It is False from the moment at which the session is no longer proven alive, or the znode was
        seen to be deleted.

        Note:
            Costs no request, because the lease clock gives the answer. It is available even if no
            server can be reached.
        """
        grant = self._grant() if self._may_have_state else None
        return grant is not None and not grant.loss.fired and self.client.is_proven(grant.entry.session_id)

    @property
    def fencing_token(self) -> FencingToken:
        """The fencing token of the current grant, a number that increases with each grant.

        It never decreases, and stays the same if a cached lock is acquired again. A resource that
        refuses a token smaller than the greatest that it has seen is safe from a former holder.

        Raises:
            NotHeldError: This process does not hold the object.

        Note:
            Costs no request.
        """
        return FencingToken(self._held_grant().token)

    def _check_held(self) -> None:
        """Raise LockLostError if this process does not provably hold the object."""
        if not self.held:
            grant = self._grant()
            raise LockLostError(self.path, (grant and grant.loss.reason) or "lease expired")

    def _held_grant(self) -> Grant:
        grant = self._grant()
        if grant is None or grant.loss.fired:
            raise NotHeldError(f"{self.path} is not held by this process")
        return grant

    def transaction(self) -> GuardedTransaction:
        """Return a transaction that the ensemble refuses once the object is no longer held.

        Returns:
            The transaction, to which operations on znodes are added. It is committed at the end of
            a ``with`` block, or by ``commit()``. See GuardedTransaction.

        Raises:
            NotHeldError: This process does not hold the object.

        Note:
            Costs 1 request, at its commit.
        """
        return GuardedTransaction(self.client, self._receipts, self._held_grant(), self._still_valid())

    def _still_valid(self) -> Callable[[], bool]:
        """Return a function that tells whether the hold that is current now still lasts."""
        return lambda: True

    def _contenders(self) -> list[Contender]:
        return parse_contenders(self._ask(wait_queue.contenders(self._queue_path())))

    def _holders_and_waiters(self) -> list[Contender]:
        """Return holders and waiters, without processes that merely cache the object."""
        return self._contenders()

    def _queue_path(self) -> str:
        """Return the path of the wait queue."""
        return self.path

    def holders(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current holders, in all processes.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each: its host, pid, thread, start of the wait, place in the code and
            token.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips. A semaphore costs 1 more.
        """
        with self._limited(timeout):
            return self._holders_and_waiters()[: self._capacity()]

    def waiters(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current waiters of all processes, the first in the queue first.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each. Threads of one process that wait for each other count as one.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips. A semaphore costs 1 more.
        """
        with self._limited(timeout):
            return self._contenders()[self._capacity() :]

    def _capacity(self) -> int:
        return 1
