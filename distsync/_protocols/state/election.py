"""Election: the first contender in the queue leads, and announces this in the znode LEADER.

Source: recipes.txt and the Hadoop wiki, "Leader Election" (the queue); the mail of June 2008 by
Jacob Levy and Benjamin Reed (the order of wakeups, and LEADER).

The queue is the Lock's, with two differences: each term has a contender, and so a token, of its own
(it is neither handed over within a process nor cached), and LEADER is created and deleted with it.

A candidate that was right behind the leader, and whose session is freshly proven, leads as soon as it
learns that the leader's candidate was deleted, and publishes LEADER at the same time. Any other candidate
publishes LEADER before it leads.

LEADER is written and deleted only in transactions that fail unless the writer's own contender
exists. A contender that is the first has, as leader, no contender before it: whatever LEADER
contains then belongs to a former leader and is replaced. A deposed leader does not simply delete
LEADER, which may belong to its successor: it enqueues again, and deletes LEADER when it is the
first.

Candidates of other clients lead in their turn; LEADER does not name them.

A leader that waits for a notification steps down and leads again afterwards, as a Condition's holder
releases its lock and re-acquires it (condition.py).

Znodes:
  ``<path>/_c_<guid>-lock-<sequence>``  ephemeral candidate: JSON about it, with its data
  ``<path>/LEADER``                     ephemeral: the leader's JSON, its candidate's name and token,
                                        and what it has announced
  ``<path>/condition``                  the waiters of the election's condition
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant, LockCore, hold
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import DECODE_ERRORS, delete_until_session_ends, read, read_all
from distsync._protocols.state.condition import ConditionCore
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Check,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    SessionAlive,
    SetData,
    Signal,
    StopHolding,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    LockLostError,
    NodeExistsError,
    NoNodeError,
    NotHeldError,
    PayloadTooLargeError,
    SessionLostError,
)

LEADER = "LEADER"

#: Seconds after which LEADER is watched: a shorter term costs no request for it.
GUARD_AFTER_S = 0.5


class Leading(NamedTuple):
    """The leader according to LEADER. No two terms are equal, because each has its own candidate."""

    data: bytes
    candidate: str
    token: int


@dataclass(eq=False)
class Term:
    """A term of this process as the leader.

    Attributes:
        contender_data: Data of the candidate.
        entry: The candidate.
        published: Fires when LEADER was published for the first time, or cannot be.
        ended: Fires when the leader steps down.
    """

    contender_data: bytes
    entry: wait_queue.QueueEntry
    published: Signal = field(default_factory=Signal)
    ended: Signal = field(default_factory=Signal)

    @cached_property
    def data(self) -> bytes:
        """What LEADER contains. It is first needed when LEADER is published, which may be after the term has begun."""
        return format_leader(self.contender_data, self.entry)


def _to_json(record: dict[str, Any]) -> bytes:
    """Return a record in as few bytes as the data of a candidate has."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def format_leader(data: bytes, entry: wait_queue.QueueEntry) -> bytes:
    """Return the data of LEADER: the candidate's data, its name and its token."""
    return _to_json({**json.loads(data), "candidate": entry.name, "token": entry.token})


def leading(data: bytes) -> Leading:
    """Parse LEADER. Data that cannot be parsed only shows that there is a leader."""
    try:
        record = json.loads(data)
        return Leading(data, str(record["candidate"]), int(record["token"]))
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        return Leading(data, "", 0)


async def who_leads(path: str, watch: Watch) -> Leading | None:
    """Return the leader that LEADER names. The watch fires when it changes."""
    while True:
        try:
            return leading((await read(GetData(path, watch))).data)
        except NoNodeError:
            if await read(Exists(path, watch)) is None:
                return None


