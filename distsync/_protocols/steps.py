"""Steps: what a protocol can await.

A protocol is a coroutine that carries out one operation of an object, for example the acquisition
of a lock. It awaits only steps. Awaiting a step yields it to a driver, which sends back its result.

A step describes an operation, not how it is done. A driver performs it, then sends the result into
the protocol or throws one of the errors listed with the step.

Invariant: a driver runs all protocols of one client under one mutex, so a protocol runs undisturbed
between two awaits. State that the threads of a process share needs no lock of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from distsync._wire.records import Stat as Stat

ResultT = TypeVar("ResultT")


class Created(NamedTuple):
    """Result of Create: the path with its sequence number, and the Stat (None in a Multi)."""

    path: str
    stat: Stat | None


class Node(NamedTuple):
    """Result of GetData."""

    data: bytes
    stat: Stat


class Listing(NamedTuple):
    """Result of Children: the names, in no particular order, and the Stat of the parent."""

    names: tuple[str, ...]
    stat: Stat


class SessionInfo(NamedTuple):
    """Result of Connected: the session's id, its negotiated timeout in ms, and the number of the connection.

    Each connection of a process has another number, also in the same session.
    """

    session_id: int
    timeout_ms: int
    connection: int = 0


class WakeReason(enum.Enum):
    """Why a Wait ended."""

    SIGNAL = "a signal"
    LIMIT = "its own limit"
    DEADLINE = "the deadline of the call"


class Signal:
    """One-shot event, such as a fired watch. Any thread may fire it."""

    __slots__ = ("fired", "_wakers", "__weakref__")

    def __init__(self) -> None:
        self.fired = False
        self._wakers: list[Callable[[], object]] = []

    def fire(self) -> None:
        """Fire the signal and wake its waiters. Idempotent."""
        self.fired = True
        for waker in tuple(self._wakers):
            waker()

    def subscribe(self, waker: Callable[[], object]) -> None:
        """Call ``waker`` when the signal fires, or immediately if it has fired.

        ``waker`` must neither block nor raise.
        """
        self._wakers.append(waker)
        if self.fired:
            waker()

    def unsubscribe(self, waker: Callable[[], object]) -> None:
        if waker in self._wakers:
            self._wakers.remove(waker)


class Watch(Signal):
    """Signal of a one-time ZooKeeper watch, which a read sets.

    It fires on a change, on a disconnect and at the end of the session, so it is only a hint: after
    it the state has to be read again. It is set only if the read does not raise NoNodeError; Exists
    sets it in either case.

    Attributes:
        is_deleted: Whether it fired because the znode was deleted.
    """

    __slots__ = ("is_deleted",)

    def __init__(self) -> None:
        super().__init__()
        self.is_deleted = False


ZNODE_DELETED = "znode deleted"
"""Reason of a `Loss` whose znode was deleted while its session was alive."""


class Loss(Signal):
    """Fires when something held is lost.

    Attributes:
        reason: Why it was lost, in a few words.
        is_joined: Whether a later call holds by it too. If the call that began the hold is interrupted, its
            clean-up then neither ends the hold nor deletes the znode. The undo of that call releases its own part.
    """

    __slots__ = ("is_joined", "reason")

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self.is_joined = False


class Step(Generic[ResultT]):
    """Base class of everything that a protocol can await."""

    __slots__ = ()

    def __await__(self) -> Generator[Step[Any], Any, ResultT]:
        result: ResultT = yield self
        return result


class Request(Step[ResultT]):
    """A step that is one request on the wire.

    Raises ZnodeError, AccessDeniedError, SessionLostError, ClientClosedError or DeadlineError.
    After DeadlineError a write may still be executed.
    """

    __slots__ = ()
    path: str


@dataclass(frozen=True)
class Create(Request[Created]):
    """Create a znode.

    With ``sequence`` the server appends a sequence number to the path. An ephemeral znode is
    deleted if the call ends with an exception, unless ``own_cleanup`` states that the protocol
    cleans it up itself.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    container: bool = False
    own_cleanup: bool = False


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
class MultiRead(Request["tuple[Node | BaseException, ...]"]):
    """Read several znodes in one consistent snapshot, without watches.

    The result has one element for each path: a Node, or the error in its place. Raises RequestError
    if the server is older than ZooKeeper 3.6.
    """

    paths: tuple[str, ...]

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.paths[0]


@dataclass(frozen=True)
class Exists(Request["Stat | None"]):
    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Ephemerals(Request["tuple[str, ...]"]):
    """Return the paths of the session's ephemeral znodes below ``path``."""

    path: str = "/"


