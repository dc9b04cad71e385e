"""Transaction and Participant: two-phase commit.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe
from distsync._objects.base import SharedObject
from distsync._objects.validation import validate_timeout
from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.participant import ParticipantCallbacks, ParticipantCore
from distsync._protocols.transactions.vote_records import (
    COMMIT,
    COORDINATOR,
    PEERS,
    Decision,
    TransactionConfig,
    encoded,
)
from distsync.errors import ClientClosedError, MismatchError, PayloadTooLargeError, UsageError

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Participant", "Transaction"]

#: What a ballot, or the mark of a site that is there, takes of the request that makes all (bytes), beside the site's
#: name and the path twice.
BALLOT_BYTES = 90


def _checked_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """In their one order, so that who lists them otherwise means the same."""
    if isinstance(sites, (str, bytes)) or not isinstance(sites, Iterable):
        raise TypeError(f"sites must be several names, not {sites!r}")
    names = list(sites)
    wrong = [site for site in names if not isinstance(site, str)]
    if wrong:
        raise TypeError(f"a site is called by a str, not {type(wrong[0]).__name__}")
    twice = sorted({site for site in names if names.count(site) > 1})
    if not names or "" in names or twice:
        raise ValueError(f"sites must be one name or more, none empty and each another, not {names!r}")
    return tuple(sorted(names))


def _checked_vote(vote: Any, by: str) -> bool:
    """A "no", or a forgotten return, must not count as what nobody meant."""
    if not isinstance(vote, bool):
        raise TypeError(f"{by}: a vote is True for commit or False for abort, not {vote!r}")
    return vote


class _CurrentTransaction(threading.local):
    """What the running thread began last."""

    id: str | None = None


class Transaction(SharedObject):
    """What several sites do all, or none: each says whether it can, and then learns whether it must.

    ``sites`` are their names; ``decided_by`` says who decides: "coordinator", when it has seen all votes (O(n)
    messages), or "peers", each site when it has seen them (O(n²), and a step faster). Whoever it is, the decision is
    one atomic create; and when the coordinator is dead, any site decides. One transaction of a name goes on at a time.

    Source: recipes.txt, Two-phased Commit.

    Znodes: ``<namespace>/transaction/<name>``, data: sites, decider, past decisions; ``sites/s_<site>``, ephemeral;
        ``t_<id>``, the payload; ``t_<id>/ballot-<site>``, which becomes ``commit-<site>`` or ``abort-<site>``;
        ``t_<id>/seen-<site>``, for who was there; ``t_<id>/open``, ``coordinator`` (ephemeral), ``decision``. When all
        have acknowledged, ``t_<id>`` goes.

    >>> order = Transaction(["stock"], name="order")
    >>> stock = order.participant("stock", prepare=lambda item: item == "hammer")
    >>> _ = order.begin("hammer")
    >>> stock.vote(True), order.decide(), order.outcome
    (None, True, 'commit')
    """

    __module__ = "distsync.recipes"
    _kind = "transaction"

    def __init__(
        self,
        sites: Iterable[str],
        decided_by: str = COORDINATOR,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        if decided_by not in (COORDINATOR, PEERS):
            raise ValueError(f"decided_by must be {COORDINATOR!r} or {PEERS!r}, not {decided_by!r}")
        self._terms = TransactionConfig(_checked_sites(sites), decided_by)
        self._mine = _CurrentTransaction()
        self._begun: str | None = None
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(self._terms)

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names."""
        return self._terms.sites

    @property
    def decided_by(self) -> str:
        """Who decides: "coordinator" or "peers"."""
        return self._terms.decided_by

    @property
    def _core(self) -> TransactionCore:
        core = self._shared_state(partial(TransactionCore, terms=self._terms))
        if core.idle:
            core.terms = self._terms
        if core.terms.sites != self.sites:
            raise MismatchError("the list of sites", self.path, list(core.terms.sites), list(self.sites))
        if core.terms != self._terms:
            raise MismatchError("the decider", self.path, core.terms.decided_by, self.decided_by)
        return core

    def begin(self, payload: Any = None, timeout: float | None = None) -> str:
        """A transaction with this payload waits for the votes of all sites, whoever dies from now on.

        Units: seconds to wait for the end of the one before; None: without end.
        Returns: its id.
        Raises: DeadlineError (a TimeoutError) if the one before is not over in time: a site that voted in it was not
            back to learn the decision; CorruptNodeError if somebody has deleted its decision only; MismatchError for
            other sites, or another decider, than members were told;
            PayloadError for a payload that does not pickle or is too large.
        On loss: of the session after it has begun: sites that have voted do not wait any longer, and decide.
        On cancel: it is aborted if it had begun.
        Cost: 3 requests, whatever the number of sites.
        Source: recipes.txt, Two-phased Commit ("a coordinator create a transaction node [...] and one child node per
            participating site"; "propagating the transaction can be done [...] by writing it in the transaction node").
        """
        data = self.client.codec.encode(payload, self.path)
        size = len(data) + 2 * sum(2 * len(self.path) + len(encoded(site)) + BALLOT_BYTES for site in self.sites)
        if size > self.client.codec.limit_bytes:
            raise PayloadTooLargeError(f"the request that begins {self.path}", size, self.client.codec.limit_bytes)
        self._mine.id = self._begun = str(self._run(self._core.begin(data), validate_timeout(timeout, "call")))
        return self._begun

    def decide(self, timeout: float | None = None) -> bool:
        """It is decided whether what this thread (else: this object) began last is committed or aborted, for good.

        Aborted as soon as a site votes so, or dies before its vote; committed once all have voted for it.

        Units: seconds to wait for votes, after which it is aborted; None: without end.
        Returns: True for commit, False for abort; `reason` says why.
        Raises: DeadlineError (a TimeoutError) if no server answers when the time is over: it is decided as soon as one
            does, by the votes that are there then, and may be asked for again; UsageError if nothing was begun;
            OutcomeUnknownError if it was decided so long ago that it is forgotten, or if somebody has deleted it;
            CorruptNodeError if he has deleted the decision only.
        On loss: of the session: sites may decide meanwhile, and this learns what they decided.
        On cancel: nothing; it may be called again.
        Cost: 13 requests when all have voted; 3 more for each vote that comes, unless peers decide.
        Source: recipes.txt, Two-phased Commit ("have only the coordinator notified of changes").
        """
        decision: Decision = self._run(self._core.decide(self._id(), self.sites), validate_timeout(timeout, "call"))
        return decision.outcome == COMMIT

    def abort(self, reason: str = "the coordinator has aborted") -> bool:
        """What this thread (else: this object) began last is aborted, unless it was decided. Returns: whether it is so.

        Raises: UsageError if nothing was begun; OutcomeUnknownError, CorruptNodeError as decide.
        Cost: 11 requests.
        """
        decision: Decision = self._run(self._core.abort(self._id(), reason))
        return decision.outcome != COMMIT

    def _id(self) -> str:
        """What is to be decided."""
        transaction = self._mine.id or self._begun
        if transaction is None:
            raise UsageError(f"nothing was begun on {self.path} with this object: call begin() first")
        return transaction

    @property
    def outcome(self) -> str | None:
        """The decision: "commit", "abort", None: not yet. Of what this thread, else this object began last, else of
        the latest that anybody did.

        Raises: OutcomeUnknownError, CorruptNodeError as decide.
        Cost: 2 requests, at most 2 round trips; one more of each while it is not decided.
        """
        decision: Decision | None = self._read(self._core.latest(self._mine.id or self._begun))
        return decision.outcome if decision else None

    @property
    def reason(self) -> str:
        """Why it was aborted. Raises, Cost: as outcome."""
        decision: Decision | None = self._read(self._core.latest(self._mine.id or self._begun))
        return decision.reason if decision else ""

    def votes(self) -> dict[str, str | None]:
        """How each site has voted in the present transaction: "commit", "abort", None: not yet, or it is through.

        Cost: 4 requests, 2 round trips.
        """
        votes: dict[str, str | None] = self._read(self._core.votes())
        return votes

    def participant(
        self,
        site: str,
        prepare: Callable[[Any], Any] | None = None,
        commit: Callable[[Any], Any] | None = None,
        abort: Callable[[Any], Any] | None = None,
    ) -> Participant:
        """The side of one site: see Participant. Cost: no request."""
        return Participant(self, site, prepare, commit, abort)


