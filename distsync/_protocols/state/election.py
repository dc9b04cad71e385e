"""Election: the first contender in the queue leads, and announces this in the znode LEADER.

Source: recipes.txt and the Hadoop wiki, "Leader Election" (the queue); the mail of June 2008 by
Jacob Levy and Benjamin Reed (the order of wakeups, and LEADER).

The queue is the Lock's, with two differences: each term has a contender, and so a token, of its own
(it is neither handed over within a process nor cached), and LEADER is created and deleted with it.

LEADER is written and deleted only in transactions that check that the writer's own contender
exists. A contender that is the first has, as leader, no contender before it: whatever LEADER
contains then belongs to a former leader and is replaced. A deposed leader does not simply delete
LEADER, which may belong to its successor: it enqueues again, and deletes LEADER when it is the
first.

Candidates of other clients lead in their turn; LEADER does not name them.

Znodes:
  ``<path>/_c_<guid>-lock-<sequence>``  ephemeral candidate: JSON about it, with its data
  ``<path>/LEADER``                     ephemeral: the leader's JSON, its candidate's name and token
"""

from __future__ import annotations

import json
from functools import partial
from typing import NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant, LockCore
from distsync._protocols.retries import DECODE_ERRORS, delete_until_session_ends, read, read_all
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import (
    Background,
    Check,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    Signal,
    StopHolding,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import DeadlineError, DisconnectedError, NodeExistsError, NoNodeError, SessionLostError

LEADER = "LEADER"

#: Seconds after which LEADER is watched: a shorter term costs no request for it.
GUARD_AFTER_S = 0.5


class Leading(NamedTuple):
    """The leader according to LEADER. No two terms are equal, because each has its own candidate."""

    data: bytes
    candidate: str
    token: int


def format_leader(data: bytes, entry: wait_queue.QueueEntry) -> bytes:
    """Return the data of LEADER: the candidate's data, its name and its token."""
    return json.dumps({**json.loads(data), "candidate": entry.name, "token": entry.token}).encode()


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
    """In-process state of an election, shared by all its threads."""

    def __init__(self, path: str, name_suffix: str = wait_queue.LOCK) -> None:
        super().__init__(path, name_suffix)
        self.leader_path = f"{path}/{LEADER}"
        self.leader: WatchCache[Leading | None] = WatchCache(self.leader_path, partial(who_leads, self.leader_path))
        self.terms: dict[Grant, Signal] = {}
        """The signal that ends watching LEADER, for each term."""

    @property
    def idle(self) -> bool:
        return super().idle and self.leader.idle

    def _hand_to_local_waiter(self) -> bool:
        """Return False: each term has its own contender."""
        return False

    async def _contend(self, owner: object, contender_data: bytes, linger: float = 0.0) -> bool:
        """Volunteer (steps 1 to 3), then publish LEADER."""
        while await super()._contend(owner, contender_data):
            grant = self.grant
            if grant is None:
                continue
            leader_data = format_leader(contender_data, grant.entry)
            try:
                published = await self._publish(grant.entry, leader_data)
            except BaseException:
                await self._release_in_background(grant)
                raise
            if published:
                term_ended = self.terms[grant] = Signal()
                await Background(self._maintain_leader_znode(grant, leader_data, term_ended))
                return True
            await self._release_in_background(grant)
        return False

    async def _publish(self, entry: wait_queue.QueueEntry, leader_data: bytes) -> bool:
        """Create LEADER, replacing that of an earlier leader in the same transaction. Return False if
        our candidate is gone.
        """
        replaces = False
        create = Create(self.leader_path, leader_data, ephemeral=True)
        while (await Connected()).session_id == entry.session_id:
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

    async def _maintain_leader_znode(self, grant: Grant, leader_data: bytes, term_ended: Signal) -> None:
        """Create LEADER again if it is deleted during our term; delete it if we are deposed."""
        if await Wait(term_ended, grant.loss, limit=GUARD_AFTER_S) is WakeReason.LIMIT:
            while not (term_ended.fired or grant.loss.fired):
                watch = Watch()
                if await read(Exists(self.leader_path, watch)) is not None:
                    await Wait(term_ended, grant.loss, watch)
                elif not term_ended.fired:
                    published = await self._publish(grant.entry, leader_data)
                    if term_ended.fired:
                        await self._delete_leader_znode(grant.entry)
                    if not published:
                        break
        if not term_ended.fired:
            await Wait(term_ended, grant.loss)
            self.terms.pop(grant, None)
            if not term_ended.fired:
                await self._step_down(grant.entry)

    async def _delete_node(self, grant: Grant) -> bool:
        """End the term: delete LEADER and our candidate. Return False if our candidate was gone."""
        try:
            term_ended = self.terms.pop(grant, None)
            if term_ended is not None:
                term_ended.fire()
            await StopHolding(grant.loss)
            return await self._step_down(grant.entry)
        except BaseException as error:
            await Background(self._step_down(grant.entry))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return True
            raise

    async def _step_down(self, entry: wait_queue.QueueEntry) -> bool:
        """Delete LEADER and then our candidate, as the mail requires; here in one transaction."""
        in_doubt, named = False, True
        while (await Connected()).session_id == entry.session_id:
            try:
                await Multi((Check(entry.path), *([Delete(self.leader_path)] if named else []), Delete(entry.path)))
                self.leader.forget()
                return True
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
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
