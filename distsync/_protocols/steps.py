"""Steps: what a protocol may ask of a driver. Plain records; awaiting one yields it and returns the answer.

Rules for this file: it imports no clock, thread, socket, loop or kazoo; a step holds what is asked, never how
it is done. A driver performs a step and answers it, or throws one of the errors named beside it.

Between two awaits a protocol runs alone: a driver steps all protocols of one client under one mutex, so the
state that the threads of a process share needs no lock of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")


class Stat(NamedTuple):
    """A znode's Stat, in the order of the wire; times in ms since the epoch, lengths in bytes."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Created(NamedTuple):
    """Answer to Create: the path that the server gave, and the new node's Stat (None inside a Multi)."""

    path: str
    stat: Stat | None


class Node(NamedTuple):
    """Answer to GetData."""

    data: bytes
    stat: Stat


class Listing(NamedTuple):
    """Answer to Children: names in no order at all, and the parent's Stat."""

    names: tuple[str, ...]
    stat: Stat


class SessionInfo(NamedTuple):
    """Answer to Connected: the session's id, and its negotiated time-out in ms."""

    session_id: int
    timeout_ms: int


class WakeReason(enum.Enum):
    """Why a Wait ended; it ended because of ..."""

    SIGNAL = "a signal"
    LIMIT = "its own limit"
    DEADLINE = "the deadline of the call"


class Signal:
    """Something that happens once: a watch that fires, a turn that is given. Any thread may fire it."""

    __slots__ = ("fired", "_wakers", "__weakref__")

    def __init__(self) -> None:
        self.fired = False
        self._wakers: list[Callable[[], object]] = []

    def fire(self) -> None:
        """From now on the signal has fired; whoever waits for it is woken."""
        self.fired = True
        for waker in tuple(self._wakers):
            waker()

    def subscribe(self, waker: Callable[[], object]) -> None:
        """``waker`` is called when the signal fires, or at once if it has: drivers only."""
        self._wakers.append(waker)
        if self.fired:
            waker()

    def unsubscribe(self, waker: Callable[[], object]) -> None:
        """``waker`` is called no more."""
        if waker in self._wakers:
            self._wakers.remove(waker)


class Watch(Signal):
    """A signal that a read arms. It fires on a change, on a disconnect and when the session ends: a wake is
    a hint, and who wakes reads the state again. It is armed only if the read answers without NoNodeError
    (Exists arms it in either case)."""

    __slots__ = ()


ZNODE_DELETED = "znode deleted"
"""The reason of a `Loss` whose znode was deleted while its session lived."""


class Loss(Signal):
    """Fires when what is held is held no longer; ``reason`` then says why, in a few words."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""


class Step(Generic[Answer]):
    """Anything that a protocol awaits."""

    __slots__ = ()

    def __await__(self) -> Generator[Step[Any], Any, Answer]:
        answer: Answer = yield self
        return answer


class Request(Step[Answer]):
    """A step that is one request on the wire. Throws a ZnodeError, AccessDeniedError, SessionLostError,
    ClientClosedError, DeadlineError (the call's deadline passed while it was outstanding: a write may still
    be executed)."""

    __slots__ = ()
    path: str


@dataclass(frozen=True)
class Create(Request[Created]):
    """Create a znode. A path that ends in a prefix gets a sequence number appended if ``sequence``. An ephemeral is
    taken away when the call ends with an exception, unless the protocol looks ``after`` it then."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    container: bool = False
    after: bool = False


@dataclass(frozen=True)
class Delete(Request[None]):
    path: str
    version: int = -1


@dataclass(frozen=True)
class SetData(Request[Stat]):
    path: str
    data: bytes = b""
    version: int = -1


@dataclass(frozen=True)
class GetData(Request[Node]):
    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class GetEach(Request["tuple[Node | BaseException, ...]"]):
    """Several znodes, read at one moment, without a watch. Answers one result for each path: a Node, or the error in
    its place. RequestError where the server is older than ZooKeeper 3.6."""

    paths: tuple[str, ...]

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.paths[0]


