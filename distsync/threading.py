"""The face of ``threading``: the same names, signatures, results and exceptions, across processes and hosts.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol. What is not
replaced here (Thread, Timer, local, ...) is the stdlib's own.
"""

from __future__ import annotations

import threading as _stdlib
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync.errors import BrokenBarrierError as BrokenBarrierError
from distsync.errors import DistsyncError, LockLostError, MismatchError, NotHeldError
from distsync.guarded import GuardedTransaction
from distsync.named import TIMEOUT_MAX as TIMEOUT_MAX
from distsync.named import FencingToken, Named, checked_timeout, contenders_of, leave_block, me
from distsync.protocols import line
from distsync.protocols.barrier import BarrierCore
from distsync.protocols.condition import ConditionCore
from distsync.protocols.event import EventCore
from distsync.protocols.guard import remove
from distsync.protocols.lock import Grant, LockCore
from distsync.protocols.semaphore import SemaphoreCore
from distsync.protocols.signal import SignalCore
from distsync.session.clock import wait_clock
from distsync.session.whoami import Contender, describe

if TYPE_CHECKING:
    from distsync.session.client import Client

_REPLACED = ["Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "BrokenBarrierError"]
__all__ = [*dict.fromkeys([*_stdlib.__all__, *_REPLACED])]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Whatever else ``threading`` has."""
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module 'distsync.threading' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_stdlib)})


def _checked(blocking: bool, timeout: Any) -> float | None:
    """The time-out of ``acquire`` in seconds, None for none; as the C code of ``threading`` checks it."""
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    return checked_timeout(timeout) if blocking else 0.0


class _Held(Named):
    """What can be held, and so be lost."""

    def __init__(
        self,
        name: str | None,
        client: Client | None,
        path: str | None,
        on_lost: Callable[[LockLostError], Any] | None = None,
    ) -> None:
        super().__init__(name, client, path)
        self._on_lost = on_lost
        self._told: Grant | None = None

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
            self._tell_loss()

    @property
    def _is_used(self) -> bool:
        """Whether there can be anything to look at; nothing is started to find out."""
        return self.client.state not in ("connecting", "closed")

    def _grant(self) -> Grant | None:
        """The latest grant of this process."""
        raise NotImplementedError

    def _tell_loss(self) -> None:
        """``on_lost`` is called if what was just acquired is lost."""
        grant = self._grant()
        if self._on_lost is not None and grant is not None and grant is not self._told:
            self._told = grant
            self.client.on_loss(grant.loss, partial(self._lost, grant))

    def _lost(self, grant: Grant) -> None:
        if self._on_lost is not None:
            self._on_lost(LockLostError(self.path, grant.loss.reason))

    @property
    def held(self) -> bool:
        """True while this process provably holds it: the session lives, and nobody deleted the znode.

        Cost: no request; the answer comes from the lease clock, also when no server can be reached.
        """
        grant = self._grant() if self._is_used else None
        return grant is not None and not grant.loss.fired and self.client.proven(grant.place.session_id)

    @property
    def fencing_token(self) -> FencingToken:
        """The number of this holding; it grows from process to process, and never decreases.

        Raises: NotHeldError when this process does not hold it.
        Cost: no request.
        """
        return FencingToken(self._held_grant().token)

    def _held_grant(self) -> Grant:
        grant = self._grant()
        if grant is None:
            raise NotHeldError(f"{self.path} is not held by this process")
        return grant

    def transaction(self) -> GuardedTransaction:
        """A transaction that the ensemble refuses when this is not held any more.

        Raises: NotHeldError when this process does not hold it; see GuardedTransaction for its end.
        Cost: 1 request at its commit.
        """
        return GuardedTransaction(self.client, self._receipts, self._held_grant().place.path)

    def _line(self) -> list[Contender]:
        return contenders_of(self._run(line.contenders(self._folder())))

    def _folder(self) -> str:
        """Where the line is."""
        return self.path

    def holders(self) -> list[Contender]:
        """Who holds it now, in any process: host, pid, thread, since when, place in the code, token.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return self._line()[: self._capacity()]

    def waiters(self) -> list[Contender]:
        """Who waits for it now, first in line first. A process whose threads wait for each other shows once.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return self._line()[self._capacity() :]

    def _capacity(self) -> int:
        return 1


class _LockBase(_Held):
    """What Lock and RLock share."""

    _kind = "lock"

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, on_lost)

    @property
    def _core(self) -> LockCore:
        return self._local(LockCore)

    def _grant(self) -> Grant | None:
        return self._core.grant

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        acquired: bool = self._run(self._core.acquire(me(), describe(), blocking), timeout)
        if acquired:
            self._tell_loss()
        return acquired

    def _release(self) -> None:
        core = self._core
        grant, owner = core.grant, core.owner
        try:
            self._run(core.release(me()), self.client.settings.session_timeout)
        except DistsyncError:
            raise
        except BaseException:
            self.client.background(core.drop(grant, owner))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self._release_once, error)

    def _release_once(self) -> None:
        self._release()

    def _shown(self) -> tuple[str, int]:
        """What a repr says of this process. No request; a client that was not used yet stays so."""
        if not self._is_used:
            return "unlocked", 0
        return ("unlocked" if self._core.grant is None else "locked"), self._core.depth


class Lock(_LockBase):
    """A lock that one thread of one process on one host holds at a time.

    On loss: ``held`` turns False, ``on_lost`` is called, and ``release`` or the end of the ``with`` block raises
        LockLostError. Somebody else may hold the lock then: what it protects must stop.
    Cost: acquire and release alone, 3 requests, 2 round trips; handed over between threads of a process, none.
    Fair: between processes, first come first served; a process hands over between its own threads at most 32 times
        in a row.
    Source: recipes.txt, Locks; ``threading.Lock``.

    Znodes: ``<namespace>/lock/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one a process that holds or waits.

    >>> lock = Lock(name="orders")
    >>> with lock:
    ...     print(lock.held)
    True
    """

    __module__ = "distsync"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """The lock is held.

        Units: seconds; -1: without end.
        Returns: True; False if it was not free and ``blocking`` is False, or not in time.
        Raises: UnreachableError when no server can be reached at all; ValueError, OverflowError for time-outs that
            the stdlib refuses.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: 2 requests, 1 round trip, if free; with ``blocking=False`` 1 if it is not free, else 3.
        Fair: first come, first served between processes.
        Source: recipes.txt, Locks, steps 1 to 5.
        """
        return self._acquire(_checked(blocking, timeout), blocking)

    def release(self) -> None:
        """The lock goes to the next one. Any thread of the process may call this.

        Raises: NotHeldError (a RuntimeError) if this process does not hold it; LockLostError if it was lost while
            held, and then somebody else may hold it.
        On loss: of the connection: it waits as long as a session lasts at most; the znode goes in the background.
        On cancel: it is let go all the same.
        Cost: 1 request; none if another thread of this process is next.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        self._release()

    def locked(self) -> bool:
        """Whether anybody holds it.

        Cost: none if this process does, else 1 request.
        """
        return self.held or bool(self._run(self._core.locked()))

    def __enter__(self) -> bool:
        return self.acquire()

    def __repr__(self) -> str:
        state, _ = self._shown()
        return f"<{state} distsync.Lock object name={self.name!r} at {id(self):#x}>"


class RLock(_LockBase):
    """A lock that the thread which holds it may acquire again.

    On loss: as Lock; each release that is still due then raises, the first one LockLostError.
    Cost: the first acquire and the last release as Lock; between them none.
    Fair: as Lock.
    Source: recipes.txt, Locks; ``threading.RLock``.

    Znodes: as Lock, in the same folder: a Lock and an RLock of one name are the same lock.

    >>> lock = RLock(name="orders")
    >>> with lock, lock:
    ...     print(lock.held)
    True
    """

    __module__ = "distsync"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """The lock is held, once more if this thread held it already.

        Units: seconds; -1: without end.
        Returns: True; False if it was not free and ``blocking`` is False, or not in time.
        Raises: as Lock.acquire.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: 2 requests, 1 round trip, if free; none if this thread holds it.
        Fair: first come, first served between processes.
        Source: recipes.txt, Locks, steps 1 to 5.
        """
        seconds = _checked(blocking, timeout)
        core = self._core
        if self._is_owned():
            core.depth += 1
            return True
        return self._acquire(seconds, blocking)

    def release(self) -> None:
        """Held once less; after the last release the lock goes to the next one.

        Raises: NotHeldError (a RuntimeError) if this thread does not hold it; LockLostError if it was lost.
        Cost: none, but for the last: 1 request.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        core = self._core
        if self._is_owned() and core.depth > 1:
            core.depth -= 1
            return
        self._release_all()

    def _release_once(self) -> None:
        self.release()

    def _release_all(self) -> None:
        core = self._core
        if not self._is_owned() and not core.has_lost(me()):
            raise NotHeldError("cannot release un-acquired lock")
        self._release()

    def _is_owned(self) -> bool:
        core = self._core
        return core.owner is me() and core.grant is not None and not core.grant.loss.fired

    def _recursion_count(self) -> int:
        return self._core.depth if self._is_owned() else 0

    def _release_save(self) -> int:
        depth = self._core.depth
        self._release_all()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self._acquire(None, True)
        self._core.depth = depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __repr__(self) -> str:
        state, depth = self._shown()
        return f"<{state} distsync.RLock object name={self.name!r} count={depth} at {id(self):#x}>"


class Semaphore(_Held):
    """A number of permits. A permit whose holder's process dies comes back.

    ``Semaphore(0)`` is a signal: a permit taken is used up for good, whoever dies.
    On loss: ``held`` turns False, ``on_lost`` is called, ``release`` raises LockLostError: the permit came back.
    Cost: acquire and release, 4 requests, 2 round trips.
    Fair: first come, first served.
    Source: recipes.txt, Locks, with a limit; ``threading.Semaphore``.

    Znodes: ``<namespace>/semaphore/<name>``, data: the permits, ``.../_c_<guid>-lock-<sequence>``, ephemeral, a lease.

    >>> slots = Semaphore(3, name="slots")
    >>> with slots:
    ...     print(slots.held)
    True
    """

    __module__ = "distsync"
    _kind = "semaphore"

    def __init__(
        self,
        value: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
    ) -> None:
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._initial = value
        super().__init__(name, client, path, on_lost)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    @property
    def _bound(self) -> int | None:
        """More than so many permits are never free."""
        return None

    @property
    def _core(self) -> SemaphoreCore | SignalCore:
        core: SemaphoreCore | SignalCore = self._local(self._make_core)
        if core.initial != self._initial:
            raise MismatchError("the initial value", self.path, core.initial, self._initial)
        return core

    def _make_core(self, path: str) -> SemaphoreCore | SignalCore:
        if self._initial == 0:
            return SignalCore(path, self._receipts)
        return SemaphoreCore(path, self._initial, self._receipts)

    def _grant(self) -> Grant | None:
        core = self._core
        return core.grants[-1] if isinstance(core, SemaphoreCore) and core.grants else None

    def _capacity(self) -> int:
        core = self._core
        return self._run(core.capacity()) if isinstance(core, SemaphoreCore) else 0

    def _folder(self) -> str:
        core = self._core
        return core.takers if isinstance(core, SignalCore) else self.path

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """A permit is taken.

        Units: seconds; None: without end.
        Returns: True; False if none was free and ``blocking`` is False, or not in time.
        Raises: ValueError for a time-out that does not block; MismatchError when others made it with another value.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left, no permit is taken.
        Cost: 3 requests, 1 round trip, if one is free.
        Fair: first come, first served.
        Source: recipes.txt, Locks.
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        seconds = 0.0 if not blocking else None if timeout is None else max(0.0, float(timeout))
        acquired = self._run(self._core.acquire(describe(), blocking, me()), seconds)
        if acquired:
            self._tell_loss()
        return bool(acquired)

    def release(self, n: int = 1) -> None:
        """``n`` permits are free again: first those that this thread acquired, then those of this process, then new.

        Raises: ValueError for ``n`` below 1; LockLostError if a permit had been lost while held.
        Cost: 1 request for a permit held; 3 for new ones.
        Source: ``threading.Semaphore``.
        """
        if n < 1:
            raise ValueError("n must be one or more")
        core, begun = self._core, [False]
        try:
            mine = isinstance(core, SemaphoreCore) and len(core.grants) >= n
            self._run(core.release(n, self._bound, begun, me()), self.client.settings.session_timeout if mine else None)
        except DistsyncError:
            raise
        except BaseException:
            if not begun[0]:
                self.client.background(core.release(n, self._bound, owner=me()))
            raise

    def get_value(self) -> int:
        """How many permits are free now.

        Cost: 2 requests, 1 round trip.
        """
        return int(self._run(self._core.value()))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self.release, error)

    def __repr__(self) -> str:
        bound = "" if self._bound is None else f"/{self._bound}"
        value = f"{_shown(self, lambda: self._core.value())}{bound}"
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: value={value}>"


