"""Election: leader election, with the interface of a Condition whose lock is leadership."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.json_data import encode, fields, with_data
from distsync._objects.base import FencingToken, current_owner
from distsync._objects.conditions import Condition
from distsync._objects.locks import RLock
from distsync._objects.observable import ReportsChanges
from distsync._objects.validation import validate_callback, validate_timeout
from distsync._pickle import public_in
from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync._protocols.state.condition import ConditionCore
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
        data: The data that the candidate was created with.
        owner: The process of the candidate.
        announcement: What it has announced as the leader; None if it has announced nothing.
    """

    data: Any
    owner: Contender
    announcement: Any = None

    @property
    def fencing_token(self) -> FencingToken:
        """The fencing token of the candidate's term, once it leads."""
        return FencingToken(self.owner.token)


def candidate_of(data: bytes, path: str, token: int) -> Candidate:
    """Return the candidate that a znode describes."""
    known = fields(data)
    return Candidate(known.get("data"), contender_info.read(data, path, token), known.get("announcement"))


def has_leader(leading: Leading | None) -> bool:
    """Return whether there is a leader."""
    return leading is not None


class Election(Condition, ReportsChanges, RLock):
    """A leader election: one candidate leads at a time, until it resigns or its process exits.

    It is like a Condition whose lock is leadership. `acquire`, `release` and ``with`` are those of an
    RLock: the thread that leads may acquire it again. `wait` and `wait_for` are the leader's: it
    steps down, waits for a `notify` by a later leader, and leads again when they return.

    Any process may observe the election without being a candidate: `leader`, `wait_for_leader` and
    `on_change`.

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
        on_change: Called with the leader before and after each change, two Candidates or None, in a
            thread of distsync's own; None calls nothing. A new announcement is a change.
        layout: Naming scheme of the znodes: ``"curator"``, ``"latch"`` or ``"kazoo"``, to contend
            with Curator's LeaderSelector, Curator's LeaderLatch or kazoo's Election. While such a
            client leads, `leader` is None, and the client is the first of the `candidates`.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` or ``layout`` is not valid.
        PayloadPickleError: ``data`` is not JSON.
        PayloadTooLargeError: ``data`` is too large.

    Note:
        Becoming the leader costs 3 requests in 2 round trips if there is no other candidate. The
        next candidate leads as soon as it learns of the end of a term, and then sends 1 request, which
        publishes LEADER: until that is executed, other processes see no leader. Resigning costs 1.
        Reading `leader` costs no request if nothing has changed since the last read.

        Processes lead in FIFO order. The end of a term wakes only the next candidate, and all
        processes that watch `leader`.

        Znodes: ``<namespace>/election/<name>/_c_<guid>-lock-<sequence>``, ephemeral, one for each
        candidate; ``.../LEADER``, ephemeral, the leader; ``.../condition/waiters``, the waiters.

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
    _name_suffixes: ClassVar[dict[str, str]] = {**RLock._name_suffixes, "latch": wait_queue.LATCH}

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
        on_change: Callable[[Candidate | None, Candidate | None], Any] | None = None,
        layout: str = "curator",
    ) -> None:
        if isinstance(data, str) and name is None and path is None:
            raise TypeError(f"without a name, {data!r} is taken for one: pass name={data!r}, or both data and name")
        validate_callback("on_deposed", on_deposed)
        RLock.__init__(self, name=name, client=client, path=path, acl=acl, on_lost=on_deposed, layout=layout)
        encode(data, "the data of a candidate")
        self._data = data
        self.on_elected = validate_callback("on_elected", on_elected)
        self.on_change = on_change

    def _arguments(self) -> tuple[Any, ...]:
        return (self._data,)

    @property
    def _core(self) -> ElectionCore:
        return self._core_of(partial(self._with_receipts, ElectionCore))

    @property
    def _condition(self) -> ConditionCore:
        return self._core.condition

    @property
    def _lock(self) -> Any:
        return self

    @property
    def _watched(self) -> WatchCache[Leading | None]:
        return self._core.leader

    on_deposed = RLock.on_lost

    _is_owned = RLock._is_owned
    _release_save = RLock._release_save
    _acquire_restore = RLock._acquire_restore

    def _acquire(self, timeout: float | None, blocking: bool) -> bool:
        contender_data = with_data(describe(), self._data, "the data of a candidate")
        core = self._core
        elected: bool = self._run(core.acquire(current_owner(), contender_data, blocking), timeout) or self._late()
        grant = core.grant if elected else None
        if grant is not None:
            self._tell_elected(grant)  # first: a loss may be reported at once
            if self._has_callbacks:
                self._subscribe_to(grant)
        return elected

    def _tell_elected(self, grant: Grant) -> None:
        if self.on_elected is not None:
            self.client.call_back(partial(self.on_elected, FencingToken(grant.token)))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Become a candidate, and wait until this thread leads; if it does, increment its recursion level.

        Args:
            blocking: Whether to wait if another candidate leads.
            timeout: Maximum wait in seconds; 0 tries once, -1 waits forever.

        Returns:
            True if this thread leads. False on timeout, or if ``blocking`` is False and another
            candidate leads.

        Raises:
            ValueError: ``timeout`` is negative and not -1, or given with ``blocking=False``.
            OverflowError: ``timeout`` is greater than ``TIMEOUT_MAX``.
            UnreachableError: No server could be reached for the client's first connection.
            ClientClosedError: The client is closed, or was closed during the wait.

        Note:
            Costs no request if this thread leads, and 3 requests in 2 round trips if there is no other
            candidate. The next candidate leads as soon as it learns of the end of a term; the 1
            request that publishes LEADER follows. If that is refused, the leadership is lost.

            Processes lead in FIFO order.

            If the session ends during the wait, the candidate enqueues again, as the last one. If
            interrupted, no znode is left behind.

            Source: ZooKeeper recipes, "Leader Election", steps 1 to 3; the mail of June 2008
            (LEADER).
        """
        return RLock.acquire(self, blocking, timeout)

    __enter__ = acquire
    __exit__ = RLock.__exit__

    @interruptible_at_entry
    def release(self) -> None:
        """Decrement the recursion level, and resign when it reaches zero.

        LEADER and the candidate's znode are deleted in one transaction.

        Raises:
            NotHeldError: This thread does not lead. Subclass of RuntimeError.
            LockLostError: The leadership was lost. Another process may lead now.

        Note:
            Costs 1 request for the last release, and none for the others.

            If the connection is lost, this waits for at most the session timeout, and the znodes
            are deleted in the background. If interrupted, the process still resigns.

            Source: the mail of June 2008: delete the node before relinquishing leadership.
        """
        try:
            begun = True
            RLock.release(self)
        except BaseException:
            if "begun" not in locals():
                complete(RLock.release, self)
            raise

    def locked(self) -> bool:
        """Return whether any candidate leads or waits to lead.

        Returns:
            True if there is a candidate.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs no request if this process leads. Otherwise it costs 1 if there is no candidate,
            and 2 if there is one.
        """
        return self.held or bool(self._ask(self._core.locked()))

    def announce(self, data: Any, *, timeout: float | None = None) -> None:
        """Tell all processes something as the leader, such as that its procedure has been executed.

        They read it as ``leader.announcement``, until the term ends or the leader announces something
        else.

        Args:
            data: Any JSON value.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            NotHeldError: No thread of this process leads. Subclass of RuntimeError.
            LockLostError: The leadership was lost.
            DeadlineError: No server answered in time, and it may or may not be announced. Subclass of
                TimeoutError.
            PayloadPickleError: ``data`` is not JSON.
            PayloadTooLargeError: ``data`` is too large.

        Note:
            Costs 1 request. The ensemble refuses it if another process leads by then.

            If the reply is lost, it is repeated. If interrupted, it may be announced.

            Source: ZooKeeper recipes, "Leader Election"; the mail of June 2008: the leader tells in
            LEADER that the leader procedure has been executed.
        """
        encode(data, "an announcement")
        self._ask(self._core.announce(data), timeout)

    def wait_for_leader(self, timeout: float | None = None) -> Candidate | None:
        """Wait until there is a leader. The caller need not be a candidate.

        Args:
            timeout: Maximum wait in seconds; 0 looks once, None waits forever.

        Returns:
            The leader, which may change at any time; None on timeout.

        Note:
            Costs as many requests as `leader`, and as many again after each change.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ZooKeeper recipes, "Leader Election", LEADER.
        """
        seconds = validate_timeout(timeout)
        alone = self.client.is_in_call()
        leading = self._run(self._watched.until(has_leader, alone), seconds)
        if leading is None:
            self._late()
        return self._shown_leader(leading)

    def _report_change(self, before: Leading | None, now: Leading | None) -> None:
        callback = self._on_change
        if callback is not None:
            callback(self._shown_leader(before), self._shown_leader(now))

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

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs no request if nothing has changed since the last read, 1 request after a change,
            and 2 requests if there is no leader.
        """
        return self.find_leader()

    def find_leader(self, *, sync: bool = False, timeout: float | None = None) -> Candidate | None:
        """Return the present leader, which may change at any time.

        Args:
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The leader; None if there is none.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs as many requests as `leader`. With ``sync``, it costs 2, and 3 if there is no leader.
        """
        return self._shown_leader(self._seen(sync, timeout))

    def _shown_leader(self, leading: Leading | None) -> Candidate | None:
        if leading is None:
            return None
        return candidate_of(leading.data, f"{self.path}/{leading.candidate}", leading.token)

    def candidates(self, *, timeout: float | None = None) -> list[Candidate]:
        """Return the leader and the other candidates, in the order in which they will lead.

        Threads of one process that contend together count as one candidate.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The candidates; the first one leads or is about to lead.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request and 1 more for each candidate, in 2 round trips.
        """
        found = self._ask(wait_queue.contenders(self.path), timeout)
        return [candidate_of(node.data, path, node.stat.czxid) for path, node in found]

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
        leads = "leads" if self._repr_state()[0] == "locked" else "does not lead"
        return f"<distsync.recipes.Election object name={self.name!r} {leads} at {id(self):#x}>"