class ElectionCore(LockCore):
    """In-process state of an election, shared by all its threads.

    Attributes:
        leader: The leader according to LEADER, kept current by a watch.
        terms: The terms in which a thread of this process leads.
        condition: The election's condition, whose lock is leadership.
    """

    def __init__(self, path: str, receipts: Receipts, name_suffix: str = wait_queue.LOCK) -> None:
        super().__init__(path, name_suffix)
        self.leader_path = f"{path}/{LEADER}"
        self.leader: WatchCache[Leading | None] = WatchCache(self.leader_path, self._read_leader)
        self.terms: dict[Grant, Term] = {}
        self.condition = ConditionCore(f"{path}/condition", receipts)

    @property
    def idle(self) -> bool:
        return super().idle and self.leader.idle

    async def _read_leader(self, watch: Watch) -> Leading | None:
        """Return the leader. If a thread of this process leads, LEADER has named it before."""
        for term in tuple(self.terms.values()):
            if await Wait(term.published, allow_grace=True) is WakeReason.DEADLINE:
                raise DeadlineError(f"reading {self.leader_path}")
        return await who_leads(self.leader_path, watch)

    def _hand_to_local_waiter(self) -> bool:
        """Return False: each term has its own contender."""
        return False

    async def _contend(self, owner: object, contender_data: bytes, linger: float = 0.0) -> bool:
        """Volunteer (steps 1 to 3), and publish LEADER at our turn, which proves that the session is alive."""
        suffix = self.name_suffix
        while entry := await wait_queue.acquire(self.path, suffix, contender_data, proves_session=True):
            term = Term(contender_data, entry)
            try:
                leads_before = entry.is_successor and await SessionAlive(entry.session_id, fresh=True)
                grant = await hold(entry) if leads_before or await self._publish(entry, term) else None
            except BaseException:
                await Background(self._step_down(entry))
                raise
            if grant is None:
                await Background(self._step_down(entry))
                continue
            if not leads_before:
                term.published.fire()
            self.terms[grant] = term
            self._begin_holding(grant, owner)
            await Background(self._maintain_leader_znode(grant, term))
            return True
        return False

    async def _publish(self, entry: wait_queue.QueueEntry, term: Term) -> bool:
        """Create LEADER, replacing that of an earlier leader in the same transaction. Return False if
        our candidate is gone.
        """
        replaces = False
        while (await Connected()).session_id == entry.session_id:
            create = Create(self.leader_path, term.data, ephemeral=True)
            try:
                await Multi((Check(entry.path), *([Delete(self.leader_path)] if replaces else []), create))
                self.leader.forget()
                return True
            except NodeExistsError:
                replaces = True
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
                    return False
                replaces = False
            except DisconnectedError:
                continue
            except SessionLostError:
                return False
        return False

    async def _maintain_leader_znode(self, grant: Grant, term: Term) -> None:
        """Publish LEADER, and again if it is deleted during our term; delete it if we are deposed."""
        ended = term.ended
        if not term.published.fired:
            await self._publish_while_leading(grant, term)
        if await Wait(ended, grant.loss, limit=GUARD_AFTER_S) is WakeReason.LIMIT:
            while not (ended.fired or grant.loss.fired):
                watch = Watch()
                if await read(Exists(self.leader_path, watch)) is not None:
                    await Wait(ended, grant.loss, watch)
                elif not ended.fired:
                    published = await self._publish(grant.entry, term)
                    if ended.fired:
                        await self._delete_leader_znode(grant.entry)
                    if not published:
                        break
        if not ended.fired:
            await Wait(ended, grant.loss)
            self.terms.pop(grant, None)
            if not ended.fired:
                await self._step_down(grant.entry)

    async def _publish_while_leading(self, grant: Grant, term: Term) -> None:
        """Publish LEADER for the first time, in a term that has begun. The term is lost if that fails."""
        reason = ZNODE_DELETED
        try:
            if await self._publish(grant.entry, term):
                return
        except DistsyncError as error:
            raise_if_from_handler(error)
            reason = f"LEADER cannot be written: {error}"
        finally:
            term.published.fire()
        grant.lose(reason)
        await StopHolding(grant.loss)

    async def announce(self, announcement: Any) -> None:
        """Write ``announcement`` into LEADER, which other processes read.

        Raises:
            NotHeldError: No thread of this process leads.
            LockLostError: The leadership was lost.
            PayloadTooLargeError: It is too large together with the data of the candidate.
        """
        grant = self.held_grant
        term = None if grant is None else self.terms.get(grant)
        if grant is None or term is None:
            raise NotHeldError(f"cannot announce anything in {self.path}: this process does not lead")
        await Wait(term.published)
        before = term.data
        term.data = announced = _to_json({**json.loads(before), "announcement": announcement})
        try:
            await self._write_announcement(grant, term)
        except PayloadTooLargeError:  # LEADER may have to be created again
            if term.data is announced:
                term.data = before
            raise

    async def _write_announcement(self, grant: Grant, term: Term) -> None:
        entry = grant.entry
        while (await Connected()).session_id == entry.session_id:
            try:
                await Multi((Check(entry.path), SetData(self.leader_path, term.data)))
                self.leader.forget()
                return
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
                    break
                try:
                    published = await self._publish(entry, term)
                finally:
                    if term.ended.fired or grant.loss.fired:
                        await Background(self._delete_leader_znode(entry))
                if published:
                    return
                break
            except DisconnectedError:
                continue
            except SessionLostError:
                break
        raise LockLostError(self.path, grant.loss.reason or "candidate deleted")

    async def _delete_node(self, grant: Grant) -> bool:
        """End the term: delete LEADER and our candidate. Return False if our candidate was gone."""
        term = self.terms.pop(grant, None)
        try:
            if term is not None:
                term.ended.fire()
            await StopHolding(grant.loss)
            return await self._step_down(grant.entry, term)
        except BaseException as error:
            await Background(self._step_down(grant.entry, term))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return True
            raise

    async def _step_down(self, entry: wait_queue.QueueEntry, term: Term | None = None) -> bool:
        """Delete LEADER and then our candidate, as the mail requires; here in one transaction.

        With ``term``, wait first until its LEADER was published, which it may be in another thread.
        """
        publishing = None if term is None or term.published.fired else term.published
        if publishing is not None and await Wait(publishing) is WakeReason.DEADLINE:
            raise DeadlineError(f"publishing {self.leader_path}")
        in_doubt, named = False, True
        while (await Connected()).session_id == entry.session_id:
            try:
                await Multi((*([Delete(self.leader_path)] if named else []), Delete(entry.path)))
                self.leader.forget()
                return True
            except NoNodeError as error:
                if not named or getattr(error, "index", 0) > 0:  # our candidate is gone
                    await self._delete_leader_znode(entry)
                    return in_doubt
                named = False
            except DisconnectedError:
                in_doubt = True
            except SessionLostError:
                break
        await Background(self._delete_leader_znode(entry))
        return False

    async def _delete_leader_znode(self, entry: wait_queue.QueueEntry) -> None:
        """Delete LEADER if it names our ended term.

        It may have been created since: while we stepped down, or in a later session, next to a
        candidate that the servers had not yet removed.
        """
        if await self._is_named(entry):
            await Background(self._cleanup())

    async def _is_named(self, entry: wait_queue.QueueEntry) -> bool:
        """Return whether LEADER still names this candidate."""
        _, node = await read_all(Sync(self.leader_path), GetData(self.leader_path))
        return isinstance(node, Node) and leading(node.data).candidate == entry.name

    async def _cleanup(self) -> None:
        """Delete LEADER, which may still name our deleted candidate.

        We enqueue again: any leader before us replaces LEADER. If none has by our turn, there is no
        leader, and we delete it.
        """
        while (entry := await wait_queue.acquire(self.path, self.name_suffix, b"{}")) is not None:
            try:
                if await self._replaces(entry):
                    return
            finally:
                await delete_until_session_ends(entry.path, entry.session_id)

    async def _replaces(self, entry: wait_queue.QueueEntry) -> bool:
        """Delete LEADER at our turn. Return False if this candidate was deleted, too."""
        try:
            while (await Connected()).session_id == entry.session_id:
                try:
                    await Multi((Check(entry.path), Delete(self.leader_path)))
                    break
                except DisconnectedError:
                    continue
        except SessionLostError:
            return True
        except NoNodeError as error:
            return getattr(error, "index", 0) > 0
        return True