class Participant:
    """A site of a Transaction, which does what all do, or nothing.

    ``prepare(payload)`` makes sure that it can, and says so: True is a vote for commit, False for abort (without it:
    commit); an exception is a vote for abort, with its text as reason, and so is anything else that it returns. When
    that is decided, ``commit(payload)`` or ``abort(payload)`` is called. A site that dies after its vote finds the
    transaction again when it comes back, and is told; so it may be told twice, if it died before it had acknowledged.
    What it has prepared, and finds no word of when it comes back, was aborted.

    A second process with the same site waits until the first one is gone, and then takes its place.

    Source: recipes.txt, Two-phased Commit.

    >>> order = Transaction(["shop"], name="example")
    >>> shop = order.participant("shop", prepare=lambda item: item == "hammer", commit=print)
    >>> _ = order.begin("hammer")
    >>> shop.vote(True); order.decide()
    True
    >>> shop.take_part()
    hammer
    'commit'
    >>> shop.leave()
    """

    __module__ = "distsync.recipes"

    def __init__(
        self,
        transaction: Transaction,
        site: str,
        prepare: Callable[[Any], Any] | None = None,
        commit: Callable[[Any], Any] | None = None,
        abort: Callable[[Any], Any] | None = None,
    ) -> None:
        if not isinstance(transaction, Transaction):
            raise TypeError(f"transaction must be a Transaction, not {type(transaction).__name__}")
        if site not in transaction.sites:
            raise ValueError(f"site {site!r} is none of the sites {list(transaction.sites)}")
        for name, each in (("prepare", prepare), ("commit", commit), ("abort", abort)):
            if each is not None and not callable(each):
                raise TypeError(f"{name} must be callable, not {type(each).__name__}")
        self.transaction = transaction
        self.site = site
        self._prepare, self._commit, self._abort = prepare, commit, abort

    @property
    def _side(self) -> ParticipantCore:
        return ParticipantCore(self.transaction._core, self.site)

    def _decoded(self, data: bytes) -> Any:
        return self.transaction.client.codec.decode(data, self.transaction.path)

    def _vote(self, _: str, data: bytes) -> tuple[bool, str]:
        try:
            return self._prepare is None or _checked_vote(self._prepare(self._decoded(data)), "prepare"), ""
        except Exception as error:  # whatever it is: this site cannot
            return False, f"{type(error).__name__}: {error}"

    def _do(self, function: Callable[[Any], Any] | None, _: str, data: bytes) -> None:
        if function is not None:
            function(self._decoded(data))

    def take_part(self, timeout: float | None = None) -> str | None:
        """The next transaction is through here: prepared, voted, decided, and done as was decided.

        The functions are called in this thread. From the first call on the site is there, until `leave` or the end of
        the session: a coordinator sees it die.

        Units: seconds; None: without end.
        Returns: "commit" or "abort"; None if that was not in time: a vote stands, the next call goes on with it.
        Raises: what ``commit`` or ``abort`` raises (the next call calls it again); MismatchError for other sites, or
            another decider, than members were told; UsageError if another thread of this process is at it;
            OutcomeUnknownError for one that was decided so long ago that it is forgotten, or that somebody has
            deleted; CorruptNodeError if he has deleted the decision only.
        On loss: of the session: it goes on; but before the vote it may be taken for dead, and all is aborted.
        On cancel: what was prepared stays prepared, a vote stands: call it again; what was done is not done again.
        Cost: 18 requests, 3 watches; with peers as decider 5 more for who decides, 4 more for each vote after its own;
            3 or 4 more each time that another one clears up, or steps down, in the same moment.
        Source: recipes.txt, Two-phased Commit ("each site then processes the query and votes").
        """
        work = ParticipantCallbacks(self._vote, partial(self._do, self._commit), partial(self._do, self._abort))
        decision: Decision | None = self.transaction._run(
            self._side.take_part(work, describe()), validate_timeout(timeout, "call")
        )
        return decision.outcome if decision else None

    def run(self) -> None:
        """Takes part in one transaction after the other, until the client is closed."""
        try:
            while True:
                self.take_part()
        except ClientClosedError:
            return

    def vote(self, commit: bool, reason: str = "") -> None:
        """This site has voted in the present transaction, without ``prepare``.

        Raises: VoteRefusedError if it was decided before, with the decision; UsageError if there is no transaction;
            OutcomeUnknownError if somebody has deleted it; TypeError for what is neither True nor False.
        Cost: 2 requests.
        """
        self.transaction._run(self._side.vote(_checked_vote(commit, "vote"), str(reason)))

    def leave(self) -> None:
        """This site is there no more; a transaction in which it has not voted is aborted.

        On cancel: it goes all the same, unless it takes part again before.
        Cost: 2 requests.
        """
        try:
            self.transaction._run(self._side.leave())
        except Exception:
            raise
        except BaseException:  # perhaps interrupted before it began
            self.transaction.client.background(self._side.left())
            raise

    def __enter__(self) -> Participant:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.leave()
        except Exception:
            raise
        except BaseException:  # perhaps interrupted before it began
            self.transaction.client.background(self._side.left())
            raise

    def __repr__(self) -> str:
        return f"<distsync.recipes.Participant {self.site!r} of {self.transaction.name!r}>"
