"""What Lock, RLock and Semaphore share: what can be held, and so be lost.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender
from distsync._objects.base import FencingToken, SharedObject, parse_contenders
from distsync._objects.fenced_transaction import GuardedTransaction
from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync.errors import DistsyncError, LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


def repr_state(obj: SharedObject, protocol: Callable[[], Any]) -> Any:
    """What a repr shows of the state: asked if there is a connection, and never for long."""
    client = obj.client
    if client.state != "connected":
        return "??"
    try:
        return client.run(protocol(), 1.0)
    except (DistsyncError, RuntimeError):
        return "??"


class Ownable(SharedObject):
    """What can be held, and so be lost."""

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

    def _first_of(self, names: tuple[str, ...]) -> str | None:
        """The first in line, who holds, alone or among others."""
        order = wait_queue.in_order(names)
        return order[0].name if order else None

    @property
    def on_lost(self) -> Callable[[LockLostError], Any] | None:
        """What is called with a LockLostError, in a thread of distsync's own, when what is held is lost.

        It may be set at any time, also while held; None: nothing is called. Cost: no request.
        """
        return self._on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[LockLostError], Any] | None) -> None:
        self._on_lost = callback
        if self._is_used:
            self._register_loss_callback()

    @property
    def _is_used(self) -> bool:
        """Whether there can be anything to look at; nothing is started to find out."""
        return self.client.state not in ("connecting", "closed")

    def _grant(self) -> Grant | None:
        """The latest grant of this process."""
        raise NotImplementedError

    def _register_loss_callback(self) -> None:
        """``on_lost`` is called if what was just acquired is lost."""
        grant = self._grant()
        if self._on_lost is not None and grant is not None and grant is not self._loss_callback_grant:
            self._loss_callback_grant = grant
            self.client.on_loss(grant.loss, partial(self._lost, self.path, grant))

    def _lost(self, path: str, grant: Grant) -> None:
        """Run the callback. ``self.path`` would make a default client if that of the grant was closed."""
        kept = grant.cache is not None and grant.cache.idle
        if self._on_lost is not None and not kept:
            self._on_lost(LockLostError(path, grant.loss.reason))

    @property
    def held(self) -> bool:
        """True while this process provably holds it: the session lives, and nobody deleted the znode.

        Cost: no request; the answer comes from the lease clock, also when no server can be reached.
        """
        grant = self._grant() if self._is_used else None
        return grant is not None and not grant.loss.fired and self.client.is_proven(grant.place.session_id)

    @property
    def fencing_token(self) -> FencingToken:
        """The number of this holding; it grows from process to process, and never decreases.

        Raises: NotHeldError when this process does not hold it.
        Cost: no request.
        """
        return FencingToken(self._held_grant().token)

    def _check_held(self) -> None:
        """Raises LockLostError if what this process holds was lost."""
        if not self.held:
            grant = self._grant()
            raise LockLostError(self.path, (grant and grant.loss.reason) or "lease ran out")

    def _held_grant(self) -> Grant:
        grant = self._grant()
        if grant is None or grant.loss.fired:
            raise NotHeldError(f"{self.path} is not held by this process")
        return grant

    def transaction(self) -> GuardedTransaction:
        """A transaction that the ensemble refuses when this is not held any more.

        Raises: NotHeldError when this process does not hold it; see GuardedTransaction for its end.
        Cost: 1 request at its commit.
        """
        return GuardedTransaction(self.client, self._receipts, self._held_grant(), self._still_valid())

    def _still_valid(self) -> Callable[[], bool]:
        """What says later whether it is held still as it is now."""
        return lambda: True

    def _line(self) -> list[Contender]:
        return parse_contenders(self._read(wait_queue.contenders(self._folder())))

    def _holding_line(self) -> list[Contender]:
        """The same, where who stands there without holding, and without waiting, does not count."""
        return self._line()

    def _folder(self) -> str:
        """Where the line is."""
        return self.path

    def holders(self) -> list[Contender]:
        """Who holds it now, in any process: host, pid, thread, since when, place in the code, token.

        Cost: 1 request and 1 for each contender, 2 round trips; 1 more for a semaphore.
        """
        return self._holding_line()[: self._capacity()]

    def waiters(self) -> list[Contender]:
        """Who waits for it now, first in line first. A process whose threads wait for each other shows once.

        Cost: 1 request and 1 for each contender, 2 round trips; 1 more for a semaphore.
        """
        return self._line()[self._capacity() :]

    def _capacity(self) -> int:
        return 1
