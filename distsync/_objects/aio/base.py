"""What the faces of ``asyncio`` share: each is a second face of an object of ``threading``'s or ``queue``'s.

Rules for this file: no znode and no clock. What is to be awaited is awaited on the running loop (``_await``). What
``asyncio`` calls without ``await``, and what has nothing to find out, is begun at once and ends by itself
(``_run_in_background``). What has to find out something asks, which holds up the loop for a round trip
(``_run_blocking``).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._client import default_client
from distsync._client.driver.task_order import orders
from distsync._objects.base import FencingToken, SharedObject
from distsync._pickle import at_home
from distsync._protocols.locks.lock import Grant
from distsync.errors import LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

Self = TypeVar("Self", bound="AsyncObject")

_owners: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()


def mine() -> object:
    """The running task, as the owner of what it holds."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        task = None
    return object() if task is None else _owners.setdefault(task, object())


def raise_or_note(lost: LockLostError | NotHeldError, error: BaseException | None) -> None:
    """End an ``async with``: raise ``lost``, or add it as a note to ``error``, which the body raised."""
    if error is None:
        raise lost
    if hasattr(error, "add_note"):
        error.add_note(f"distsync: {lost}")


class AsyncObject:
    """An object that everyone who knows its name shares, for the tasks of a loop."""

    #: The class of the same object for threads.
    _kind: ClassVar[Any]
    _sync: Any

    def _init_sync(self, *args: Any, **options: Any) -> None:
        """The other face is made, and named after the place where this one is."""
        twin = self._kind.__new__(self._kind)
        twin._face = self
        twin.__init__(*args, **options)
        twin._face = None
        self._sync = twin

    @property
    def name(self) -> str:
        """The name that others find this object by."""
        return str(self._sync.name)

    @property
    def client(self) -> Client:
        """The client that this object uses: the one it was given, else the default one."""
        client: Client = self._sync.client
        return client

    @property
    def path(self) -> str:
        """The znode of this object."""
        return str(self._sync.path)

    @property
    def twin(self) -> Any:
        """The same object for threads: with the face of ``distsync.threading`` or ``distsync.queue``."""
        return self._sync

    async def _ready(self) -> None:
        """The client was started, with all that has to be imported for it, and the loop went on meanwhile; who came
        first goes on first."""
        starting = orders().starting
        await starting.enter()
        try:
            twin: SharedObject = self._sync
            client = twin._explicit_client or default_client.current.client
            if client is None or not client.is_started:
                await asyncio.to_thread(lambda: twin.client.start())
        finally:
            starting.leave()

    async def _await(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        return await self.client.run_async(protocol, timeout, self._sync)

    def _run_in_background(self, protocol: Coroutine[Any, Any, Any]) -> None:
        try:
            self.client.tell(_meanwhile(self._sync, protocol))
        except BaseException:
            protocol.close()
            raise

    def _run_blocking(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        client = self.client
        return client.run(protocol, client.settings.session_timeout if timeout is None else timeout, self._sync)

    def __reduce__(self) -> tuple[Any, ...]:
        return async_object, (type(self), self._sync)

    def _repr_state(self, extra: str) -> str:
        """As ``asyncio`` shows its objects."""
        return f"<{object.__repr__(self)[1:-1]} [{extra}]>"


async def _meanwhile(used: Any, protocol: Coroutine[Any, Any, Any]) -> Any:
    """The object is ``used`` as long as this goes on: were it nobody's before, its znodes would go before they come."""
    return await protocol


@at_home
def async_object(kind: type[Self], twin: Any) -> Self:
    """Return the asyncio face of ``twin``, in the process where its pickle arrived."""
    made = kind.__new__(kind)
    made._sync = twin
    return made


class AsyncOwnable(AsyncObject):
    """What can be held, and so be lost."""

    @property
    def held(self) -> bool:
        """True while this process provably holds it. Cost: no request."""
        return bool(self._sync.held)

    @property
    def fencing_token(self) -> FencingToken:
        """The number of this holding; it grows from process to process.

        Raises: NotHeldError when this process does not hold it.
        Cost: no request.
        """
        token: FencingToken = self._sync.fencing_token
        return token

    def _surely(self, grant: Grant | None) -> bool:
        """Whether this, if it is anything, is held, as far as can be known without asking."""
        return grant is None or (not grant.loss.fired and self.client.is_proven(grant.place.session_id))

    def _lost(self, grant: Grant | None) -> LockLostError:
        return LockLostError(self.path, (grant and grant.loss.reason) or "lease ran out")


def shown_waiters(count: int) -> str:
    """What a repr says of those of this process who wait."""
    return f", waiters:{count}" if count else ""
