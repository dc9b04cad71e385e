"""Lock and RLock.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync.errors import DistsyncError, LockLostError, MismatchError, NotHeldError
from distsync.held import checked_acquire
from distsync.layouts import checked_layout
from distsync.named import leave_block, me
from distsync.protocols import line
from distsync.protocols.lock import Grant, Holding, LockCore
from distsync.revocable import Revocable
from distsync.session.whoami import describe

if TYPE_CHECKING:
    from distsync.session.client import Client


Core = TypeVar("Core", bound=LockCore)


class LockBase(Revocable):
    """What Lock and RLock share."""

    _kind = "lock"
    #: What each layout has in the names of contenders.
    _marks: ClassVar[dict[str, str]] = {"curator": line.LOCK, "kazoo": line.KAZOO_LOCK}

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
        layout: str = "curator",
    ) -> None:
        super().__init__(name, client, path, on_lost, on_revoke)
        self._layout = checked_layout(layout, tuple(self._marks))

    def _options(self) -> dict[str, Any]:
        return {} if self._layout == "curator" else {"layout": self._layout}

    @property
    def _core(self) -> LockCore:
        return self._core_of(LockCore)

    def _core_of(self, kind: Callable[..., Core]) -> Core:
        mark = self._marks[self._layout]
        core = self._local(partial(kind, mark=mark))
        if core.mark != mark:
            raise MismatchError("the layout", self.path, core.mark, mark)
        return core

    def _grant(self) -> Grant | None:
        return self._core.grant

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        acquired: bool = self._run(self._core.acquire(me(), describe(), blocking), timeout)
        if acquired:
            self._tell_loss()
        return acquired

    def _release(self) -> None:
        self._run(self._core.release(me()), self.client.settings.session_timeout)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See Lock and RLock."""
        raise NotImplementedError

    def release(self) -> None:
        """See Lock and RLock."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before: list[Holding] = []
        try:
            before.append(self._core.holding)
            leave_block(self.release, error)
        except DistsyncError:
            raise
        except BaseException:
            self._let_go(before)
            raise

    # An interrupt may come in any line of acquire and release, those after the protocol included. Each notes first
    # what this thread holds, so that afterwards it holds what the interrupted call should have left.

    def _let_go(self, before: list[Holding]) -> None:
        """A release was interrupted: it has happened. May be done twice."""
        core = self._core
        self.client.background(core.give_up(before[0] if before else core.holding, me()))

    def _undo(self, before: list[Holding]) -> None:
        """An acquire was interrupted: it has not happened. May be done twice."""
        if before:
            self.client.background(self._core.revert(me(), before[0], object()))

    def _standing(self) -> Holding:
        """For who may have to undo an acquire that has succeeded."""
        return self._core.holding

    def _return_to(self, before: Holding, stranger: object) -> None:
        """What was acquired since is let go, and a loss of it needs no telling. May be done twice."""
        self.client.background(self._core.revert(me(), before, stranger))

    def _shown(self) -> tuple[str, int]:
        """What a repr says of this process. No request; a client that was not used yet stays so."""
        if not self._is_used:
            return "unlocked", 0
        return ("unlocked" if self._core.grant is None else "locked"), self._core.depth


class Lock(LockBase):
    """A lock that one thread of one process on one host holds at a time.

    ``on_lost`` and ``on_revoke`` are called when it is lost, and when somebody asks for it (``revoke``). With
    ``layout="kazoo"`` its znodes have the names of kazoo's own Lock, and stand in one line with them.
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
        seconds = checked_acquire(blocking, timeout)
        before: list[Holding] = []
        try:
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
        Cost: 1 request; none if another thread of this process is next.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        before: list[Holding] = []
        try:
            before.append(self._core.holding)
            self._release()
        except DistsyncError:
            raise
        except BaseException:
            self._let_go(before)
            raise

    def locked(self) -> bool:
        """Whether anybody holds it.

        Cost: none if this process does, else 1 request.
        """
        return self.held or bool(self._run(self._core.locked()))

    def __repr__(self) -> str:
        state, _ = self._shown()
        return f"<{state} distsync.Lock object name={self.name!r} at {id(self):#x}>"


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
        seconds = checked_acquire(blocking, timeout)
        before: list[Holding] = []
        try:
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
        Cost: none, but for the last: 1 request.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        before: list[Holding] = []
        try:
            core = self._core
            before.append(core.holding)
            if self._is_owned() and core.depth > 1:
                core.depth -= 1
            else:
                self._release_all()
        except DistsyncError:
            raise
        except BaseException:
            self._let_go(before)
            raise

    def _let_go(self, before: list[Holding]) -> None:
        if (before[0] if before else self._core.holding).owner is me():
            super()._let_go(before)

    def _release_all(self) -> None:
        before: list[Holding] = []
        try:
            core = self._core
            before.append(core.holding._replace(depth=1))
            if not self._is_owned() and not core.has_lost(me()):
                raise NotHeldError("cannot release un-acquired lock")
            self._release()
        except DistsyncError:
            raise
        except BaseException:
            self._let_go(before)
            raise

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

    def __repr__(self) -> str:
        state, depth = self._shown()
        return f"<{state} distsync.RLock object name={self.name!r} count={depth} at {id(self):#x}>"
