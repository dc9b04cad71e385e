"""Event, Condition and Barrier of ``asyncio``.

Rules for this file: no znode; each method runs one protocol, that of the same object for threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync import barriers, conditions, events
from distsync.awaited import AsyncObject
from distsync.awaited_locks import Lock
from distsync.errors import NotHeldError
from distsync.held import repr_state
from distsync.protocols.line import QueueEntry
from distsync.session.whoami import describe

if TYPE_CHECKING:
    from distsync.session.client import Client

#: That of asyncio, which has one since Python 3.11.
BrokenBarrierError: type[RuntimeError] = getattr(asyncio, "BrokenBarrierError", threading.BrokenBarrierError)


class Event(AsyncObject):
    """A flag that one sets and many wait for.

    Cost: wait: 1 request, and 1 for each change; set: 1; clear: 2; is_set: none while nothing changes.
    Source: recipes.txt, Barriers; ``asyncio.Event``.

    Znodes: ``<namespace>/event/<name>``, data: ``1`` or ``0``.

    >>> async def main():
    ...     ready = Event(name="ready")
    ...     ready.set()
    ...     print(await ready.wait())
    >>> asyncio.run(main())
    True
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = events.Event

    def __init__(self, *, name: str | None = None, client: Client | None = None, path: str | None = None) -> None:
        self._init_sync(name=name, client=client, path=path)

    def is_set(self) -> bool:
        """Whether the flag is set: what this process has just told, else what a watch has kept.

        Cost: 1 request, 2 when nobody has set it yet, and 1 watch, for which the loop waits; then none until it
            changes.
        """
        meant = tuple(self._sync._core.meant)
        return meant[-1] if meant else bool(self._sync.is_set())

    def set(self) -> None:
        """The flag is set soon, and all who wait go on; the loop does not wait for that.

        Cost: 1 request; 1 event to each who waits.
        """
        self._run_in_background(self._sync._core.set_in_background(True))

    def clear(self) -> None:
        """The flag is not set, soon. Cost: 2 requests, and the loop does not wait for them."""
        self._run_in_background(self._sync._core.set_in_background(False))

    async def wait(self) -> Literal[True]:
        """The flag is set, or was since the call began.

        Returns: True.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request, 1 watch; 1 request more for each change.
        Source: recipes.txt, Barriers.
        """
        await self._ready()
        await self._await(self._sync._core.wait_for_told())
        return True

    def __repr__(self) -> str:
        return self._repr_state(
            {True: "set", False: "unset"}.get(repr_state(self._sync, lambda: self._sync._core.is_set()), "??")
        )


