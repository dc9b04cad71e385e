"""Two-phase commit: a site, which prepares, votes, waits for the decision, carries it out, and
acknowledges it.

Source: recipes.txt, "Two-phased Commit". See vote_records.py for the znodes.

A vote is final and outlives its site: a site that returns after its vote waits for the decision
again. If the coordinator's session has ended, a site decides.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from distsync._protocols.retries import INTERRUPTED, delete_until_session_ends, read, read_all
from distsync._protocols.steps import (
    Background,
    Call,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    SetData,
    Signal,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.transactions.coordinator import Prepared, TransactionCore, presence
from distsync._protocols.transactions.vote_records import (
    ABORT,
    COMMIT,
    PEERS,
    Decision,
    TransactionRecord,
    VoteSnapshot,
    encoded,
    listed,
    missing_ballot,
    present_in,
    resolve,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    UsageError,
    VoteRefusedError,
)


class ParticipantCallbacks(NamedTuple):
    """The callbacks of a site, which get the transaction's id and payload. ``prepare`` returns a vote
    and a reason.
    """

    prepare: Callable[[str, bytes], Any]
    commit: Callable[[str, bytes], Any]
    abort: Callable[[str, bytes], Any]


class ParticipantCore:
    """One site of the transactions of one name."""

    def __init__(self, core: TransactionCore, site: str) -> None:
        self.core = core
        self.site = site
        self.path = presence(core.sites_path, site)

    async def take_part(self, work: ParticipantCallbacks, contender_data: bytes) -> Decision | None:
        """Take part in the next transaction. Return its decision, which was carried out here; None at
        the deadline.
        """
        core = self.core
        if self.site in core.working:
            raise UsageError(f"site {self.site!r} of {core.path} takes part in another thread of this process already")
        core.working.add(self.site)
        try:
            while True:
                watch = Watch()
                record, version = await core.record(watch)
                for transaction, site in list(core.prepared):
                    if site == self.site and transaction != record.current:
                        await self._too_late(transaction, work, caller_continues=True)
                        core.prepared.pop((transaction, site), None)
                if await self._join(contender_data, watch, record, version) and record.current:
                    decision = await self._run_one(record.current, work)
                    if decision is not None:
                        return decision
                if await Wait(watch) is WakeReason.DEADLINE:
                    return None
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None
        finally:
            core.working.discard(self.site)

    async def _join(self, contender_data: bytes, watch: Watch, record: TransactionRecord, version: int) -> bool:
        """Create this site's ephemeral znode.

        Returns False if the site is present in another process, or ``record`` is old; ``watch``
        then fires when that changes. Also returns False at the deadline. Because each site has its
        own ephemeral, clients that look later still notice that it is gone.
        """
        if not await self._stay():
            return False
        while True:
            session = await Connected()
            stat = await read(Exists(self.path))
            if stat is not None and stat.ephemeral_owner != session.session_id:
                stat = await read(Exists(self.path, watch))
                if stat is not None and stat.ephemeral_owner != session.session_id:
                    return False
            if stat is not None:
                return True
            try:
                # it stays until `leave`, even if this call fails
                here = Create(self.path, contender_data, ephemeral=True, own_cleanup=True)
                await Multi((Check(self.core.path, version), here, await self._announce(record.current)))
                return True
            except BadVersionError:
                return False
            except NoNodeError:
                await self.core.restore()
                if record.current is not None and await self.core.forget(record.current):
                    return False  # even if the version is the same: the record was created again
                if await read(Exists(self.core.path)) is None:
                    return False
            except (NodeExistsError, *INTERRUPTED):
                continue

    async def _announce(self, transaction: str | None) -> Create | SetData:
        """Return the write by which a joining site makes itself known.

        It marks the current transaction, or changes the version of the sites' parent, so that no transaction
        begins without the site.
        """
        if transaction is None:
            return SetData(self.core.sites_path)
        announcement = f"{self.core.node(transaction)}/seen-{encoded(self.site)}"
        return Create(announcement) if await read(Exists(announcement)) is None else SetData(announcement)

    async def leave(self) -> None:
        """Delete this site's ephemeral znode."""
        self.core.to_leave.discard(self.site)
        session = await Connected()
        stat = await read(Exists(self.path))
        if stat is not None and stat.ephemeral_owner == session.session_id:
            await delete_until_session_ends(self.path, session.session_id)

    def left(self) -> Coroutine[Any, Any, None]:
        """Return a background protocol that leaves, unless the site joins again before it starts."""
        self.core.to_leave.add(self.site)
        return self._left()

    async def _left(self) -> None:
        core = self.core
        while (before := core.leaving.get(self.site)) is not None:
            await Wait(before)
        if self.site in core.to_leave:
            core.leaving[self.site] = left = Signal()
            try:
                await self.leave()
            finally:
                del core.leaving[self.site]
                left.fire()

    async def _stay(self) -> bool:
        """Wait until no background protocol removes this site. Return False at the deadline."""
        core = self.core
        core.to_leave.discard(self.site)
        while (leaving := core.leaving.get(self.site)) is not None:
            if await Wait(leaving, allow_grace=True) is WakeReason.DEADLINE:
                return False
        return True

    async def _run_one(self, transaction: str, work: ParticipantCallbacks) -> Decision | None:
        """Take part in one transaction. Return None if this site has nothing (more) to do in it, or at
        the deadline.
        """
        core, node = self.core, self.core.node(transaction)
        mine = (transaction, self.site)
        while True:
            done = mine in core.done  # read before the listing: it may be acknowledged in between
            listing, payload = await read_all(Children(node), GetData(node))
            if isinstance(listing, NoNodeError) or isinstance(payload, NoNodeError):
                return await self._too_late(transaction, work)
            view = listed(listing)
            vote = view.vote_of(self.site)
            if done:
                await self._acknowledge(transaction, vote or "ballot")
                return None
            if vote is None and view.is_open:
                await core.write(transaction, missing_ballot(self.site), view)
                continue
            if vote == "ballot" and view.is_open:
                if mine not in core.prepared:
                    voted = await Call(lambda: work.prepare(transaction, payload.data))  # noqa: B023
                    core.prepared[mine] = Prepared(voted[0], voted[1], payload.data)
                prepared = core.prepared[mine]
                if not await self._cast_vote(transaction, prepared.commit, prepared.reason):
                    continue
                vote = COMMIT if prepared.commit else ABORT
            if vote in (None, "ballot") and mine not in core.prepared:
                await core.cleanup(transaction)
                return None
            decision = await self._await_decision(transaction)
            return await self._finish(decision, vote or "ballot", work, payload.data) if decision else None

    async def _too_late(
        self, transaction: str, work: ParticipantCallbacks, caller_continues: bool = False
    ) -> Decision | None:
        """Carry out the decision on an ended transaction, if this site has prepared for it."""
        prepared = self.core.prepared.get((transaction, self.site))
        if prepared is None:
            return None
        return await self._finish(await self._ended(transaction), "ballot", work, prepared.data, caller_continues)

    async def _ended(self, transaction: str) -> Decision:
        """Return the decision on an ended transaction. If it is forgotten, stop waiting for it."""
        try:
            return await self.core.ended(transaction)
        except OutcomeUnknownError:
            self.core.prepared.pop((transaction, self.site), None)
            raise

    async def _finish(
        self, decision: Decision, vote: str, work: ParticipantCallbacks, data: bytes, caller_continues: bool = False
    ) -> Decision:
        """Carry out the decision and acknowledge it, in the background if interrupted after the first.

        A deadline then is an error only if ``caller_continues``.
        """
        core, mine = self.core, (decision.id, self.site)
        do = work.commit if decision.outcome == COMMIT else work.abort

        def act() -> None:
            do(decision.id, data)
            core.done.add(mine)
            core.prepared.pop(mine, None)

        try:
            await Call(act)
            await self._acknowledge(decision.id, vote)
        except BaseException as error:
            if mine not in core.done:
                raise
            await Background(self._acknowledge(decision.id, vote))
            if caller_continues or not isinstance(error, DeadlineError):
                raise
        return decision

    async def _acknowledge(self, transaction: str, vote: str) -> None:
        """Delete this site's vote; the last site to do so cleans up."""
        if vote != "ballot":
            with suppress(NoNodeError):
                await read(Delete(f"{self.core.node(transaction)}/{vote}-{encoded(self.site)}"))
        await self.core.cleanup(transaction)
        self.core.done.discard((transaction, self.site))

    # Voting

    async def vote(self, commit: bool, reason: str) -> None:
        """Vote in the current transaction. Raises VoteRefusedError with the decision, or UsageError if
        there is none.
        """
        record, _ = await self.core.record()
        if record.current is not None and await self._cast_vote(record.current, commit, reason):
            return
        last = record.past[-1] if record.past else None
        decision = await self.core.latest(record.current) if record.current else last
        if decision is None:
            why = "has voted otherwise" if record.current else "has nothing to vote about"
            raise UsageError(f"site {self.site!r} of {self.core.path} {why}: there is no transaction that waits for it")
        raise VoteRefusedError(self.core.path, self.site, decision.outcome, decision.reason or "all voted so")

    async def _cast_vote(self, transaction: str, commit: bool, reason: str) -> bool:
        """Turn the ballot into a vote. Return False if it was decided before, or this site has voted
        otherwise.
        """
        node, vote, name = self.core.node(transaction), COMMIT if commit else ABORT, encoded(self.site)
        ballot, cast = Delete(f"{node}/ballot-{name}"), Create(f"{node}/{vote}-{name}", reason.encode()[:1000])
        asked = False
        while True:
            try:
                await Multi((Check(f"{node}/open"), ballot, cast))
                return True
            except NoNodeError:
                voted, still = await read_all(Exists(cast.path), Exists(f"{node}/open"))
                return voted is not None and (asked or still is not None)
            except INTERRUPTED:
                asked = True
                await Connected()

    # Learning what was decided

    async def _await_decision(self, transaction: str) -> Decision | None:
        """Wait for the decision, and decide if no other client can. Return None at the deadline."""
        core, node = self.core, self.core.node(transaction)
        peers = core.terms.decided_by == PEERS
        while True:
            watch = Watch()
            more = (Children(node, watch), Children(core.sites_path, watch)) if peers else ()
            reads = (GetData(f"{node}/open", watch), GetData(f"{node}/coordinator", watch), *more)
            undecided, coordinator, *_ = replies = await read_all(*reads)
            if isinstance(undecided, NoNodeError):
                return await self._ended(transaction)
            has_coordinator = not isinstance(coordinator, NoNodeError)
            if peers or not has_coordinator:
                listing, sites = replies[2:] or await read_all(Children(node), Children(core.sites_path))
                view = VoteSnapshot(()) if isinstance(listing, NoNodeError) else listed(listing)
                if not view.is_open:
                    return await self._ended(transaction)
                resolution = resolve(view, core.terms.sites, present_in(sites), has_coordinator)
                if resolution is not None:
                    await core.write(transaction, resolution, view)
                    continue
            if await Wait(watch) is WakeReason.DEADLINE:
                return None
