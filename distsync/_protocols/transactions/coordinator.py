"""Two-phase commit: the coordinator, and what both sides share: reading, deciding, cleaning up.

Source: recipes.txt, "Two-phased Commit". See vote_records.py for the znodes, participant.py for the
other side.

One request creates a transaction with its ballots; one request decides it, which succeeds only for
the first client that sends it. Both can be repeated after a lost reply, because the znodes show
whether they were executed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from distsync._protocols.retries import INTERRUPTED, ensure, parent_of, read, read_all
from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Guid,
    Multi,
    SetData,
    Signal,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.transactions.vote_records import (
    ABORT,
    COMMIT,
    COORDINATOR,
    Decision,
    Resolution,
    TransactionConfig,
    TransactionRecord,
    VoteSnapshot,
    encoded,
    initial_nodes,
    listed,
    named,
    present_in,
    resolve,
    resolve_timeout,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OutcomeUnknownError,
)

CONFLICT_ERRORS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


class VotesAndMembers(NamedTuple):
    """The votes, and the present sites (encoded)."""

    view: VoteSnapshot
    present: set[str]


class Prepared(NamedTuple):
    """What a site has prepared before its vote: the vote, the reason, the transaction's payload."""

    commit: bool
    reason: str
    data: bytes


class TransactionCore:
    """In-process state of the transactions of one name, shared by all its threads."""

    def __init__(self, path: str, terms: TransactionConfig) -> None:
        self.path = path
        self.terms = terms
        #: What the sites of this process have prepared, by transaction and site.
        self.prepared: dict[tuple[str, str], Prepared] = {}
        #: Transactions and sites whose decision was carried out but not acknowledged yet.
        self.done: set[tuple[str, str]] = set()
        self.working: set[str] = set()
        #: Sites that will leave in the background, unless they join again before.
        self.to_leave: set[str] = set()
        #: Sites that are leaving, each with a signal that fires when it has left.
        self.leaving: dict[str, Signal] = {}

    @property
    def idle(self) -> bool:
        """Whether no site of this process is active."""
        return not (self.working or self.prepared or self.done or self.to_leave or self.leaving)

    @property
    def sites_path(self) -> str:
        """Path of the parent of the sites' znodes."""
        return f"{self.path}/sites"

    def node(self, transaction: str) -> str:
        return f"{self.path}/{named(transaction)}"

    # Reading

    async def record(self, watch: Watch | None = None) -> tuple[TransactionRecord, int]:
        """Return the record of the object's znode, which is created if necessary, and its version.
        Raises MismatchError.
        """
        while True:
            try:
                node = await read(GetData(self.path, watch))
            except NoNodeError:
                await self._make()
                continue
            record = TransactionRecord.read(self.path, node.data)
            if record.terms == self.terms:
                return record, node.stat.version
            await self._agree(record, node.stat.version)

    async def _make(self) -> None:
        await ensure(parent_of(self.path))
        try:
            await Multi((Create(self.path, TransactionRecord(self.terms).data), Create(self.sites_path)))
        except (*CONFLICT_ERRORS, *INTERRUPTED):
            await Connected()

    async def _agree(self, record: TransactionRecord, version: int) -> None:
        """Replace the configuration if no site uses the old one any more. Raises MismatchError."""
        try:
            present = await read(Children(self.sites_path))
            if present.names or record.current:
                raise self._mismatch(record.terms)
            await read(SetData(self.path, record._replace(terms=self.terms).data, version))
        except CONFLICT_ERRORS:
            await self.restore()

    async def restore(self) -> None:
        """Create the parent of the sites' znodes again if it was deleted."""
        with suppress(*CONFLICT_ERRORS, *INTERRUPTED):
            await Create(self.sites_path)
        await Connected()

    def _mismatch(self, found: TransactionConfig) -> MismatchError:
        if found.sites != self.terms.sites:
            return MismatchError("the list of sites", self.path, list(found.sites), list(self.terms.sites))
        return MismatchError("the decider", self.path, found.decided_by, self.terms.decided_by)

    async def read_votes(
        self, transaction: str, watch: Watch | None = None, votes: bool = True
    ) -> VotesAndMembers | None:
        """Return the votes and the present sites; None if the transaction has ended.

        ``watch`` fires when a site joins or leaves and when the transaction is decided; with
        ``votes``, also at each vote.
        """
        node = self.node(transaction)
        view = Children(node, watch) if votes or watch is None else Children(node)
        _, listing, sites = await read_all(GetData(f"{node}/open", watch), view, Children(self.sites_path, watch))
        return None if isinstance(listing, NoNodeError) else VotesAndMembers(listed(listing), present_in(sites))

    async def decision(self, transaction: str) -> Decision | None:
        """Return the decision; None if there is none yet. Raises OutcomeUnknownError if it is
        forgotten.
        """
        path = f"{self.node(transaction)}/decision"
        decided, above = await read_all(GetData(path), GetData(self.path))
        if not isinstance(decided, NoNodeError):
            return Decision.read(path, decided.data)
        record = (
            TransactionRecord(self.terms)
            if isinstance(above, NoNodeError)
            else TransactionRecord.read(self.path, above.data)
        )
        return None if record.current == transaction else self._remembered(record, transaction)

    def _remembered(self, record: TransactionRecord, transaction: str) -> Decision:
        past = record.decision(transaction)
        if past is None:
            raise OutcomeUnknownError(f"transaction {transaction}", self.path, "memory of past ones")
        return past

    async def ended(self, transaction: str) -> Decision:
        """Return the decision on a transaction that is no longer open.

        Raises OutcomeUnknownError if the decision was deleted, or CorruptNodeError if only part of
        the transaction was.
        """
        while True:
            decision = await self.decision(transaction)
            if decision is not None:
                return decision
            if await read(Exists(self.node(transaction))) is not None:
                raise CorruptNodeError(self.node(transaction), "neither open nor a decision")
            await self.forget(transaction)

    async def forget(self, transaction: str) -> bool:
        """Forget the current transaction if its znode was deleted, so that the next one can begin.

        Returns whether it is known not to be the current one.
        """
        node = self.node(transaction)
        with suppress(*CONFLICT_ERRORS, *INTERRUPTED):
            above = await read(GetData(self.path))
            record = TransactionRecord.read(self.path, above.data)
            if record.current == transaction:
                ended = SetData(self.path, record._replace(current=None).data, above.stat.version)
                await Multi((Create(node), Delete(node), ended))
            return True
        await Connected()
        return False

    # Beginning

    async def begin(self, data: bytes) -> str:
        """Begin a transaction with this payload, and return its id.

        Raises DeadlineError if the previous transaction does not end in time.
        """
        guid, asked = await Guid(), False
        try:
            while True:
                watch = Watch()
                record, version = await self.record(watch)
                if record.current == guid or record.decision(guid):
                    break  # the reply was lost
                if record.current is None:
                    asked = True
                    if await self._start(guid, data, record, version):
                        break
                elif not await self._finish_foreign(record.current, watch) and await Wait(watch) is WakeReason.DEADLINE:
                    raise DeadlineError(await self._explain_timeout(record.current))
        except BaseException:
            if asked:
                await Background(self.abort(guid, "the coordinator gave up while it began"))
            raise
        return guid

    async def _start(self, guid: str, data: bytes, record: TransactionRecord, version: int) -> bool:
        """Create all znodes of a transaction with one request.

        The request checks the version of the sites' parent, which each joining site increments: no
        site can join unnoticed.
        """
        node = self.node(guid)
        mine = Create(f"{node}/coordinator", ephemeral=True)
        try:
            sites = await read(Children(self.sites_path))
            below = (Create(f"{node}/{name}") for name in initial_nodes(self.terms, present_in(sites)))
            current = SetData(self.path, record.begun(guid).data, version)
            await Multi((current, Check(self.sites_path, sites.stat.version), Create(node, data), mine, *below))
        except (*CONFLICT_ERRORS, *INTERRUPTED) as error:
            await (self.restore() if isinstance(error, NoNodeError) else Connected())
            return False
        return True

    async def _finish_foreign(self, transaction: str, watch: Watch) -> bool:
        """Advance the transaction of another coordinator. Return False, with ``watch`` set, if there
        is nothing to do.
        """
        sight = await self.read_votes(transaction, watch)
        if sight is None:
            await self.forget(transaction)
            return True
        if not sight.view.is_open:
            with suppress(OutcomeUnknownError):
                await self.ended(transaction)
            return sight.view.is_acknowledged and await self.cleanup(transaction)
        if sight.view.has_coordinator:
            return False
        resolution = resolve(sight.view, self.terms.sites, sight.present, has_coordinator=False)
        assert resolution is not None
        return await self.write(transaction, resolution, sight.view)

    async def _explain_timeout(self, transaction: str) -> str:
        sight = await self.read_votes(transaction)
        view = sight.view if sight else VoteSnapshot(())
        waits = sorted(view.sites(COMMIT) | view.sites(ABORT) | view.sites("ballot"))
        return f"the previous transaction, {transaction} of {self.path}, has not ended: it waits for {', '.join(waits)}"

    # Deciding

    async def decide(self, transaction: str, sites: Iterable[str]) -> Decision:
        """Return the decision: as soon as the votes determine it, or abort at the deadline.

        Raises DeadlineError if no server answers in time; the transaction is then decided in the
        background.
        """
        try:
            return await self._decide(transaction, sites)
        except DeadlineError as error:
            raise_if_from_handler(error)
            await Background(self._decide(transaction, sites, waits=False))
            raise

    async def _decide(self, transaction: str, sites: Iterable[str], waits: bool = True) -> Decision:
        counts = self.terms.decided_by == COORDINATOR
        while True:
            watch = Watch()
            sight = await self.read_votes(transaction, watch, votes=counts)
            if sight is None or not sight.view.is_open:
                decided = await self.ended(transaction)
                await Background(self._step_down(transaction))
                return decided
            resolution = resolve(sight.view, sites, sight.present)
            if resolution is None:
                woke = await self._wait_or_timeout(transaction, watch) if waits else WakeReason.DEADLINE
                if woke is WakeReason.LIMIT:
                    resolution = Resolution(
                        ABORT, "the previous transaction was deleted, and this one forgotten in its place"
                    )
                elif woke is WakeReason.DEADLINE:
                    sight = await self.read_votes(transaction) or sight
                    resolution = resolve_timeout(sight.view, sites, sight.present)
            if resolution is not None:
                await self.write(transaction, resolution, sight.view)

    async def _wait_or_timeout(self, transaction: str, watch: Watch) -> WakeReason:
        """Wait until ``watch`` fires, or the deadline. LIMIT means that no joining site would find
        this transaction.

        A client that forgets a deleted transaction checks the version of the record. If the record
        was deleted and created again as well, its version may be the same by chance.
        """
        while True:
            woke = await Wait(watch, limit=(await Connected()).timeout_ms / 2000)
            if woke is not WakeReason.LIMIT:
                return woke
            with suppress(NoNodeError):
                if TransactionRecord.read(self.path, (await read(GetData(self.path))).data).current == transaction:
                    continue
            return woke

    async def abort(self, transaction: str, reason: str) -> Decision:
        """Abort the transaction unless it is decided. Return the decision. Raises OutcomeUnknownError
        if it is forgotten.
        """
        while True:
            record, _ = await self.record()
            if record.current != transaction:
                return self._remembered(record, transaction)
            sight = await self.read_votes(transaction)
            view = sight and sight.view
            if view and view.is_open and not await self.write(transaction, Resolution(ABORT, reason), view):
                continue
            decided = await self.ended(transaction)
            await self._step_down(transaction)
            return decided

    async def _step_down(self, transaction: str) -> None:
        """Stop being the coordinator of a decided transaction."""
        if not await self.cleanup(transaction):
            with suppress(NoNodeError):
                await read(Delete(f"{self.node(transaction)}/coordinator"))

    async def write(self, transaction: str, resolution: Resolution, view: VoteSnapshot) -> bool:
        """Write the decision in one atomic request. Return False if the outcome is unknown."""
        node = self.node(transaction)
        reason = resolution.reason
        if resolution.responsible is not None:
            reason = f"{reason}{await self._read_reason(f'{node}/abort-{resolution.responsible}')}"
        votes = [f"commit-{site}" for site in sorted(view.sites(COMMIT))] if resolution.outcome == COMMIT else []
        still = [*votes, f"ballot-{resolution.dead}"] if resolution.dead else votes
        decision = Create(f"{node}/decision", Decision(transaction, resolution.outcome, reason).data)
        try:
            await Multi((*(Check(f"{node}/{name}") for name in still), Delete(f"{node}/open"), decision))
        except CONFLICT_ERRORS:
            return True
        except INTERRUPTED:
            await Connected()
            return False
        return True

    async def _read_reason(self, path: str) -> str:
        try:
            reason = (await read(GetData(path))).data.decode(errors="replace")
        except NoNodeError:
            return ""
        return f": {reason}" if reason else ""

    # Afterwards

    async def cleanup(self, transaction: str) -> bool:
        """Delete a transaction once all sites have acknowledged it, and remember its decision. Return
        whether it has ended.
        """
        node = self.node(transaction)
        while True:
            above, listing, decided = await read_all(GetData(self.path), Children(node), GetData(f"{node}/decision"))
            if isinstance(listing, NoNodeError) or isinstance(above, NoNodeError):
                return True
            if isinstance(decided, NoNodeError) or not listed(listing).is_acknowledged:
                return False
            record = TransactionRecord.read(self.path, above.data).ended(
                Decision.read(f"{node}/decision", decided.data)
            )
            below = (Delete(f"{node}/{name}") for name in listing.names)
            try:
                await Multi((SetData(self.path, record.data, above.stat.version), *below, Delete(node)))
                return True
            except (*CONFLICT_ERRORS, *INTERRUPTED):
                await Connected()

    async def votes(self) -> dict[str, str | None]:
        """Return the vote of each site in the current transaction; None for a site without one."""
        record, _ = await self.record()
        sight = await self.read_votes(record.current) if record.current else None
        votes = {site: sight.view.vote_of(site) if sight else None for site in self.terms.sites}
        return {site: None if vote == "ballot" else vote for site, vote in votes.items()}

    async def latest(self, transaction: str | None) -> Decision | None:
        """Return the decision on this transaction, or, if None, on the latest one; None if it is not
        decided yet.
        """
        if transaction is None:
            record, _ = await self.record()
            if record.current is None:
                return record.past[-1] if record.past else None
            transaction = record.current
        decision = await self.decision(transaction)
        if decision is None and await read(Exists(f"{self.node(transaction)}/open")) is None:
            return await self.ended(transaction)
        return decision


def presence(sites_path: str, site: str) -> str:
    """Return the path of a site's ephemeral znode."""
    return f"{sites_path}/s_{encoded(site)}"