class Condition(AsyncObject):
    """Tasks of any processes wait under a lock until one of them says that something has changed.

    ``lock`` is a Lock of ``distsync.asyncio``; by default one that belongs to the condition.
    On loss: of the session while waiting: ``wait`` returns True, since a notify may have been missed; look again.
    Cost: wait 6 requests, and what the lock costs; notify 3 requests for any number of waiters.
    Fair: the one that waits longest is notified first.
    Source: ``asyncio.Condition``; recipes.txt, Queues, for the line of waiters.

    Znodes: ``<namespace>/condition/<name>/waiters/_c_<guid>-lock-<sequence>``, ephemeral, who waits; ``.../lock``.

    >>> async def main():
    ...     changed = Condition(name="changed")
    ...     async with changed:
    ...         changed.notify_all()
    >>> asyncio.run(main())
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = conditions.Condition
    _lock_made: Lock | None = None

    def __init__(
        self,
        lock: Lock | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self._init_sync(None if lock is None else lock._sync, name=name, client=client, path=path)
        self._lock_made = lock

    @property
    def _lock(self) -> Lock:
        if self._lock_made is None:
            twin = self._sync
            if twin._explicit_lock is None:
                twin._core  # noqa: B018  what is below our znode goes with it
                self._lock_made = Lock(client=twin._explicit_client, path=f"{twin.path}/lock")
            else:
                self._lock_made = Lock.__new__(Lock)
                self._lock_made._sync = twin._explicit_lock
        return self._lock_made

    async def acquire(self) -> Literal[True]:
        """The lock is held, as by its own ``acquire``."""
        await self._ready()
        return await self._lock.acquire()

    def release(self) -> None:
        """The lock goes to the next one, as by its own ``release``."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether anybody holds the lock, as its own ``locked``."""
        return self._lock.locked()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lock.__aexit__(kind, error, trace)

    def _check_owned(self, doing: str) -> None:
        if not self._lock._sync._is_used or self._lock._core.grant is None:
            raise NotHeldError(f"cannot {doing} on un-acquired lock")

    async def wait(self) -> Literal[True]:
        """Somebody has notified us, and the lock, released meanwhile, is held again.

        Returns: True.
        Raises: RuntimeError if the lock is not held; LockLostError if it had been lost.
        On loss: of the session while waiting: True, since a notify may have been missed.
        On cancel: no znode is left; the lock is held again; a notify that had come goes to another waiter.
        Cost: 6 requests, 1 watch, and those of the lock; 3 more at half of each session time-out.
        Fair: the one that waits longest is notified first.
        Source: ``asyncio.Condition``.
        """
        self._check_owned("wait")
        core, lock = self._sync._core, self._lock
        places: list[QueueEntry] = []
        try:
            await self._await(core.enlist(describe(), places))
            try:
                await lock._leave(linger=False)  # who waits for a notify wants others to have it
            except asyncio.CancelledError:
                await _whatever_cancels(lock.acquire)
                raise
            try:
                await self._await(core.wait(places[0]))
            finally:
                await _whatever_cancels(lock.acquire)
            await self._await(core.confirm(places[0]))
            return True
        except BaseException:
            for place in places:
                self.client.background(core.abandon_wait(place))
            raise

    async def wait_for(self, predicate: Callable[[], Any]) -> Any:
        """``predicate()`` is true; the lock is held.

        Returns: what ``predicate`` returned last.
        Raises, On loss, On cancel, Cost, Fair, Source: as wait.
        """
        result = predicate()
        while not result:
            await self.wait()
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """The first ``n`` who wait are woken soon, fewer if fewer wait; the loop does not wait for that.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests; 1 event to each who is woken.
        Fair: the one that waits longest is notified first.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._core.notify(n))

    def notify_all(self) -> None:
        """All who wait are woken soon.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests for each 1,000 waiters.
        """
        self._check_owned("notify")
        self._run_in_background(self._sync._core.notify(None))

    def __repr__(self) -> str:
        used = self._lock._sync._is_used
        return self._repr_state("locked" if used and self._lock._core.grant is not None else "unlocked")


async def _whatever_cancels(acquire: Callable[[], Any]) -> None:
    """Acquired, and only then cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await acquire()
            break
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class Barrier(AsyncObject):
    """A place where ``parties`` tasks, of any processes, wait for each other; again and again.

    On loss: of the session while waiting: the barrier breaks, for it and for the others.
    On cancel: who is cancelled leaves as if he had not come, as with ``asyncio``; where there is no connection for a
        second to say so, the barrier breaks. Who dies breaks it, and so does an interrupted thread.
    Cost: before the wait 3 requests, 1 round trip, 1 watch; the last one to arrive sends 1 more.
    Source: recipes.txt, Double Barriers; ``asyncio.Barrier``, here on every Python.

    Znodes: as ``distsync.threading.Barrier``.

    >>> async def main():
    ...     print(await Barrier(1, name="start").wait())
    >>> asyncio.run(main())
    0
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = barriers.Barrier

    def __init__(
        self, parties: int, *, name: str | None = None, client: Client | None = None, path: str | None = None
    ) -> None:
        if parties < 1:
            raise ValueError("parties must be > 0")
        self._init_sync(parties, name=name, client=client, path=path)

    async def wait(self) -> int:
        """All parties have arrived.

        Returns: 0 to parties - 1, another number for each.
        Raises: BrokenBarrierError (asyncio's) if the barrier is or becomes broken, or is reset.
        On loss: BrokenBarrierError, for all.
        On cancel: the others wait on for another one; no znode is left.
        Cost: as ``distsync.threading.Barrier.wait``. Who leaves sends 4, and those who wait look again.
        Source: recipes.txt, Double Barriers, Enter.
        """
        await self._ready()
        try:
            return int(await self._await(self._sync._core.wait(describe(), on_cancel_leave=True)))
        except threading.BrokenBarrierError as error:
            if BrokenBarrierError is threading.BrokenBarrierError:
                raise
            raise BrokenBarrierError(*(error.args or ("Barrier aborted",))) from None

    async def reset(self) -> None:
        """The barrier is empty and whole; who waits gets BrokenBarrierError.

        Cost: 3 requests, 2 round trips; 3 more in the background.
        """
        await self._ready()
        await self._await(self._sync._core.reset())

    async def abort(self) -> None:
        """The barrier is broken; who waits, and who comes, gets BrokenBarrierError.

        Cost: 2 requests.
        """
        await self._ready()
        await self._await(self._sync._core.abort())

    @property
    def parties(self) -> int:
        """How many it takes."""
        return int(self._sync.parties)

    @property
    def n_waiting(self) -> int:
        """How many wait now. Cost: 2 requests, 1 round trip, for which the loop waits."""
        return int(self._run_blocking(self._sync._core.state())[0])

    @property
    def broken(self) -> bool:
        """Whether it is broken. Cost: 2 requests, 1 round trip, for which the loop waits."""
        return bool(self._run_blocking(self._sync._core.state())[1])

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __repr__(self) -> str:
        state = repr_state(self._sync, lambda: self._sync._core.state())
        if state[1] is True:
            return self._repr_state("broken")
        return self._repr_state(f"filling, waiters:{state[0]}/{self.parties}")
