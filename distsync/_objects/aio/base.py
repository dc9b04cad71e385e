"""Base of the asyncio classes, each of which wraps an object for threads.

A coroutine is awaited on the running loop (``_await``). A method that asyncio calls without
``await`` and that needs no reply starts its protocol and returns (``_run_in_background``). A method
that needs a reply blocks the loop for a round trip (``_run_blocking``).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from distsync._client import default_client, lifecycle
from distsync._client.deadlines import earliest
from distsync._client.driver.task_order import orders
from distsync._objects.base import (
    FencingToken,
    SharedObject,
    ask_timeout_of,
    close_unstarted,
    create_wrapped,
    explain_outage,
    raise_if_late,
    shorten_interrupt,
)
from distsync._pickle import stable_pickle_name
from distsync._protocols.locks.lock import Grant
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ClientClosedError, LockLostError, NotHeldError, OutcomeUnknownError

if TYPE_CHECKING:
    from distsync._client.client import Client

Self = TypeVar("Self", bound="AsyncObject")
ReleaseT = TypeVar("ReleaseT", bound=Callable[..., None])

_owners: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()


def mine() -> object:
    """Return the running task's identity as an owner."""
    try:
        task = asyncio.current_task()
    except RuntimeError as error:  # no loop runs here
        raise_if_from_handler(error)
        task = None
    return object() if task is None else _owners.setdefault(task, object())


def raise_or_note(lost: LockLostError | NotHeldError, error: BaseException | None) -> None:
    """End an ``async with``: raise ``lost``, or add it as a note to ``error``, which the body raised."""
    if error is None:
        raise lost
    if hasattr(error, "add_note"):
        error.add_note(f"distsync: {lost}")


