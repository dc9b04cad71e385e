"""Two-phase commit: the znodes, their records, and ``resolve``, which derives the decision from the
votes.

Source: recipes.txt, "Two-phased Commit".

Znodes:
  ``<path>``                       data: the configuration, the id of the current transaction, the last decisions
  ``<path>/sites/s_<site>``        ephemeral znode of a site that takes part
  ``<path>/t_<id>``                the current transaction, data: its payload
  ``<path>/t_<id>/open``           deleted with the decision: afterwards no vote is possible
  ``<path>/t_<id>/coordinator``    ephemeral znode of the coordinator
  ``<path>/t_<id>/ballot-<site>``  not voted yet; a vote replaces it with ``commit-<site>`` or ``abort-<site>``,
                                   which the site deletes when it has carried out the decision
  ``<path>/t_<id>/seen-<site>``    the site was present at the beginning, or joined later
  ``<path>/t_<id>/decision``       data: the decision and its reason
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import Any, NamedTuple
from urllib.parse import quote

from distsync._protocols.retries import DECODE_ERRORS
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError

COMMIT, ABORT = "commit", "abort"
COORDINATOR, PEERS = "coordinator", "peers"

#: Number of decisions that are remembered for sites that return late.
REMEMBERED = 20


def encoded(site: str) -> str:
    """Encode ``site`` for the name of a znode."""
    return quote(site, safe="", errors="surrogatepass")


class Decision(NamedTuple):
    """The decision on the transaction of this id, and its reason."""

    id: str
    outcome: str
    reason: str = ""

    @property
    def data(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def read(cls, path: str, data: bytes) -> Decision:
        """Parse a decision. Raises CorruptNodeError."""
        try:
            made = cls(*json.loads(data))
        except DECODE_ERRORS as error:
            raise_if_from_handler(error)
            raise CorruptNodeError(path, data[:80]) from None
        if made.outcome not in (COMMIT, ABORT):
            raise CorruptNodeError(path, data[:80])
        return made


class TransactionConfig(NamedTuple):
    """The configuration on which all members have to agree."""

    sites: tuple[str, ...]
    decided_by: str = COORDINATOR


class TransactionRecord(NamedTuple):
    """The data of the object's znode."""

    terms: TransactionConfig
    current: str | None = None
    past: tuple[Decision, ...] = ()

    @property
    def data(self) -> bytes:
        return json.dumps([self.terms.sites, self.terms.decided_by, self.current, self.past]).encode()

    @classmethod
    def read(cls, path: str, data: bytes) -> TransactionRecord:
        """Parse the record. Raises CorruptNodeError."""
        try:
            sites, decided_by, current, past = json.loads(data)
            return cls(TransactionConfig(tuple(sites), decided_by), current, tuple(Decision(*each) for each in past))
        except DECODE_ERRORS as error:
            raise_if_from_handler(error)
            raise CorruptNodeError(path, data[:80]) from None

    def begun(self, transaction: str) -> TransactionRecord:
        return self._replace(current=transaction)

    def ended(self, decision: Decision) -> TransactionRecord:
        current = None if self.current == decision.id else self.current
        return self._replace(current=current, past=(*self.past, decision)[-REMEMBERED:])

    def decision(self, transaction: str) -> Decision | None:
        """Return the decision on an ended transaction; None if it has not ended, or is forgotten."""
        return next((decision for decision in self.past if decision.id == transaction), None)


class VoteSnapshot(NamedTuple):
    """A listing of the transaction's znode; names of sites are encoded."""

    names: tuple[str, ...]

    def sites(self, kind: str) -> set[str]:
        """Return the sites that have a ``ballot``, or have voted ``commit`` or ``abort``."""
        return {name[len(kind) + 1 :] for name in self.names if name.startswith(f"{kind}-")}

    @property
    def is_open(self) -> bool:
        return "open" in self.names and "decision" not in self.names

    @property
    def has_coordinator(self) -> bool:
        return "coordinator" in self.names

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is decided, and each site that voted has carried out the decision."""
        return not (self.is_open or self.sites(COMMIT) or self.sites(ABORT))

    def vote_of(self, site: str) -> str | None:
        """Return ``commit``, ``abort``, ``ballot`` for no vote, or None for a site that has
        acknowledged.
        """
        return next((kind for kind in (COMMIT, ABORT, "ballot") if f"{kind}-{encoded(site)}" in self.names), None)


class Resolution(NamedTuple):
    """The decision that follows from the votes."""

    outcome: str
    reason: str = ""
    responsible: str | None = None  # the encoded name of the site whose vote contains the reason
    dead: str | None = None  # the encoded name of a site that must not have voted in between


def resolve(
    view: VoteSnapshot, sites: Iterable[str], present: Set[str], has_coordinator: bool = True
) -> Resolution | None:
    """Return the decision as soon as the votes determine it; otherwise None.

    ``present`` are the sites present after ``view`` was read. A site that was seen before and is
    not among them has left.

    "As soon as all sites have all votes, they can decide [...] a node can decide abort earlier if
    some site votes for abort". The decision is also abort if a site, or the coordinator, has left
    before all had voted.
    """
    against = view.sites(ABORT)
    missing = {encoded(site) for site in sites} - view.sites(COMMIT)
    if against:
        return Resolution(ABORT, f"{min(against)} voted abort", min(against))
    if not missing:
        return Resolution(COMMIT)
    robbed = missing - view.sites("ballot")
    if robbed:
        return missing_ballot(min(robbed))
    gone = (missing & view.sites("seen")) - present
    if gone:
        return Resolution(ABORT, f"{min(gone)} left before its vote", dead=min(gone))
    if not has_coordinator:
        return Resolution(ABORT, f"the coordinator left before {min(missing)} had voted")
    return None


def missing_ballot(site: str) -> Resolution:
    """Return the resolution for a site with neither a ballot nor a vote in an undecided transaction."""
    return Resolution(ABORT, f"the ballot or vote of {site} was deleted")


def resolve_timeout(view: VoteSnapshot, sites: Iterable[str], present: Set[str]) -> Resolution:
    """Return the decision at the timeout."""
    return resolve(view, sites, present) or Resolution(
        ABORT, f"no vote of {', '.join(sorted(view.sites('ballot')))} in time"
    )


def named(transaction: str) -> str:
    """Return the name of the transaction's znode."""
    return f"t_{transaction}"


def initial_nodes(terms: TransactionConfig, present: Set[str]) -> list[str]:
    """Return the children of a new transaction, except its coordinator."""
    sites = [encoded(site) for site in terms.sites]
    return ["open", *(f"ballot-{site}" for site in sites), *(f"seen-{site}" for site in sites if site in present)]


def listed(reply: Any) -> VoteSnapshot:
    """Return the snapshot of a listing."""
    return VoteSnapshot(reply.names)


def present_in(reply: Any) -> set[str]:
    """Return the present sites (encoded), given a listing or the error in its place."""
    return {name.removeprefix("s_") for name in getattr(reply, "names", ())}