class BoundedSemaphore(Semaphore):
    """A semaphore that is never released more often than acquired.

    On loss, Cost, Fair, Znodes: as Semaphore.
    Source: recipes.txt, Locks, with a limit; ``threading.BoundedSemaphore``.

    >>> slots = BoundedSemaphore(2, name="bounded slots")
    >>> slots.acquire()
    True
    >>> slots.release()
    """

    __module__ = "distsync"

    @property
    def _bound(self) -> int | None:
        return self._initial


class Event(Named):
    """A flag that one sets and many wait for.

    Cost: wait: 1 request, and 1 for each change; set: 1; clear: 2.
    Source: recipes.txt, Barriers; ``threading.Event``.

    Znodes: ``<namespace>/event/<name>``, data: ``1`` or ``0``.

    >>> ready = Event(name="ready")
    >>> ready.set()
    >>> ready.wait(timeout=10)
    True
    """

    __module__ = "distsync"
    _kind = "event"

    def __init__(self, *, name: str | None = None, client: Client | None = None, path: str | None = None) -> None:
        super().__init__(name, client, path)

    @property
    def _core(self) -> EventCore:
        return self._local(partial(EventCore, receipts=self._receipts))

    def is_set(self) -> bool:
        """Whether the flag is set.

        Cost: 1 request.
        """
        return bool(self._run(self._core.is_set()))

    isSet = is_set

    def set(self) -> None:
        """The flag is set, and all who wait go on, also if it is cleared right after.

        Raises: OutcomeUnknownError when the session ended in this moment and nobody can know.
        Cost: 1 request; 1 event to each who waits.
        """
        self._run(self._core.set())

    def clear(self) -> None:
        """The flag is not set.

        Raises: as set.
        Cost: 2 requests; 1 if it was not set.
        """
        self._run(self._core.clear())

    def wait(self, timeout: float | None = None) -> bool:
        """The flag is set, or was since the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request, 1 watch; 1 request more for each change.
        Source: recipes.txt, Barriers.
        """
        return bool(self._run(self._core.wait(), timeout))

    def __repr__(self) -> str:
        state = {True: "set", False: "unset"}.get(_shown(self, lambda: self._core.is_set()), "unknown")
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {state}>"