@dataclass(frozen=True)
class Children(Request[Listing]):
    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Check(Request[None]):
    """Check, in a Multi only, that the znode exists and has this version (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True)
class Sync(Request[None]):
    """Bring the server of this client up to date with all earlier writes.

    This sends a multi without operations, not ZooKeeper's sync request. A quorum has to agree to
    it, whereas a sync can be answered by a leader that has been deposed without knowing it.
    """

    path: str = "/"


@dataclass(frozen=True)
class Multi(Request["tuple[Any, ...]"]):
    """Execute all operations or none.

    The result has one element for each operation: a Created for Create (its ``stat`` is None), a
    Stat for SetData, None for Delete and Check. If refused, raises the error of the operation that
    failed, with its position in ``operations`` as ``index``.
    """

    operations: tuple[Create | Delete | SetData | Check, ...]

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.operations[0].path


class Pipeline(Step["tuple[Any, ...]"]):
    """Send several requests back to back, without waiting for replies in between.

    The server executes them in this order.

    The result is a tuple with one element for each request. An exception takes the place of the
    result of a request that failed; it is not raised.
    """

    __slots__ = ("requests",)

    def __init__(self, *requests: Request[Any]) -> None:
        self.requests = requests

    def __repr__(self) -> str:
        return f"Pipeline{self.requests!r}"


class Wait(Step[WakeReason]):
    """Wait until a signal fires, for ``limit`` seconds at most, and not past the call's deadline.

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
    """Wait for a connected session. Costs no request.

    Raises UnreachableError if the first connection was not established in time, DeadlineError or
    ClientClosedError.
    """


@dataclass(frozen=True)
class SessionAlive(Step[bool]):
    """Return whether the session ``session_id`` is proven to be alive. Costs no request.

    The lease clock (_client/lease/lease_clock.py) derives that from the replies received so far.
    With ``fresh``, also require that no heartbeat is due, so that the next heartbeat can extend the
    lease before it expires.
    """

    session_id: int
    fresh: bool = False


@dataclass(frozen=True)
class Hold(Step[None]):
    """Keep the lease of ``session_id`` alive, and fire ``loss`` when the lock or permit of our znode
    ``path`` is lost.

    It is lost when the lease expires, the session ends, or another client deletes the znode. Costs
    no request before the first heartbeat.
    """

    path: str
    session_id: int
    loss: Loss


@dataclass(frozen=True)
class StopHolding(Step[None]):
    """Undo Hold: ``loss`` no longer fires. Costs no request."""

    loss: Loss


@dataclass(frozen=True)
class ReportLoss(Step[None]):
    """Report the loss of what our znode ``path`` holds: another client deleted it.

    Costs no request.
    """

    path: str


@dataclass(frozen=True)
class WatchNode(Step[None]):
    """Watch the znode held by ``loss``: call ``on_data`` with its data now and after each change.

    Ignored if nothing is held any more, or if the znode is watched already. Costs 1 request,
    outside this call, and 1 for each change.
    """

    loss: Loss
    on_data: Callable[[bytes], object]


@dataclass(frozen=True)
class KeepResults(Step[None]):
    """Keep what this protocol has created and holds so far, even if it fails later.

    An endless protocol awaits it in each round, so that the record of its znodes and holds does not
    grow. Costs no request.
    """


@dataclass(frozen=True)
class Guid(Step[str]):
    """A new GUID in its canonical form of 36 characters. Costs no request."""


@dataclass(frozen=True)
class Background(Step[None]):
    """Run ``protocol``, or the coroutine that it returns, in the background until it ends or the client is closed.

    Does not wait for it. The clean-up of an interrupted call is a function: a coroutine that a
    further interrupt keeps from being run would have to be closed.
    """

    protocol: Coroutine[Any, Any, Any] | Callable[[], Coroutine[Any, Any, Any]]

    def coroutine(self) -> Coroutine[Any, Any, Any]:
        """Return the coroutine to run."""
        return self.protocol() if callable(self.protocol) else self.protocol


@dataclass(frozen=True)
class AtClose(Step[None]):
    """Run ``protocol()``, for a limited time, when the client is closed. Costs no request now.

    It takes the place of an earlier one with the same ``key``.
    """

    protocol: Callable[[], Coroutine[Any, Any, Any]]
    key: object = None


@dataclass(frozen=True)
class Call(Step[Any]):
    """Call the user's function in the caller's thread, without the mutex. Raises what it raises.

    In the background, another thread calls it. If ``is_notice``, the function only notifies the user,
    so a background protocol continues before its return if that takes long.
    """

    function: Callable[[], Any] = field(repr=False)
    is_notice: bool = False


@dataclass(frozen=True)
class Several:
    """Result of a function that the thread of callbacks calls: each of these is then called as one callback."""

    callbacks: list[Callable[[], object]]


Protocol = Coroutine[Any, Any, ResultT]
