"""Transaction and Participant: two-phase commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe
from distsync._client.payload_codec import reason_of
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
from distsync._signal_handlers import interruptible_at_entry, is_interrupt, raise_if_from_handler
from distsync.errors import ClientClosedError, DeadlineError, MismatchError, PayloadTooLargeError, UsageError

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Participant", "Transaction"]

#: Bytes that a ballot, or the mark of a present site, takes in the request that creates all znodes, besides the
#: site's name and twice the path.
BALLOT_BYTES = 90


def _checked_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """Return the sites in sorted order, so that the order of the argument does not matter."""
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
    """Return ``vote``, or raise TypeError: a forgotten return value must not count as a vote."""
    if not isinstance(vote, bool):
        raise TypeError(f"{by}: a vote is True for commit or False for abort, not {vote!r}")
    return vote


class _CurrentTransaction(threading.local):
    """The id of the transaction that the current thread began last."""

    id: str | None = None


class Transaction(SharedObject):
    """A two-phase commit: several sites do something all together, or not at all.

    Each site votes whether it can, and then learns whether it must. The decision is one atomic
    create. If the coordinator's session has ended, any site decides. One transaction of a name runs
    at a time.

    Args:
        sites: Names of the sites, at least one, all different.
        decided_by: ``"coordinator"`` if the coordinator decides, when it has seen all votes, with
            O(n) messages; ``"peers"`` if each site decides when it has seen them, with O(n²)
            messages and one step fewer.
        name: Name of the transaction, shared by all processes that use it. Without a name, a
            transaction assigned at module or class level is named after its variable; any other
            transaction gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the transaction's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given, or ``sites`` is not an iterable of str.
        ValueError: ``sites`` contains no name, an empty name or a name twice, or ``decided_by`` is
            not valid.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Znodes: ``<namespace>/transaction/<name>``, whose data is sites, decider and the last
        decisions; ``sites/s_<site>``, ephemeral; ``t_<id>``, whose data is the payload;
        ``t_<id>/ballot-<site>``, which becomes ``commit-<site>`` or ``abort-<site>``;
        ``t_<id>/seen-<site>``, one for each site that was present; ``t_<id>/open``, ``coordinator``
        (ephemeral) and ``decision``. When all sites have acknowledged, ``t_<id>`` is deleted.

        Source: ZooKeeper recipes, "Two-phased Commit".

    Example:
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
        """The names of the sites, sorted."""
        return self._terms.sites

    @property
    def decided_by(self) -> str:
        """The decider: ``"coordinator"`` or ``"peers"``."""
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
        """Begin a transaction, which then waits for the votes of all sites.

        Args:
            payload: Passed to all sites; encoded by the client's codec, pickle by default.
            timeout: Maximum wait for the end of the previous transaction, in seconds; 0 does not
                wait, None and -1 wait forever.

        Returns:
            The id of the transaction.

        Raises:
            DeadlineError: The previous transaction is not over in time, because a site that voted
                in it has not returned to learn the decision. Subclass of TimeoutError.
            CorruptNodeError: Only the decision of the previous transaction was deleted.
            MismatchError: Present members use other sites, or another decider.
            PayloadError: The payload cannot be encoded, or is too large.

        Note:
            Costs 3 requests, whatever the number of sites.

            If the session ends after the transaction has begun, sites that have voted stop waiting
            for the coordinator, and decide. If interrupted, the transaction is aborted if it had
            begun.

            Source: ZooKeeper recipes, "Two-phased Commit" ("a coordinator create a transaction node
            [...] and one child node per participating site"; "propagating the transaction can be
            done [...] by writing it in the transaction node").
        """
        seconds = validate_timeout(timeout, "call")
        data = self.client.codec.encode(payload, self.path)
        size = len(data) + 2 * sum(2 * len(self.path) + len(encoded(site)) + BALLOT_BYTES for site in self.sites)
        if size > self.client.codec.limit_bytes:
            raise PayloadTooLargeError(f"the request that begins {self.path}", size, self.client.codec.limit_bytes)
        self._mine.id = self._begun = str(self._run(self._core.begin(data), seconds))
        return self._begun

    def decide(self, timeout: float | None = None) -> bool:
        """Wait for the votes, and decide for good whether the transaction is committed.

        It is the transaction that this thread began last with this object, or the last one of this
        object if this thread began none. It is aborted as soon as a site votes for abort, or exits
        before its vote. It is committed once all sites have voted for commit.

        Args:
            timeout: Maximum wait for votes in seconds, after which the transaction is aborted; 0
                does not wait, None and -1 wait forever.

        Returns:
            True for commit and False for abort; `reason` says why.

        Raises:
            DeadlineError: No server answered in time. The decision is made by the votes that are
                there as soon as a server answers, and this may be called again. Subclass of
                TimeoutError.
            UsageError: No transaction was begun with this object.
            OutcomeUnknownError: The decision is too old to be remembered, or the transaction was
                deleted.
            CorruptNodeError: Only the decision was deleted.

        Note:
            Costs 13 requests if all sites have voted, and 3 more for each vote that arrives later,
            unless peers decide.

            If the session ends, the sites may decide, and this returns their decision. If
            interrupted, nothing is lost, and this may be called again.

            Source: ZooKeeper recipes, "Two-phased Commit" ("have only the coordinator notified of
            changes").
        """
        seconds = validate_timeout(timeout, "call")
        decision: Decision = self._run(self._core.decide(self._id(), self.sites), seconds)
        return decision.outcome == COMMIT

    def abort(self, reason: str = "the coordinator has aborted", *, timeout: float | None = None) -> bool:
        """Abort the transaction, unless it has been decided.

        It is the transaction that this thread began last with this object, or the last one of this
        object if this thread began none.

        Args:
            reason: Text that participants and `reason` show.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the transaction is aborted. False if it was committed before.

        Raises:
            UsageError: No transaction was begun with this object.
            OutcomeUnknownError: The decision is too old to be remembered, or the transaction was
                deleted.
            CorruptNodeError: Only the decision was deleted.
            DeadlineError: No server answered in time, and the transaction may or may not be
                aborted. Subclass of TimeoutError.

        Note:
            Costs 11 requests.
        """
        decision: Decision = self._ask(self._core.abort(self._id(), reason), timeout)
        return decision.outcome != COMMIT

    def _id(self) -> str:
        """Return the id of the transaction to decide."""
        transaction = self._mine.id or self._begun
        if transaction is None:
            raise UsageError(f"nothing was begun on {self.path} with this object: call begin() first")
        return transaction

    @property
    def outcome(self) -> str | None:
        """The decision: ``"commit"`` or ``"abort"``; None if there is none yet.

        It is that of the transaction that this thread began last with this object. If this thread
        began none, it is that of the last one of this object, and otherwise that of the latest
        transaction of any process.

        Raises:
            OutcomeUnknownError: The decision is too old to be remembered, or the transaction was
                deleted.
            CorruptNodeError: Only the decision was deleted.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in at most 2 round trips, and 1 more in 1 round trip if it is not
            decided.
        """
        decision: Decision | None = self._ask(self._core.latest(self._mine.id or self._begun))
        return decision.outcome if decision else None

    @property
    def reason(self) -> str:
        """The reason why the transaction was aborted; empty if it was not.

        The transaction is the one of `outcome`.

        Raises:
            OutcomeUnknownError: The decision is too old to be remembered, or the transaction was
                deleted.
            CorruptNodeError: Only the decision was deleted.
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in at most 2 round trips, and 1 more in 1 round trip if it is not
            decided.
        """
        decision: Decision | None = self._ask(self._core.latest(self._mine.id or self._begun))
        return decision.reason if decision else ""

    def votes(self, *, timeout: float | None = None) -> dict[str, str | None]:
        """Return the votes in the present transaction.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            For each site ``"commit"``, ``"abort"``, or None if it has not voted or has acknowledged
            the decision.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 4 requests in 2 round trips.
        """
        votes: dict[str, str | None] = self._ask(self._core.votes(), timeout)
        return votes

    def participant(
        self,
        site: str,
        prepare: Callable[[Any], Any] | None = None,
        commit: Callable[[Any], Any] | None = None,
        abort: Callable[[Any], Any] | None = None,
    ) -> Participant:
        """Return the participant of one site.

        Args:
            site: Name of the site.
            prepare: Called with the payload; returns the vote, True for commit and False for abort.
                None votes for commit.
            commit: Called with the payload when the transaction is committed; None calls nothing.
            abort: Called with the payload when the transaction is aborted; None calls nothing.

        Returns:
            The participant.

        Raises:
            ValueError: ``site`` is none of the sites.
            TypeError: A callback is not callable.

        Note:
            Costs no request.
        """
        return Participant(self, site, prepare, commit, abort)


