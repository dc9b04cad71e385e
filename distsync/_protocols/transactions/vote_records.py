"""What a two-phase commit looks like in znodes, and what follows from what is seen there.

Source: recipes.txt, "Two-phased Commit".

Rules for this file: pure, and nothing in it awaits: names, records, and ``resolve``, which decides.

Picture: ``<path>``                          data: the terms, the id of the present transaction, the last decisions
         ``<path>/sites/s_<site>``           ephemeral, one for each site that takes part
         ``<path>/t_<id>``                   the present transaction, data: its payload
         ``<path>/t_<id>/open``              goes with the decision: without it there is no vote
         ``<path>/t_<id>/coordinator``       ephemeral, of who began it
         ``<path>/t_<id>/ballot-<site>``     not voted yet; a vote turns it into ``commit-<site>`` or ``abort-<site>``,
                                             which goes when the site has done what was decided
         ``<path>/t_<id>/seen-<site>``       this site was there when it began, or came later
         ``<path>/t_<id>/decision``          data: what was decided, and why
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import Any, NamedTuple
from urllib.parse import quote

from distsync._protocols.retries import DECODE_ERRORS
from distsync.errors import CorruptNodeError

COMMIT, ABORT = "commit", "abort"
COORDINATOR, PEERS = "coordinator", "peers"

#: So many decisions are remembered: who was away meanwhile still finds the one that he waits for.
REMEMBERED = 20


def encoded(site: str) -> str:
    """``site`` as the end of a znode's name."""
    return quote(site, safe="", errors="surrogatepass")


class Decision(NamedTuple):
    """What was decided about the transaction of this id, and why."""

    id: str
    outcome: str
    reason: str = ""

    @property
    def data(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def read(cls, path: str, data: bytes) -> Decision:
        """Raises CorruptNodeError."""
        try:
            made = cls(*json.loads(data))
        except DECODE_ERRORS:
            raise CorruptNodeError(path, data[:80]) from None
        if made.outcome not in (COMMIT, ABORT):
            raise CorruptNodeError(path, data[:80])
        return made


class TransactionConfig(NamedTuple):
    """What all members have to agree on."""

    sites: tuple[str, ...]
    decided_by: str = COORDINATOR


class TransactionRecord(NamedTuple):
    """What the znode of the object says."""

    terms: TransactionConfig
    current: str | None = None
    past: tuple[Decision, ...] = ()

    @property
    def data(self) -> bytes:
        return json.dumps([self.terms.sites, self.terms.decided_by, self.current, self.past]).encode()

    @classmethod
    def read(cls, path: str, data: bytes) -> TransactionRecord:
        """Raises CorruptNodeError."""
        try:
            sites, decided_by, current, past = json.loads(data)
            return cls(TransactionConfig(tuple(sites), decided_by), current, tuple(Decision(*each) for each in past))
        except DECODE_ERRORS:
            raise CorruptNodeError(path, data[:80]) from None

    def begun(self, transaction: str) -> TransactionRecord:
        return self._replace(current=transaction)

    def ended(self, decision: Decision) -> TransactionRecord:
        current = None if self.current == decision.id else self.current
        return self._replace(current=current, past=(*self.past, decision)[-REMEMBERED:])

    def decision(self, transaction: str) -> Decision | None:
        """What was decided about a transaction that is over; None: it is not, or it is forgotten."""
        return next((decision for decision in self.past if decision.id == transaction), None)


class VoteSnapshot(NamedTuple):
    """What a listing of the transaction's znode says; names of sites are encoded."""

    names: tuple[str, ...]

    def sites(self, kind: str) -> set[str]:
        """Those that have a ``ballot``, or have voted ``commit`` or ``abort``."""
        return {name[len(kind) + 1 :] for name in self.names if name.startswith(f"{kind}-")}

    @property
    def is_open(self) -> bool:
        return "open" in self.names and "decision" not in self.names

    @property
    def has_coordinator(self) -> bool:
        return "coordinator" in self.names

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is decided, and each site that voted has done what was decided."""
        return not (self.is_open or self.sites(COMMIT) or self.sites(ABORT))

    def vote_of(self, site: str) -> str | None:
        """``commit``, ``abort``, ``ballot`` for none, None for a site that has acknowledged."""
        return next((kind for kind in (COMMIT, ABORT, "ballot") if f"{kind}-{encoded(site)}" in self.names), None)


class Resolution(NamedTuple):
    """What follows from the votes."""

    outcome: str
    reason: str = ""
    responsible: str | None = None  # the encoded name of the site whose vote says more
    dead: str | None = None  # the one that must not have voted meanwhile


def resolve(
    view: VoteSnapshot, sites: Iterable[str], present: Set[str], has_coordinator: bool = True
) -> Resolution | None:
    """What the decision must be, as soon as that is clear; None: not yet. ``present``: the sites that were there after
    ``view`` was read; who was seen before, and is none of them, is dead.

    "As soon as all sites have all votes, they can decide [...] a node can decide abort earlier if some site votes for
    abort": and also if a site died before its vote, or the coordinator did before all had voted.
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
        return Resolution(ABORT, f"{min(gone)} died before its vote", dead=min(gone))
    if not has_coordinator:
        return Resolution(ABORT, f"the coordinator died before {min(missing)} had voted")
    return None


def missing_ballot(site: str) -> Resolution:
    """What follows where a site has neither a ballot nor a vote, though it is not decided."""
    return Resolution(ABORT, f"somebody has deleted the ballot or the vote of {site}")


def resolve_timeout(view: VoteSnapshot, sites: Iterable[str], present: Set[str]) -> Resolution:
    """What the decision is when nobody waits any longer."""
    return resolve(view, sites, present) or Resolution(
        ABORT, f"no vote of {', '.join(sorted(view.sites('ballot')))} in time"
    )


def named(transaction: str) -> str:
    """The name of the transaction's znode."""
    return f"t_{transaction}"


def initial_nodes(terms: TransactionConfig, present: Set[str]) -> list[str]:
    """What is below a transaction that was just begun, but for its coordinator."""
    sites = [encoded(site) for site in terms.sites]
    return ["open", *(f"ballot-{site}" for site in sites), *(f"seen-{site}" for site in sites if site in present)]


def listed(answer: Any) -> VoteSnapshot:
    """The view of a listing."""
    return VoteSnapshot(answer.names)


def present_in(answer: Any) -> set[str]:
    """The sites that are there, encoded, by a listing of theirs (or the error in its place)."""
    return {name.removeprefix("s_") for name in getattr(answer, "names", ())}
