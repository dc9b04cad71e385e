"""Lock and RLock.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._client.contender_info import Contender, describe
from distsync._objects.base import current_owner, exit_context, parse_contenders, type_name
from distsync._objects.lock_fast_path import CachedLockFastPath
from distsync._objects.revocation import Revocable
from distsync._objects.validation import validate_layout, validate_timeout
from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import ANSWER_S, holders_and_waiters
from distsync._protocols.locks.lock import Grant, LockCore, LockSnapshot
from distsync.errors import ConfigurationError, DistsyncError, LockLostError, MismatchError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client


LockCoreT = TypeVar("LockCoreT", bound=LockCore)


def validate_linger(linger: Any) -> float:
    """Seconds for which a lock is kept. Raises ConfigurationError, as for the setting of the client."""
    from distsync._client.settings import linger_seconds  # not before somebody says how long

    try:
        return linger_seconds(linger)
    except ValueError as error:
        raise ConfigurationError("linger", linger, str(error)) from None


class LockBase(Revocable):
    """What Lock and RLock share."""

    _kind = "lock"
    #: Whether only the thread that holds it can release it.
    _is_owners: ClassVar[bool] = False
    #: What each layout has in the names of contenders.
    _marks: ClassVar[dict[str, str]] = {"curator": wait_queue.LOCK, "kazoo": wait_queue.KAZOO_LOCK}

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
        layout: str = "curator",
        linger: float | None = None,
    ) -> None:
        super().__init__(name, client, path, on_lost, on_revoke, acl)
        self._layout = validate_layout(layout, tuple(self._marks))
        self._explicit_linger = None if linger is None else validate_linger(linger)
        self._quick: CachedLockFastPath | None = None

    def _options(self) -> dict[str, Any]:
        linger = {} if self._explicit_linger is None else {"linger": self._explicit_linger}
        return linger if self._layout == "curator" else {**linger, "layout": self._layout}

    @property
    def linger(self) -> float:
        """For how many seconds, at least, a lock that nobody else wants stays this process's after its release.

        0: it does not. That of the client (``connect(linger=...)``, DISTSYNC_LINGER), unless the object was given one.
        """
        return self.client.settings.linger if self._explicit_linger is None else self._explicit_linger

    @property
    def _core(self) -> LockCore:
        return self._core_of(LockCore)

    def _core_of(self, kind: Callable[..., LockCoreT]) -> LockCoreT:
        mark = self._marks[self._layout]
        core = self._shared_state(partial(kind, name_suffix=mark))
        if core.name_suffix != mark:
            raise MismatchError("the layout", self.path, core.name_suffix, mark)
        return core

    def _grant(self) -> Grant | None:
        return self._core.grant

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        core, linger = self._core, self.linger
        brief = timeout is not None and timeout < ANSWER_S
        work = core.acquire(current_owner(), describe(linger), blocking, linger=linger, is_short_wait=brief)
        acquired: bool = self._run(work, timeout)
        if acquired:
            self._register_loss_callback()
            if linger:
                self._enable_fast_path(core)
        return acquired

    def _still_valid(self) -> Callable[[], bool]:
        core = self._core
        grant, taken = core.grant, core.taken
        return lambda: core.grant is grant and core.taken == taken

    def _holding_line(self) -> list[Contender]:
        """A lock that is kept, here or elsewhere, is held by nobody."""
        core = self._core
        if core.grant is not None:
            return self._line()
        return parse_contenders(self._read(holders_and_waiters(self.path)))

    def _enable_fast_path(self, core: LockCore) -> None:
        """From now on what is kept is taken again without a protocol."""
        grant = core.grant
        if grant is not None and grant.cache is not None:
            self._quick = CachedLockFastPath(core, grant, self.client, self._explicit_client is None)

    def _register_loss_callback(self) -> None:
        self._quick = None
        super()._register_loss_callback()

    def _release(self, linger: bool = True) -> None:
        linger = linger and self.linger > 0
        self._run(self._core.release(current_owner(), linger), self.client.settings.session_timeout)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See Lock and RLock."""
        raise NotImplementedError

    def release(self) -> None:
        """See Lock and RLock."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before: list[LockSnapshot] = []
        try:
            quick = self._quick
            if quick is not None and quick.release_to_cache(before, self._is_owners):
                return
            before.append(self._core.holding)
            exit_context(self.release, error)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    # An interrupt may come in any line of acquire and release, those after the protocol included. Each notes first
    # what this thread holds, so that afterwards it holds what the interrupted call should have left.

    def _finish_release(self, before: list[LockSnapshot]) -> None:
        """A release was interrupted: it has happened. May be done twice."""
        core = self._core
        self.client.background(
            core.finish_release(LockSnapshot(*before[0]) if before else core.holding, current_owner())
        )

    def _undo(self, before: list[LockSnapshot]) -> None:
        """An acquire was interrupted: it has not happened. May be done twice."""
        if before:
            self.client.background(self._core.undo_acquire(current_owner(), LockSnapshot(*before[0]), object()))

    def _snapshot(self) -> LockSnapshot:
        """For who may have to undo an acquire that has succeeded."""
        return self._core.holding

    def _restore(self, before: LockSnapshot, temporary_owner: object) -> None:
        """What was acquired since is let go, and a loss of it needs no telling. May be done twice."""
        self.client.background(self._core.undo_acquire(current_owner(), before, temporary_owner))

    def _repr_state(self) -> tuple[str, int]:
        """What a repr says of this process. No request; a client that was not used yet stays so."""
        if not self._is_used:
            return "unlocked", 0
        return ("unlocked" if self._core.grant is None else "locked"), self._core.depth


class LockDelegate:
    """What is held as its lock is, and ends a ``with`` block by it."""

    def _its_lock(self) -> Any:
        """A lock of distsync, or one that was given and has the methods of one."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self._its_lock().__enter__()

    def __exit__(self, *details: Any) -> Any:
        before: list[LockSnapshot] = []
        try:
            lock = self._its_lock()
            if isinstance(lock, LockBase):
                before.append(lock._snapshot())
            return lock.__exit__(*details)
        except DistsyncError:
            raise
        except BaseException:  # perhaps interrupted on the way to the lock
            lock = self._its_lock()
            if isinstance(lock, LockBase):
                lock._finish_release(before)
            raise


