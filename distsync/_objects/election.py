"""Election: leader election."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.json_data import encode, fields, with_data
from distsync._objects.base import FencingToken, current_owner
from distsync._objects.locks import Lock
from distsync._objects.observable import PredicateWaitable
from distsync._objects.validation import validate_callback
from distsync._pickle import public_in
from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync._protocols.state.election import ElectionCore, Leading
from distsync._protocols.state.watch_cache import WatchCache
from distsync._signal_handlers import complete, interruptible_at_entry
from distsync.errors import LockLostError

if TYPE_CHECKING:
    from distsync._client.client import Client

Result = TypeVar("Result")


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Candidate:
    """The leader of an election, or a contender for it, as its znode describes it.

    Attributes:
        data: The data that the candidate announced.
        owner: The process of the candidate.
    """

    data: Any
    owner: Contender

    @property
    def fencing_token(self) -> FencingToken:
        """The fencing token of the candidate's term, once it leads."""
        return FencingToken(self.owner.token)


def _candidate(data: bytes, path: str, token: int) -> Candidate:
    return Candidate(fields(data).get("data"), contender_info.read(data, path, token))


class Election(PredicateWaitable, Lock):
    """A leader election: one candidate leads at a time, until it resigns or its process exits.

    The leader holds the election like a Lock. A process that only reads `leader` need not be a
    candidate. `wait` and `wait_for` wait for any change of `leader`.

    If the leadership is lost, ``is_leader`` becomes False, ``on_deposed`` is called, and `release`
    raises LockLostError. Stop the work that only a leader may do.

    Args:
        data: Any JSON value that other processes can read of this candidate, such as an address.
        name: Name of the election, shared by all processes that use it. Without a name, an election
            assigned at module or class level is named after its variable; any other election gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the election's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_elected: Called with the fencing token when this process becomes the leader, in a thread
            of distsync's own; None calls nothing.
        on_deposed: Called with a LockLostError, in the same thread, when the leadership is lost;
            None calls nothing.
        layout: Naming scheme of the znodes: ``"curator"``, ``"latch"`` or ``"kazoo"``, to contend
            with Curator's LeaderSelector, Curator's LeaderLatch or kazoo's Election. While such a
            client leads, `leader` is None, and the client is the first of the `candidates`.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` or ``layout`` is not valid.
        PayloadPickleError: ``data`` is not JSON.
        PayloadTooLargeError: ``data`` is too large.

    Note:
        Becoming the leader costs 3 requests in 2 round trips if there is no other candidate.
        Resigning costs 1. Reading `leader` costs no request if nothing has changed since the last
        read.

        Processes lead in FIFO order. The end of a term wakes only the next candidate, and all
        processes that watch `leader`.

        Znodes: ``<namespace>/election/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one for each
        candidate; ``.../LEADER``, ephemeral, the leader.

        Source: ZooKeeper recipes, "Leader Election"; the mail of June 2008 (LEADER);
        ``threading.Condition``.

    Example:
        >>> election = Election("10.0.0.7:8080", name="scheduler")
        >>> with election:
        ...     print(election.leader.data)
        10.0.0.7:8080
    """

    __module__ = "distsync.recipes"
    _kind = "election"
    _name_suffixes: ClassVar[dict[str, str]] = {**Lock._name_suffixes, "latch": wait_queue.LATCH}

    def __init__(
        self,
        data: Any = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_elected: Callable[[FencingToken], Any] | None = None,
        on_deposed: Callable[[LockLostError], Any] | None = None,
        layout: str = "curator",
    ) -> None:
        if isinstance(data, str) and name is None and path is None:
            raise TypeError(f"without a name, {data!r} is taken for one: pass name={data!r}, or both data and name")
        super().__init__(name=name, client=client, path=path, acl=acl, on_lost=on_deposed, layout=layout)
        encode(data, "the data of a candidate")
        self._data = data
        self.on_elected = validate_callback("on_elected", on_elected)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._data,)

    @property
    def _core(self) -> ElectionCore:
        return self._core_of(ElectionCore)

    @property
    def _watched(self) -> WatchCache[Leading | None]:
        return self._core.leader

    on_deposed = Lock.on_lost

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        contender_data = with_data(describe(), self._data, "the data of a candidate")
        elected: bool = self._run(self._core.acquire(current_owner(), contender_data, blocking), timeout)
        if elected:
            self._subscribe()
            self._tell_elected(self._core.grant)
        return elected

    def _tell_elected(self, grant: Grant | None) -> None:
        if self.on_elected is not None and grant is not None:
            self.client.call_back(partial(self.on_elected, FencingToken(grant.token)))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Become a candidate, and wait until this process leads.

        Args:
            blocking: Whether to wait if another candidate leads.
            timeout: Maximum wait in seconds; 0 tries once, -1 waits forever.

        Returns:
            True if this process leads. False on timeout, or if ``blocking`` is False and another
            candidate leads.

        Raises:
            ValueError: ``timeout`` is negative and not -1, or given with ``blocking=False``.
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs 3 requests in 2 round trips if there is no other candidate.

            Processes lead in FIFO order.

            If the session ends during the wait, the candidate enqueues again, as the last one. If
            interrupted, no znode is left behind.

            Source: ZooKeeper recipes, "Leader Election", steps 1 to 3; the mail of June 2008
            (LEADER).
        """
        return super().acquire(blocking, timeout)

    __enter__ = acquire

    @interruptible_at_entry
    def release(self) -> None:
        """Resign: delete LEADER and the candidate's znode in one transaction.

        Raises:
            NotHeldError: This process does not lead. Subclass of RuntimeError.
            LockLostError: The leadership was lost. Another process may lead now.

        Note:
            Costs 1 request.

            If the connection is lost, this waits for at most the session timeout, and the znodes
            are deleted in the background. If interrupted, the process still resigns.

            Source: the mail of June 2008: delete the node before relinquishing leadership.
        """
        try:
            begun = True
            Lock.release(self)
        except BaseException:
            if "begun" not in locals():
                complete(Lock.release, self)
            raise

    @property
    def is_leader(self) -> bool:
        """Whether this process provably leads.

        Note:
            Costs no request. The lease clock decides, even if no server can be reached.
        """
        return self.held

    @property
    def leader(self) -> Candidate | None:
        """The present leader; None if there is none. It may change at any time.

        Note:
            Costs no request if nothing has changed since the last read, 1 request after a change,
            and 2 requests if there is no leader.
        """
        return self.find_leader()

    def find_leader(self, *, sync: bool = False) -> Candidate | None:
        """Return the present leader, which may change at any time.

        Args:
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.

        Returns:
            The leader; None if there is none.

        Note:
            Costs as many requests as `leader`. With ``sync``, it costs 2, and 3 if there is no leader.
        """
        return self._shown_leader(self._seen(sync))

    def _shown_leader(self, leading: Leading | None) -> Candidate | None:
        if leading is None:
            return None
        return _candidate(leading.data, f"{self.path}/{leading.candidate}", leading.token)

    def candidates(self) -> list[Candidate]:
        """Return the leader and the other candidates, in the order in which they will lead.

        Threads of one process that contend together count as one candidate.

        Returns:
            The candidates; the first one leads or is about to lead.

        Note:
            Costs 1 request and 1 more for each candidate, in 2 round trips.
        """
        found = self._read(wait_queue.contenders(self.path))
        return [_candidate(node.data, path, node.stat.czxid) for path, node in found]

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call a function as the leader, once, and resign.

        An error that the function raises is raised here too.

        Args:
            function: The function to call.
            *args: Positional arguments of the function.
            **kwargs: Keyword arguments of the function.

        Returns:
            The result of the function.

        Raises:
            LockLostError: The leadership was lost during the call.

        Note:
            Costs as many requests as `acquire` and `release`.

            Source: ZooKeeper recipes, "Leader Election": execute leader procedure.
        """
        with self:
            return function(*args, **kwargs)

    def __repr__(self) -> str:
        state, _ = self._repr_state()
        leads = "leads" if state == "locked" else "does not lead"
        return f"<distsync.recipes.Election object name={self.name!r} {leads} at {id(self):#x}>"
