"""Base of all objects that can be held and lost: locks and semaphores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender
from distsync._objects.base import FencingToken, SharedObject, parse_contenders
from distsync._objects.fenced_transaction import GuardedTransaction
from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DistsyncError, LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


def repr_state(obj: SharedObject, protocol: Callable[[], Any]) -> Any:
    """Return the result of ``protocol()`` for a repr; ``"??"`` if it takes more than 1 s.

    Without a connection, it is ``"??"`` and no request is sent.
    """
    client = obj.client
    if client.state != "connected":
        return "??"
    try:
        return client.run(protocol(), 1.0)
    except (DistsyncError, RuntimeError) as error:
        raise_if_from_handler(error)
        return "??"


class Ownable(SharedObject):
    """Base of all objects that can be held and lost."""

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
        self._on_lost = on_lost
        self._loss_callback_grant: Grant | None = None

    def _holder_among(self, names: tuple[str, ...]) -> str | None:
        """Return the first contender, which holds the object alone or with others."""
        order = wait_queue.in_order(names)
        return order[0].name if order else None

    @property
    def on_lost(self) -> Callable[[LockLostError], Any] | None:
        """The callback for a loss, called with a LockLostError in a thread of distsync's own.

        It may be set at any time, also while the object is held. None calls nothing.

        Note:
            Costs no request.
        """
        return self._on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LockLostError], Any] | None) -> None:
        self._on_lost = callback
        if self._may_have_state:
            self._register_loss_callback()

    @property
    def _may_have_state(self) -> bool:
        """Whether there can be any state in this process. Starts no client."""
        return self.client.state not in ("connecting", "closed")

    def _grant(self) -> Grant | None:
        """Return the latest grant of this process."""
        raise NotImplementedError

    def _register_loss_callback(self) -> None:
        """Let ``on_lost`` be called if the latest grant is lost."""
        grant = self._grant()
        if self._on_lost is not None and grant is not None and grant is not self._loss_callback_grant:
            self._loss_callback_grant = grant
            self.client.on_loss(grant.loss, partial(self._lost, self.path, grant))

    def _lost(self, path: str, grant: Grant) -> None:
        """Call ``on_lost`` unless the grant was only cached.

        ``path`` is given because ``self.path`` would start a new default client if the grant's was
        closed.
        """
        only_cached = grant.cache is not None and grant.cache.idle
        if self._on_lost is not None and not only_cached:
            self._on_lost(LockLostError(path, grant.loss.reason))

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
        return parse_contenders(self._read(wait_queue.contenders(self._queue_path())))

    def _holders_and_waiters(self) -> list[Contender]:
        """Return holders and waiters, without processes that merely cache the object."""
        return self._contenders()

    def _queue_path(self) -> str:
        """Return the path of the wait queue."""
        return self.path

    def holders(self) -> list[Contender]:
        """Return the current holders, in all processes.

        Returns:
            A Contender for each: its host, pid, thread, start of the wait, place in the code and
            token.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips. A semaphore costs 1 more.
        """
        return self._holders_and_waiters()[: self._capacity()]

    def waiters(self) -> list[Contender]:
        """Return the current waiters of all processes, the first in the queue first.

        Returns:
            A Contender for each. Threads of one process that wait for each other count as one.

        Note:
            Costs 1 request and 1 for each contender, in 2 round trips. A semaphore costs 1 more.
        """
        return self._contenders()[self._capacity() :]

    def _capacity(self) -> int:
        return 1