class Lock(LockBase):
    """A lock that one thread of one process on one host holds at a time.

    ``on_lost`` and ``on_revoke`` are called when it is lost, and when somebody asks for it (``revoke``). With
    ``layout="kazoo"`` its znodes have the names of kazoo's own Lock, and stand in one line with them.

    What was free when it was acquired stays this process's for ``linger`` seconds after its release, and at most twice
    as long, unless somebody else wants it: then it goes at once. Meanwhile it is not held, and to acquire it again
    costs nothing; it then has the same fencing token, which grows from process to process. Who tries from another
    process without waiting gets it as well; a client of another make does not know how to ask, and finds it taken
    (``linger=0``).
    On loss: ``held`` turns False, ``on_lost`` is called, and ``release`` or the end of the ``with`` block raises
        LockLostError. Somebody else may hold the lock then: what it protects must stop.
    Cost: acquire and release while it is kept, none; else acquire 2 requests, 1 round trip, and apart from any call 1
        to hear of others and 1 at its end. Not kept (``linger=0``, or after a wait): 3 requests, 2 round trips. Handed
        over between threads of a process, none.
    Fair: between processes, first come first served; a process hands over between its own threads at most 32 times
        in a row while others wait. Of these threads one that comes just then may be 32 times before those that wait.
    Source: recipes.txt, Locks; ``threading.Lock``.

    Znodes: ``<namespace>/lock/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one a process that holds or waits.

    >>> lock = Lock(name="orders")
    >>> with lock:
    ...     print(lock.held)
    True
    """

    __module__ = "distsync.threading"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """The lock is held.

        Units: seconds; -1: without end.
        Returns: True; False if it was not free and ``blocking`` is False, or not in time.
        Raises: UnreachableError when no server can be reached at all; ValueError, OverflowError for time-outs that
            the stdlib refuses.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: none while kept; 2 requests, 1 round trip, if free; with ``blocking=False``, or a time-out below 0.5 s, 1
            more, or 2 where one stands there; 6 more to ask a process that may only keep it, once.
        Fair: first come, first served between processes.
        Source: recipes.txt, Locks, steps 1 to 5.
        """
        before: list[LockSnapshot] = []
        try:
            quick = self._quick
            if quick is not None and timeout == -1 and quick.acquire_from_cache(before):
                return True
            seconds = validate_timeout(timeout, "lock", blocking)
            before.append(self._core.holding)
            return self._acquire(seconds, blocking)
        except DistsyncError:
            raise
        except BaseException:
            self._undo(before)
            raise

    __enter__ = acquire

    def release(self) -> None:
        """The lock goes to the next one. Any thread of the process may call this.

        Raises: NotHeldError (a RuntimeError) if this process does not hold it; LockLostError if it was lost while
            held, and then somebody else may hold it.
        On loss: of the connection: it waits as long as a session lasts at most; the znode goes in the background.
        On cancel: it is let go all the same.
        Cost: none if it is kept, or another thread of this process is next; else 1 request.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        before: list[LockSnapshot] = []
        try:
            quick = self._quick
            if quick is not None and quick.release_to_cache(before):
                return
            before.append(self._core.holding)
            self._release()
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def locked(self) -> bool:
        """Whether anybody holds it.

        Cost: none if this process does, or keeps it; else 1 request if nobody stands there, 2 if somebody does, and 6
            more to ask a process that may only keep it, once.
        """
        return self.held or bool(self._read(self._core.locked()))

    def __repr__(self) -> str:
        state, _ = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} at {id(self):#x}>"


class RLock(LockBase):
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

    __module__ = "distsync.threading"
    _is_owners = True

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """The lock is held, once more if this thread held it already.

        Units: seconds; -1: without end.
        Returns: True; False if it was not free and ``blocking`` is False, or not in time.
        Raises: as Lock.acquire.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: as Lock.acquire; none if this thread holds it.
        Fair: first come, first served between processes.
        Source: recipes.txt, Locks, steps 1 to 5.
        """
        before: list[LockSnapshot] = []
        try:
            quick = self._quick
            if quick is not None and timeout == -1 and quick.acquire_from_cache(before):
                return True
            seconds = validate_timeout(timeout, "lock", blocking)
            core = self._core
            before.append(core.holding)
            if self._is_owned():
                core.depth += 1
                return True
            return self._acquire(seconds, blocking)
        except DistsyncError:
            raise
        except BaseException:
            self._undo(before)
            raise

    __enter__ = acquire

    def release(self) -> None:
        """Held once less; after the last release the lock goes to the next one.

        Raises: NotHeldError (a RuntimeError) if this thread does not hold it; LockLostError if it was lost.
        Cost: none, but for the last, as Lock.release.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        before: list[LockSnapshot] = []
        try:
            quick = self._quick
            if quick is not None and quick.release_to_cache(before, mine=True):
                return
            core = self._core
            before.append(core.holding)
            if self._is_owned() and core.depth > 1:
                core.depth -= 1
            else:
                self._release_all()
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def _finish_release(self, before: list[LockSnapshot]) -> None:
        if (LockSnapshot(*before[0]) if before else self._core.holding).owner is current_owner():
            super()._finish_release(before)

    def _release_all(self, linger: bool = True) -> None:
        before: list[LockSnapshot] = []
        try:
            core = self._core
            before.append(core.holding._replace(depth=1))
            if not self._is_owned() and not core.has_lost(current_owner()):
                raise NotHeldError("cannot release un-acquired lock")
            self._release(linger)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def _is_owned(self) -> bool:
        core = self._core
        return core.owner is current_owner() and core.grant is not None and not core.grant.loss.fired

    def _recursion_count(self) -> int:
        return self._core.depth if self._is_owned() else 0

    def _release_save(self) -> int:
        depth = self._core.depth
        self._release_all(linger=False)  # who waits for a notify wants others to have it
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self._acquire(None, True)
        self._core.depth = depth

    def __repr__(self) -> str:
        state, depth = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"