class Barrier(Named):
    """A place where ``parties`` threads, of any processes, wait for each other; again and again.

    On loss: of the session while waiting: the barrier breaks, for it and for the others.
    On cancel: the barrier breaks.
    Cost: before the wait 3 requests, 1 round trip, 1 watch; the last one to arrive sends 1 more.
    Source: recipes.txt, Double Barriers; ``threading.Barrier``.

    Znodes: ``<namespace>/barrier/<name>``, data: the turn, ``.../_c_<guid>-lock-<sequence>``, ephemeral, who waits.

    >>> start = Barrier(1, name="start")
    >>> start.wait()
    0
    """

    __module__ = "distsync"
    _kind = "barrier"

    def __init__(
        self,
        parties: int,
        action: Callable[[], Any] | None = None,
        timeout: float | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        if parties < 1:
            raise ValueError("parties must be >= 1")
        self._parties = parties
        self._action = action
        self._timeout = timeout
        super().__init__(name, client, path)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._parties, self._action, self._timeout)

    @property
    def _core(self) -> BarrierCore:
        core = self._local(partial(BarrierCore, parties=self._parties, receipts=self._receipts))
        if core.parties != self._parties:
            raise MismatchError("the number of parties", self.path, core.parties, self._parties)
        return core

    def wait(self, timeout: float | None = None) -> int:
        """All parties have arrived.

        Units: seconds; None: the barrier's own time-out, and if it has none, without end.
        Returns: 0 to parties - 1, another number for each.
        Raises: BrokenBarrierError if the barrier is or becomes broken, or is reset; a time-out breaks it for all.
        On loss: BrokenBarrierError, for all.
        On cancel: the barrier is broken, no znode is left.
        Cost: 3 requests, 1 round trip, 1 watch; the last one to arrive sends 1 more.
        Source: recipes.txt, Double Barriers, Enter.
        """
        seconds = self._timeout if timeout is None else timeout
        return int(self._run(self._core.wait(describe(), self._action), seconds))

    def reset(self) -> None:
        """The barrier is empty and whole; who waits gets BrokenBarrierError.

        Cost: 3 requests.
        """
        self._run(self._core.reset())

    def abort(self) -> None:
        """The barrier is broken; who waits, and who comes, gets BrokenBarrierError.

        Cost: 2 requests.
        """
        self._run(self._core.abort())

    @property
    def parties(self) -> int:
        """How many it takes."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """How many wait now. Cost: 2 requests, 1 round trip."""
        return int(self._run(self._core.state())[0])

    @property
    def broken(self) -> bool:
        """Whether it is broken. Cost: 2 requests, 1 round trip."""
        return bool(self._run(self._core.state())[1])

    def __repr__(self) -> str:
        state = _shown(self, lambda: self._core.state())
        waiting = "broken" if state[1] is True else f"waiters={state[0]}/{self._parties}"
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {waiting}>"


def _shown(obj: Named, protocol: Callable[[], Any]) -> Any:
    """What a repr shows of the state: asked if there is a connection, and never for long."""
    client = obj.client
    if client.state != "connected":
        return "??"
    try:
        return client.run(protocol(), 1.0)
    except (DistsyncError, RuntimeError):
        return "??"


class Condition(Named):
    """Threads of any processes wait under a lock until one of them says that something has changed.

    ``lock`` is a Lock or RLock of distsync; by default an RLock that belongs to the condition. With a lock of the
    stdlib only the threads of one process exclude each other.
    On loss: of the session while waiting: ``wait`` returns True, since a notify may have been missed; look again.
    Cost: wait 5 requests, and what the lock costs; notify 3 requests for any number of waiters.
    Fair: the one that waits longest is notified first.
    Source: ``threading.Condition``; recipes.txt, Queues, for the line of waiters.

    Znodes: ``<namespace>/condition/<name>/waiters/_c_<guid>-lock-<sequence>``, ephemeral, who waits; ``.../lock``.

    >>> changed = Condition(name="changed")
    >>> with changed:
    ...     changed.notify_all()
    """

    __module__ = "distsync"
    _kind = "condition"

    def __init__(
        self, lock: Any = None, *, name: str | None = None, client: Client | None = None, path: str | None = None
    ) -> None:
        super().__init__(name, client, path)
        self._given_lock = lock

    def _arguments(self) -> tuple[Any, ...]:
        return (self._given_lock,)

    @property
    def _lock(self) -> Any:
        if self._given_lock is None:
            self._core  # noqa: B018  what is below our znode goes with it
            self._given_lock = RLock(client=self._given_client, path=f"{self.path}/lock")
        return self._given_lock

    @property
    def _core(self) -> ConditionCore:
        return self._local(partial(ConditionCore, receipts=self._receipts))

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """The lock is held; arguments and result are those of the lock's own ``acquire``."""
        return bool(self._lock.acquire(*args, **kwargs))

    def release(self) -> None:
        """The lock goes to the next one, as by its own ``release``."""
        self._lock.release()

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *details: Any) -> Any:
        return self._lock.__exit__(*details)

    def _is_owned(self) -> bool:
        lock = self._lock
        if hasattr(lock, "_is_owned"):
            return bool(lock._is_owned())
        if isinstance(lock, Lock):
            return lock._core.grant is not None
        if lock.acquire(False):
            lock.release()
            return False
        return True

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
        """Somebody has notified us, and the lock, released meanwhile, is held again.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        Raises: RuntimeError if the lock is not held; LockLostError if it had been lost.
        On loss: of the session while waiting: True, since a notify may have been missed.
        On cancel: no znode is left; the lock is held again; a notify that had come goes to another waiter.
        Cost: 5 requests, 1 watch, and those of the lock.
        Fair: the one that waits longest is notified first.
        Source: ``threading.Condition``.
        """
        if not self._is_owned():
            raise NotHeldError("cannot wait on un-acquired lock")
        core = self._core
        place = self._run(core.enlist(describe()))
        try:
            saved = self._release_save()
        except BaseException:
            self.client.background(remove(place.path, place.session_id))
            raise
        notified = False
        try:
            notified = bool(self._run(core.wait(place), timeout))
            return notified
        finally:
            try:
                self._acquire_restore(saved)
            except BaseException:
                self.client.background(remove(place.path, place.session_id))
                raise
            if notified:
                self._run(core.confirm(place))

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """``predicate()`` is true, or the time is over; the lock is held.

        Units: seconds; None: without end.
        Returns: what ``predicate`` returned last.
        Raises, On loss, On cancel, Cost, Fair, Source: as wait.
        """
        deadline = None if timeout is None else wait_clock() + timeout
        result = predicate()
        while not result:
            remaining = None if deadline is None else deadline - wait_clock()
            if remaining is not None and remaining <= 0:
                break
            self.wait(remaining)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        """The first ``n`` who wait are woken, fewer if fewer wait.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests; 1 event to each who is woken.
        Fair: the one that waits longest is notified first.
        """
        if not self._is_owned():
            raise NotHeldError("cannot notify on un-acquired lock")
        self._run(self._core.notify(n))

    def notify_all(self) -> None:
        """All who wait are woken.

        Raises: RuntimeError if the lock is not held.
        Cost: 3 requests for each 1,000 waiters.
        """
        if not self._is_owned():
            raise NotHeldError("cannot notify on un-acquired lock")
        self._run(self._core.notify(None))

    notifyAll = notify_all

    def __repr__(self) -> str:
        return f"<distsync.Condition({self._lock!r}) name={self.name!r} at {id(self):#x}>"
