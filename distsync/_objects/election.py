"""Election.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

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
from distsync._pickle import public_in
from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant
from distsync._protocols.state.election import ElectionCore, Leading
from distsync._protocols.state.watch_cache import WatchCache
from distsync.errors import LockLostError

if TYPE_CHECKING:
    from distsync._client.client import Client

Result = TypeVar("Result")


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Candidate:
    """The leader of an election, or a contender for it, as its znode says.

    Attributes:
        data: What it announced.
        owner: The process that stands for election.
    """

    data: Any
    owner: Contender

    @property
    def fencing_token(self) -> FencingToken:
        """Its term: the token that it has as leader."""
        return FencingToken(self.owner.token)


def _candidate(data: bytes, path: str, token: int) -> Candidate:
    return Candidate(fields(data).get("data"), contender_info.read(data, path, token))


class Election(PredicateWaitable, Lock):
    """Of all who stand one leads, until it steps down or dies; who leads is known to everybody.

    ``data`` (any JSON) is what the others see of this candidate: an address, for example. It leads who holds the
    election as one holds a Lock; who only looks need not stand. On loss: ``is_leader`` turns False, ``on_deposed`` is
    called, and ``release`` raises LockLostError; what only a leader may do must stop.
    ``on_elected(token)`` and ``on_deposed(error)`` are called one after the other in a thread of distsync's own.
    It stands in one line with Curator's LeaderSelector, with ``layout="latch"`` with its LeaderLatch, with
    ``layout="kazoo"`` with kazoo's Election; while one of these leads, ``leader`` is None, and it is the first of
    the ``candidates``.
    Cost: to stand and lead, alone, 3 requests, 2 round trips; to step down 1. Looking at ``leader``: none while
        watched; ``wait`` and ``wait_for`` are for any change of it. Of the candidates only the next one is woken, of
        those who look at ``leader`` all.
    Fair: first come, first served between processes.
    Source: recipes.txt, Leader Election; the mail of June 2008 (LEADER); ``threading.Condition``.

    Znodes: ``<namespace>/election/<name>/_c_<guid>-lock-<sequence>``, ephemeral, the candidates; ``.../LEADER``,
    ephemeral, the leader.

    >>> election = Election("10.0.0.7:8080", name="scheduler")
    >>> with election:
    ...     print(election.leader.data)
    10.0.0.7:8080
    """

    __module__ = "distsync.recipes"
    _kind = "election"
    _marks: ClassVar[dict[str, str]] = {**Lock._marks, "latch": wait_queue.LATCH}

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
        super().__init__(name=name, client=client, path=path, acl=acl, on_lost=on_deposed, layout=layout)
        encode(data, "the data of a candidate")
        self._data = data
        self.on_elected = on_elected

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
            self._register_loss_callback()
            self._tell_elected(self._core.grant)
        return elected

    def _tell_elected(self, grant: Grant | None) -> None:
        if self.on_elected is not None and grant is not None:
            self.client.call_back(partial(self.on_elected, FencingToken(grant.token)))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """This process stands, and leads.

        Units: seconds; -1: without end.
        Returns: True; False if another one leads and ``blocking`` is False, or still does at the end of the time.
        Raises: as Lock.acquire.
        On loss: of the session while waiting: it stands anew, as the last one.
        On cancel: no znode is left.
        Cost: 3 requests, 2 round trips, if nobody leads.
        Fair: first come, first served between processes.
        Source: recipes.txt, Leader Election, steps 1 to 3 and their repetition; the mail, LEADER.
        """
        return super().acquire(blocking, timeout)

    __enter__ = acquire

    def release(self) -> None:
        """It leads no more; first LEADER goes, then its candidate.

        Raises: NotHeldError (a RuntimeError) if this process does not lead; LockLostError if it was deposed.
        On loss: of the connection: it waits as long as a session lasts at most; the znodes go in the background.
        On cancel: it steps down all the same.
        Cost: 1 request.
        Source: the mail: delete the node before relinquishing leadership.
        """
        super().release()

    @property
    def is_leader(self) -> bool:
        """True while this process provably leads.

        Cost: no request; the answer comes from the lease clock, also when no server can be reached.
        """
        return self.held

    @property
    def leader(self) -> Candidate | None:
        """Who leads; None while nobody does. It may be over by the time that you look.

        Cost: none while watched; 1 request after each change, 2 if nobody leads.
        """
        return self.find_leader()

    def find_leader(self, *, sync: bool = False) -> Candidate | None:
        """Who leads; None while nobody does. ``sync``: as a quorum of the ensemble knows it, not a server that lags.

        Cost: as ``leader``; with ``sync`` 2 requests, or 3 if nobody leads.
        """
        return self._shown_leader(self._seen(sync))

    def _shown_leader(self, leading: Leading | None) -> Candidate | None:
        if leading is None:
            return None
        return _candidate(leading.data, f"{self.path}/{leading.candidate}", leading.token)

    def candidates(self) -> list[Candidate]:
        """Who leads or would, first in line first. A process whose threads stand together shows once.

        Cost: 1 request and 1 for each candidate, 2 round trips.
        """
        found = self._read(wait_queue.contenders(self.path))
        return [_candidate(node.data, path, node.stat.czxid) for path, node in found]

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """``function(*args, **kwargs)`` was called while this process led, once; then it stepped down.

        Returns: what the function returned. Raises: what it raised; LockLostError if it was deposed meanwhile.
        Cost: as acquire and release.
        Source: recipes.txt, Leader Election: execute leader procedure.
        """
        with self:
            return function(*args, **kwargs)

    def __repr__(self) -> str:
        state, _ = self._repr_state()
        leads = "leads" if state == "locked" else "does not lead"
        return f"<distsync.recipes.Election object name={self.name!r} {leads} at {id(self):#x}>"
