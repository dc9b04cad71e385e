"""SharedLock: many readers, or one writer.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender, describe
from distsync._client.naming import inference
from distsync._objects.base import current_owner, exit_context, parse_contenders, type_name
from distsync._objects.locks import RLock
from distsync._objects.revocation import Revocable
from distsync._objects.validation import validate_timeout
from distsync._pickle import at_home
from distsync._protocols import wait_queue
from distsync._protocols.locks import revocation
from distsync._protocols.locks.cache_revocation import ANSWER_S, holders_and_waiters
from distsync._protocols.locks.lock import Grant
from distsync._protocols.locks.shared_lock import NodeNames, ReadSnapshot, SharedCore, WriterCore
from distsync.errors import DistsyncError, LockLostError, MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client

MARKS = {"curator": NodeNames(), "kazoo": NodeNames(wait_queue.KAZOO_READ, wait_queue.KAZOO_LOCK)}


def _parsed(contender: Contender) -> wait_queue.ContenderNode:
    name = contender.path.rpartition("/")[2]
    return wait_queue.parse(name) or wait_queue.ContenderNode(name, 0, "")


def _chosen(contenders: list[Contender], matches: wait_queue.Rule, holding: bool) -> list[Contender]:
    """Those of them who hold what they stand in line for, or those who wait."""
    parsed = [_parsed(each) for each in contenders]
    front = wait_queue.current_holders(parsed)
    return [
        contender
        for contender, each in zip(contenders, parsed, strict=True)
        if matches(each) and (each in front) == holding
    ]


class _LockView(Revocable):
    """One side of a SharedLock, as who looks at it sees it."""

    @property
    def _shared(self) -> SharedCore:
        raise NotImplementedError

    def locked(self) -> bool:
        """Whether anybody holds this side.

        What a watch has kept: what others do shows as soon as the server has told us, and before anything that this
        client reads after it; after a loss of the connection it is looked at anew.
        Cost: none if this process does; else 1 request, 2 where nobody has ever held it, 3 where one stands there
            alone, or only readers do, and what asking costs if these may be keepers (as Lock.locked, and for each); 1
            watch. Then none until somebody comes or goes.
        """
        return self.held or bool(self._read(self._shared.is_held(self._is_meant)))

    def holders(self) -> list[Contender]:
        """Who holds this side now: one who writes, or all who read. Threads that share a place in the line show once.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return _chosen(self._holding_line(), self._is_meant, True)

    def waiters(self) -> list[Contender]:
        """Who waits for this side, first in line first.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return _chosen(self._line(), self._is_meant, False)


class SharedWriter(_LockView, RLock):
    """The writer of a SharedLock: the interface of an RLock, held while nobody else reads or writes.

    On loss, Cost: as RLock; a release while this thread reads too costs 1 request, and it reads on.
    Fair: first come, first served, between processes, readers included.
    Source: recipes.txt, Shared Locks, obtaining a write lock; ``threading.RLock``.

    >>> from distsync import SharedLock
    >>> table = SharedLock(name="table")
    >>> with table.writer, table.reader:
    ...     print(table.writer.held, table.reader.held)
    True True
    """

    __module__ = "distsync.recipes"

    _kind = "sharedlock"

    @property
    def _shared(self) -> SharedCore:
        marks = MARKS[self._layout]
        core = self._shared_state(partial(SharedCore, name_suffixes=marks))
        if core.name_suffixes != marks:
            raise MismatchError("the layout", self.path, core.name_suffixes.write, marks.write)
        return core

    @property
    def _core(self) -> WriterCore:
        return self._shared.writer

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        return wait_queue.shared(contender)

    def revoke(self, grace: float | None = None) -> bool:
        """Whoever writes is asked to let go of the writer, and after ``grace`` it is taken from him.

        If he reads too, he may read on when he has let go; what he loses he loses on both sides.
        Units, Returns, Raises, Cost: as Lock.revoke.
        Source: recipes.txt, Revocable Shared Locks, with the laser beams.
        """
        return self._revoke(grace, self._is_meant, marker=revocation.WRITER)

    def __repr__(self) -> str:
        state, depth = self._repr_state()
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"


class SharedReader(_LockView):
    """The reader of a SharedLock: the interface of an RLock, held by any number while nobody writes.

    A thread that reads may acquire it again, whoever waits; one that writes may read too, and reads on when it lets go
    of the writer.
    On loss: as RLock.
    Cost: acquire and release while it is kept, or where another thread of the process reads already, none; else acquire
        2 requests, 1 round trip, and apart from any call 1 to hear of others, 1 for each of these who comes or goes
        while it is used, and 1 at its end, 3 where somebody asks for it in vain. Not kept (``linger=0``): 3 requests.
    Fair: first come, first served, between processes, writers included; at most 32 threads of a process join in one
        place of the line, so that a writer waits for so many at most.
    Source: recipes.txt, Shared Locks, obtaining a read lock; ``threading.RLock``.

    >>> from distsync import SharedLock
    >>> table = SharedLock(name="table")
    >>> with table.reader:
    ...     print(table.reader.held, table.writer.held)
    True False
    """

    __module__ = "distsync.recipes"

    def __init__(
        self,
        writer: SharedWriter,
        *,
        on_lost: Callable[[LockLostError], Any] | None = None,
        on_revoke: Callable[[Any], Any] | None = None,
    ) -> None:
        self._writer = writer
        self._init_loss_callback(on_lost)
        self._init_revocation(on_revoke)

    @property
    def name(self) -> str:
        """The name that others find the lock by."""
        return self._writer.name

    @property
    def client(self) -> Client:
        """The client that the lock uses."""
        return self._writer.client

    @property
    def path(self) -> str:
        """The znode of the lock."""
        return self._writer.path

    @property
    def linger(self) -> float:
        """For how many seconds, at least, it stays this process's after its release, if no writer wants it."""
        return self._writer.linger

    @property
    def _shared(self) -> SharedCore:
        return self._writer._shared

    @property
    def _core(self) -> SharedCore:
        return self._shared

    def _grant(self) -> Grant | None:
        """This thread's, else the latest of this process."""
        core = self._core
        shares = tuple(core.shares)
        share = core.share_of(current_owner()) or (shares[-1] if shares else None)
        return None if share is None else share.grant

    def _still_valid(self) -> Callable[[], bool]:
        grant = self._grant()
        keeping = None if grant is None else grant.cache
        if keeping is None:
            return lambda: True
        uses = keeping.uses
        return lambda: not keeping.idle and keeping.uses == uses

    def _holding_line(self) -> list[Contender]:
        return parse_contenders(self._read(holders_and_waiters(self.path)))

    def _stands(self, core: Any, grant: Grant) -> bool:
        return any(share.grant is grant for share in tuple(core.shares))

    def _is_meant(self, contender: wait_queue.ContenderNode) -> bool:
        return not wait_queue.shared(contender)

    def _heed(self, grant: Grant) -> Coroutine[Any, Any, None]:
        return revocation.watch_revocation(grant, reads=True)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """This thread reads, once more if it did already.

        Units: seconds; -1: without end.
        Returns: True; False if somebody writes, or waits to, and ``blocking`` is False, or not in time.
        Raises: as Lock.acquire.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left.
        Cost: 2 requests, 1 round trip, if nobody writes; none if this thread, or another one of the process, reads, if
            it is kept, or if this thread writes; with ``blocking=False`` 1 more.
        Fair: first come, first served between processes.
        Source: recipes.txt, Shared Locks, obtaining a read lock, steps 1 to 6.
        """
        seconds = validate_timeout(timeout, "lock", blocking)
        before: list[ReadSnapshot] = []
        try:
            core, owner = self._core, current_owner()
            before.append(core.reading(owner))
            if core.deepen(owner):
                return True
            brief = seconds is not None and seconds < ANSWER_S
            linger = self.linger
            acquired: bool = self._run(core.acquire(owner, describe(linger), blocking, brief, linger=linger), seconds)
            if acquired:
                self._register_loss_callback()
            return acquired
        except DistsyncError:
            raise
        except BaseException:
            if before:
                self._restore(before[0], object())
            raise

    __enter__ = acquire

    def release(self) -> None:
        """This thread reads once less; when nobody does any more, the lock goes to the next one.

        Raises: NotHeldError (a RuntimeError) if this thread does not read; LockLostError if it was lost.
        On loss: of the connection: it waits as long as a session lasts at most; the znode goes in the background.
        On cancel: it is let go all the same.
        Cost: none, but for the last of this process, if it is not kept: 1 request.
        Source: recipes.txt, Locks, the unlock protocol.
        """
        before: list[ReadSnapshot] = []
        try:
            core, owner = self._core, current_owner()
            before.append(core.reading(owner))
            self._run(core.release(owner, self.linger > 0), self.client.settings.session_timeout)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before: list[ReadSnapshot] = []
        try:
            before.append(self._core.reading(current_owner()))
            exit_context(self.release, error)
        except DistsyncError:
            raise
        except BaseException:
            self._finish_release(before)
            raise

    # As in locks.py: whatever line was interrupted, then the thread reads as deep as the call should have left it.

    def _finish_release(self, before: list[ReadSnapshot]) -> None:
        """A release was interrupted: it has happened. May be done twice."""
        was = before[0] if before else self._core.reading(current_owner())
        self._restore(ReadSnapshot(max(0, was.depth - 1)), object())

    def _snapshot(self) -> ReadSnapshot:
        """For who may have to undo an acquire that has succeeded."""
        return self._core.reading(current_owner())

    def _restore(self, before: ReadSnapshot, temporary_owner: object) -> None:
        """What was acquired since is let go. May be done twice."""
        ending = self._core.undo_acquire(current_owner(), before, temporary_owner)
        if ending is not None:
            self.client.background(ending)

    def _is_owned(self) -> bool:
        return self._core.reads(current_owner())

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedReader, (self._writer,)

    def __repr__(self) -> str:
        depth = self._core.depth(current_owner()) if self._is_used else 0
        state = "locked" if self._is_used and self._core.shares else "unlocked"
        return f"<{state} {type_name(self)} object name={self.name!r} count={depth} at {id(self):#x}>"