@dataclass(frozen=True)
class Exists(Request["Stat | None"]):
    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Children(Request[Listing]):
    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Check(Request[None]):
    """Only inside a Multi: the node is there and has this version (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True)
class Sync(Request[None]):
    """The server that this client talks to knows all that was written before: a transaction of no operations, which a
    quorum agrees to. ZooKeeper's own sync is answered also by a leader that was deposed and does not know it."""

    path: str = "/"


@dataclass(frozen=True)
class Multi(Request["tuple[Any, ...]"]):
    """All or nothing. Answers one result per operation: a Created for Create (stat None), a Stat for SetData,
    None for Delete and Check. When refused, throws the error of the operation that failed; its ``index``
    attribute is that operation's place in ``operations``."""

    operations: tuple[Create | Delete | SetData | Check, ...]

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.operations[0].path


class Together(Step["tuple[Any, ...]"]):
    """Requests that do not need each other's answers: sent back to back, executed in this order. Answers a
    tuple of results; a request that failed has its exception (not thrown) in its place."""

    __slots__ = ("requests",)

    def __init__(self, *requests: Request[Any]) -> None:
        self.requests = requests

    def __repr__(self) -> str:
        return f"Together{self.requests!r}"


class Wait(Step[WakeReason]):
    """Wait until one of the signals fires, at most ``limit`` seconds, and never past the call's deadline.

    With ``allow_grace`` the wait may exceed the deadline by the call's grace, as a request may.
    """

    __slots__ = ("signals", "limit", "allow_grace")

    def __init__(self, *signals: Signal, limit: float | None = None, allow_grace: bool = False) -> None:
        self.signals = signals
        self.limit = limit
        self.allow_grace = allow_grace

    def __repr__(self) -> str:
        return f"Wait(signals={len(self.signals)}, limit={self.limit})"


@dataclass(frozen=True)
class Connected(Step[SessionInfo]):
    """Until there is a connected session. No request when there is one. Throws UnreachableError (the first
    connection was not made in time), DeadlineError, ClientClosedError."""


@dataclass(frozen=True)
class Proven(Step[bool]):
    """Whether the lease clock proves at this moment that session ``session_id`` lives; ``fresh``: and will go on to do
    so until a proof that is asked for now has come. No request."""

    session_id: int
    fresh: bool = False


@dataclass(frozen=True)
class Hold(Step[None]):
    """From now on the driver keeps the lease clock of ``session_id`` moving, and fires ``loss`` when the lease
    runs out, the session ends, or somebody deletes ``path``, our own znode. No request before the first tick of
    the keeper."""

    path: str
    session_id: int
    loss: Loss


@dataclass(frozen=True)
class StopHolding(Step[None]):
    """``loss`` will not fire any more. No request."""

    loss: Loss


@dataclass(frozen=True)
class ReportLoss(Step[None]):
    """Whatever is held by the znode ``path``, our own, is lost: somebody has deleted it. No request."""

    path: str


@dataclass(frozen=True)
class WatchNode(Step[None]):
    """From now on the driver watches the znode that is held by ``loss``, and calls ``on_data`` with its data, as it
    finds it and whenever somebody writes there. Nothing if it is held no more, or heeded already. 1 request, apart from
    this call, and 1 for each change."""

    loss: Loss
    on_data: Callable[[bytes], object]


@dataclass(frozen=True)
class Guid(Step[str]):
    """A fresh GUID in the canonical 36 characters. No request."""


@dataclass(frozen=True)
class Background(Step[None]):
    """Go on with ``protocol`` apart from this call, until it is done or the client is closed. Does not wait."""

    protocol: Coroutine[Any, Any, Any]


@dataclass(frozen=True)
class AtClose(Step[None]):
    """When the client closes in good order, it first does ``protocol()``, for a bounded time. No request now."""

    protocol: Callable[[], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Call(Step[Any]):
    """Call the user's function in the caller's own thread, with no mutex held; throws what it raises."""

    function: Callable[[], Any] = field(repr=False)


Protocol = Coroutine[Any, Any, Answer]