class Participant:
    """A site of a Transaction, which does what all sites do, or nothing.

    ``prepare`` makes sure that the site can commit. An exception, or a result that is not a bool,
    is a vote for abort, with its text as the reason. When the decision is made, ``commit`` or
    ``abort`` is called.

    A site whose process exits after its vote finds the transaction again when it returns, and
    learns the decision. Its callback may then be called a second time, if the process exited before
    it had acknowledged the decision. A transaction that the site has prepared, but does not find
    when it returns, was aborted.

    A second process with the same site waits until the first one has left, and then takes its
    place.

    Args:
        transaction: The transaction.
        site: Name of the site, one of the transaction's.
        prepare: Called with the payload; returns the vote, True for commit and False for abort.
            None votes for commit.
        commit: Called with the payload when the transaction is committed; None calls nothing.
        abort: Called with the payload when the transaction is aborted; None calls nothing.

    Raises:
        ValueError: ``site`` is none of the sites.
        TypeError: ``transaction`` is not a Transaction, or a callback is not callable.

    Note:
        Source: ZooKeeper recipes, "Two-phased Commit".

    Example:
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
        except Exception as error:  # of any kind: this site cannot commit
            raise_if_from_handler(error)
            return False, reason_of(error)

    def _do(self, function: Callable[[Any], Any] | None, _: str, data: bytes) -> None:
        if function is not None:
            function(self._decoded(data))

    def take_part(self, timeout: float | None = None) -> str | None:
        """Take part in the next transaction: prepare, vote, learn the decision and carry it out.

        The callbacks are called in this thread. From the first call on the site is present, until
        `leave` or the end of the session, and a coordinator notices if its process exits.

        An error that ``commit`` or ``abort`` raises is raised here too. The next call then calls it
        again.

        Args:
            timeout: Maximum wait in seconds; 0 does not wait, None and -1 wait forever.

        Returns:
            ``"commit"`` or ``"abort"``; None on timeout. A vote then remains valid, and the next
            call continues with it.

        Raises:
            MismatchError: Present members use other sites, or another decider.
            UsageError: Another thread of this process takes part for this site.
            OutcomeUnknownError: The decision is too old to be remembered, or the transaction was
                deleted.
            CorruptNodeError: Only the decision was deleted.

        Note:
            Costs 18 requests and 3 watches. If peers decide, the deciding site sends 5 more, and
            each site 4 more for each vote after its own. Each time that another site cleans up or
            resigns at the same moment costs 3 or 4 more.

            If the session ends, the call continues in the next one. Before the vote, the site may
            then be considered absent, and the transaction be aborted. If interrupted, the prepared
            state is kept and a vote remains valid, so call this again. Completed work is not
            repeated.

            Source: ZooKeeper recipes, "Two-phased Commit" ("each site then processes the query and
            votes").
        """
        seconds = validate_timeout(timeout, "call")
        work = ParticipantCallbacks(self._vote, partial(self._do, self._commit), partial(self._do, self._abort))
        decision: Decision | None = self.transaction._run(self._side.take_part(work, describe()), seconds)
        return decision.outcome if decision else None

    def run(self) -> None:
        """Take part in one transaction after the other, until the client is closed.

        An error that ``commit`` or ``abort`` raises ends this, and so do the errors of `take_part`.
        """
        try:
            while True:
                self.take_part()
        except ClientClosedError:
            return

    def vote(self, commit: bool, reason: str = "", *, timeout: float | None = None) -> None:
        """Vote in the present transaction, without calling ``prepare``.

        Args:
            commit: True for commit, False for abort.
            reason: Reason for abort, which participants and the coordinator can read.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            VoteRefusedError: The transaction was decided before this vote. The error contains the
                decision.
            UsageError: No transaction waits for a vote of this site.
            OutcomeUnknownError: The transaction was deleted.
            TypeError: ``commit`` is neither True nor False.
            DeadlineError: No server answered in time, and the vote may or may not be cast. Subclass
                of TimeoutError.

        Note:
            Costs 2 requests.
        """
        self.transaction._ask(self._side.vote(_checked_vote(commit, "vote"), str(reason)), timeout)

    def leave(self, *, timeout: float | None = None) -> None:
        """Leave the sites; a transaction in which this site has not voted is aborted.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            DeadlineError: No server answered in time. The site leaves in the background. Subclass
                of TimeoutError.

        Note:
            Costs 2 requests.

            If interrupted, the site leaves in the background, unless it takes part again before
            that.
        """
        try:
            self.transaction._ask(self._side.leave(), timeout)
        except BaseException as error:  # perhaps interrupted before it began
            if is_interrupt(error) or isinstance(error, DeadlineError):
                self.transaction.client.background(self._side.left())
            raise

    def __enter__(self) -> Participant:
        return self

    @interruptible_at_entry
    def __exit__(self, *error: object) -> None:
        try:
            self.leave()
        except BaseException as error:  # perhaps interrupted before it began
            if is_interrupt(error):
                self.transaction.client.background(self._side.left())
            raise

    def __repr__(self) -> str:
        return f"<distsync.recipes.Participant {self.site!r} of {self.transaction.name!r}>"