class AsyncObject:
    """An object for the tasks of an event loop, shared by all processes that use its name."""

    #: The class of the wrapped object.
    _kind: ClassVar[Any]
    _sync: Any

    def _init_sync(self, *args: Any, **options: Any) -> None:
        """Create the wrapped object, and name it after the place where this one is created."""
        self._sync = create_wrapped(self, self._kind, *args, **options)

    @property
    def name(self) -> str:
        """The name by which other processes find this object."""
        return str(self._sync.name)

    @property
    def client(self) -> Client:
        """The client that this object uses: the given one, or the default client."""
        client: Client = self._sync.client
        return client

    @property
    def path(self) -> str:
        """The path of this object's znode."""
        return str(self._sync.path)

    @property
    def twin(self) -> Any:
        """The same object for threads, of ``distsync.threading`` or ``distsync.queue``."""
        return self._sync

    async def destroy(self, *, timeout: float | None = None) -> None:
        """Delete the object and all that it stores, for all processes.

        Its next use creates it afresh, also with other arguments. What any process holds of it is
        lost, and a release raises LockLostError. Waiting calls continue with the fresh object, so
        stop the processes that use the object, if it is not to be created at once. If it does not
        exist, nothing happens.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            TypeError: ``timeout`` is not a number.
            ValueError: The given path is a folder of the namespace, or has znodes below it that do not
                belong to an object of this class. Nothing was deleted. Or ``timeout`` is negative.
            DeadlineError: The object was not deleted in time. Subclass of TimeoutError.
            StillUsedError: Other processes keep adding to the object.
            AccessDeniedError: An ACL denies the access.
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs 3 requests in 2 round trips for an object without children, 2 if it does not exist,
            and 1 for each znode that may have children. 1,000 items are deleted in 1 round trip. With
            ``path=``, it costs 2 more in 1 more round trip, and 1 more for each child of another name
            than the object gives.

            If the reply is lost, it is repeated, but a fresh object is not deleted. If cancelled, or
            at the deadline, the object may be deleted, or a part of its contents: call it again.

            Source: ours; ZooKeeper's multi.
        """
        await self._ready()
        await self._ask(self._sync._destruction(), timeout)

    async def _ready(self) -> None:
        """Start the client, and import what it needs, without blocking the loop.

        Tasks continue in the order in which they called this.
        """
        starting = orders().starting
        await starting.acquire()
        try:
            twin: SharedObject = self._sync
            client = twin._explicit_client or default_client.current.client
            is_started = client is not None and client.is_started
            if not is_started and not lifecycle.is_outlived():  # at the end, asyncio has no threads
                await asyncio.to_thread(lambda: twin.client.start())
        finally:
            starting.release()

    async def _await(
        self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None, in_order: bool = False
    ) -> Any:
        try:
            return await self.client.run_async(self._sync._as_member(protocol), timeout, self._sync, in_order=in_order)
        except BaseException as error:
            close_unstarted(protocol)
            explain_outage(self, error)
            shorten_interrupt(error, asyncio.CancelledError)
            raise

    async def _ask(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Await a protocol that waits for replies of the server only, as `SharedObject._ask` runs it."""
        try:
            return await self._await(protocol, ask_timeout_of(self.client, timeout), in_order=True)
        except OutcomeUnknownError as unknown:
            raise_if_late(unknown)
            raise
        except BaseException:
            close_unstarted(protocol)
            raise

    def _run_in_background(self, protocol: Coroutine[Any, Any, Any]) -> None:
        try:
            self.client.tell(_meanwhile(self._sync, self._sync._as_member(protocol)))
        except BaseException:
            protocol.close()
            raise

    def _run_blocking(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        client = self.client
        try:
            if timeout is None:
                timeout = earliest(ask_timeout_of(client, None), client.settings.session_timeout)
            return client.run(self._sync._as_member(protocol, True), timeout, self._sync)
        except BaseException as error:
            close_unstarted(protocol)
            explain_outage(self, error)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return async_object, (type(self), self._sync)

    def _repr_state(self, extra: str) -> str:
        """Return a repr like those of asyncio's objects."""
        return f"<{object.__repr__(self)[1:-1]} [{extra}]>"


async def _meanwhile(used: Any, protocol: Coroutine[Any, Any, Any]) -> Any:
    """Await ``protocol`` while ``used`` is referenced.

    Otherwise the znodes of an unnamed object could be deleted before they are created.
    """
    return await protocol


@stable_pickle_name
def async_object(kind: type[Self], twin: Any) -> Self:
    """Return the asyncio object around ``twin``, in the process that unpickles it."""
    made = kind.__new__(kind)
    made._sync = twin
    return made


def done_at_end(release: ReleaseT) -> ReleaseT:
    """Let a ``release`` do nothing more if the end of the process has released the object."""

    @wraps(release)
    def release_unless_ended(self: AsyncObject) -> None:
        try:
            release(self)
        except ClientClosedError as error:
            if not self._sync._was_released_at_end(error):
                raise

    return cast(ReleaseT, release_unless_ended)


class AsyncOwnable(AsyncObject):
    """Base of objects that can be held, and so be lost."""

    @property
    def held(self) -> bool:
        """Whether this process provably holds the object now.

        Note:
            Costs no request, because the lease clock gives the answer. It is available even if no
            server can be reached.
        """
        return bool(self._sync.held)

    @property
    def fencing_token(self) -> FencingToken:
        """The fencing token of the current grant, a number that increases with each grant.

        Raises:
            NotHeldError: This process does not hold the object.

        Note:
            Costs no request.
        """
        token: FencingToken = self._sync.fencing_token
        return token

    def _surely(self, grant: Grant | None) -> bool:
        """Return whether ``grant`` is None or held, as far as is known without a request."""
        return grant is None or (not grant.loss.fired and self.client.is_proven(grant.entry.session_id))

    def _lost(self, grant: Grant | None) -> LockLostError:
        return LockLostError(self.path, (grant and grant.loss.reason) or "lease expired")


def shown_waiters(count: int) -> str:
    """Return the part of a repr that gives the number of waiting tasks of this process."""
    return f", waiters:{count}" if count else ""