class SharedLock:
    """A lock that many readers hold together, or one writer alone: ``with lock.reader:`` and ``with lock.writer:``.

    Both have the whole interface of a Lock, and may be acquired again by the thread that holds them. Who writes may
    read too; when it lets go of the writer then, it reads on, and no other writer comes in between. A reader that
    wants to write would wait for itself: UpgradeError.
    On loss: as Lock, for each side.
    Cost: acquire and release alone, 3 requests, 2 round trips; readers of one process share a znode. Both sides are
        kept as a Lock is (``linger``), readers until a writer comes.
    Fair: first come, first served: a reader that comes after a waiting writer waits for it.
    Source: recipes.txt, Shared Locks, Revocable Shared Locks; ``threading.RLock`` for each side.

    Znodes: ``<namespace>/sharedlock/<name>/_c_<guid>-__READ__<sequence>``, ephemeral, the readers of a process;
        ``..._c_<guid>-__WRIT__<sequence>``, a writer

    >>> table = SharedLock(name="table")
    >>> with table.reader, table.reader:
    ...     print(table.reader.held, table.writer.locked())
    True False
    """

    __module__ = "distsync.recipes"

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
        resolved = None if path is not None else inference.resolve(self, name)
        text = name if resolved is None else resolved.text
        writer = SharedWriter(
            name=text,
            client=client,
            path=path,
            acl=acl,
            on_lost=on_lost,
            on_revoke=on_revoke,
            layout=layout,
            linger=linger,
        )
        writer._fresh = resolved is not None and resolved.fresh
        self._begin(writer, SharedReader(writer, on_lost=on_lost, on_revoke=on_revoke))

    def _begin(self, writer: SharedWriter, reader: SharedReader) -> None:
        self._writer, self._reader = writer, reader

    @property
    def reader(self) -> SharedReader:
        """What readers acquire and release."""
        return self._reader

    @property
    def writer(self) -> SharedWriter:
        """What a writer acquires and releases."""
        return self._writer

    @property
    def name(self) -> str:
        """The name that others find this object by."""
        return self._writer.name

    @property
    def client(self) -> Client:
        """The client that this object uses: the one it was given, else the default one."""
        return self._writer.client

    @property
    def path(self) -> str:
        """The znode of this object."""
        return self._writer.path

    def revoke(self, grace: float | None = None) -> bool:
        """Whoever reads or writes is asked to let go, and after ``grace`` it is taken from him.

        Who writes, reads too, and lets go of the writer only, is still asked, and has not let go yet: ``writer.revoke``
        asks for no more than that, ``reader.revoke`` those who read only.
        Units, Returns, Raises, Cost: as Lock.revoke, and with ``grace`` 1 more for a writer.
        Source: recipes.txt, Revocable Shared Locks, with the laser beams.
        """
        return self._writer._revoke(grace, revocation.everybody, include_downgraded=True)

    def holders(self) -> list[Contender]:
        """Who reads or writes now.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return _chosen(self._writer._holding_line(), revocation.everybody, True)

    def waiters(self) -> list[Contender]:
        """Who waits to read or write, first in line first.

        Cost: 1 request and 1 for each contender, 2 round trips.
        """
        return _chosen(self._writer._line(), revocation.everybody, False)

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_lock, (type(self), self._writer)

    def __repr__(self) -> str:
        return f"<{type_name(self)} object name={self.name!r} at {id(self):#x}>"


@at_home
def shared_lock(kind: type[SharedLock], writer: SharedWriter) -> SharedLock:
    """Return the lock of this writer, in the process where its pickle arrived."""
    lock = kind.__new__(kind)
    lock._begin(writer, SharedReader(writer))
    return lock
