"""Election: the first in the line leads, and says so in the znode LEADER, for all to see.

Source: recipes.txt and the Hadoop wiki, "Leader Election" (the line); the mail of June 2008 by Jacob Levy and Benjamin
Reed (who wakes whom, and LEADER).

Rules for this file: pure. The line is the Lock's, with two differences: each term has a contender and so a token of its
own (no hand-over inside a process, and no term is kept), and LEADER comes and goes with it.

LEADER is written and deleted only in transactions that check that the writer's own contender stands. A contender that
stands first has, as leader, nobody before it: whatever LEADER says then is of one who leads no more, and is replaced.
Who was deposed does not delete it by hand: it may be the next leader's already. It stands in the line again, and only
if it is the first there it deletes.

Candidates of other clients lead as well as ours, at their turn; of them LEADER says nothing.

Picture: ``<path>/_c_<guid>-lock-<sequence>``  ephemeral, a candidate: JSON, who it is and its data
         ``<path>/LEADER``                     ephemeral, the same of the leader, with its candidate's name and token
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
from distsync.errors import DeadlineError, DisconnectedError, NodeExistsError, NoNodeError, SessionLostError

LEADER = "LEADER"

#: A term that is over sooner (seconds) costs no look at LEADER.
GUARD_AFTER_S = 0.5


class Leading(NamedTuple):
    """Who leads, as LEADER says. Of two terms no two are equal: each has its candidate."""

    data: bytes
    candidate: str
    token: int


def says(data: bytes, place: wait_queue.QueueEntry) -> bytes:
    """What LEADER says of a leader: what its candidate said, whose name and token."""
    return json.dumps({**json.loads(data), "candidate": place.name, "token": place.token}).encode()


def leading(data: bytes) -> Leading:
    """Who leads. What others wrote may make no sense, and then tells no more than that there is somebody."""
    try:
        record = json.loads(data)
        return Leading(data, str(record["candidate"]), int(record["token"]))
    except DECODE_ERRORS:
        return Leading(data, "", 0)


async def who_leads(path: str, watch: Watch) -> Leading | None:
    """Whoever LEADER names; the watch fires when that changes."""
    while True:
        try:
            return leading((await read(GetData(path, watch))).data)
        except NoNodeError:
            if await read(Exists(path, watch)) is None:
                return None


class ElectionCore(LockCore):
    """What the threads of one process know together about one election."""

    def __init__(self, path: str, name_suffix: str = wait_queue.LOCK) -> None:
        super().__init__(path, name_suffix)
        self.leader_path = f"{path}/{LEADER}"
        self.leader: WatchCache[Leading | None] = WatchCache(self.leader_path, partial(who_leads, self.leader_path))
        self.posts: dict[Grant, Signal] = {}
        """What ends the watch over LEADER, for each term."""

    @property
    def idle(self) -> bool:
        return super().idle and self.leader.idle

    def _hand_to_local_waiter(self) -> bool:
        """Each term is one of its own."""
        return False

    async def _contend(self, owner: object, contender_data: bytes, linger: float = 0.0) -> bool:
        """Volunteering, steps 1 to 3, and then the leader procedure, which begins with LEADER."""
        while await super()._contend(owner, contender_data):
            grant = self.grant
            if grant is None:
                continue
            leader_data = says(contender_data, grant.place)
            try:
                published = await self._publish(grant.place, leader_data)
            except BaseException:
                await self._release_in_background(grant)
                raise
            if published:
                over = self.posts[grant] = Signal()
                await Background(self._reign(grant, leader_data, over))
                return True
            await self._release_in_background(grant)
        return False

    async def _publish(self, place: wait_queue.QueueEntry, leader_data: bytes) -> bool:
        """LEADER names us; what an earlier leader left goes in the same transaction. False: our candidate is gone."""
        replaces = False
        create = Create(self.leader_path, leader_data, ephemeral=True)
        while (await Connected()).session_id == place.session_id:
            try:
                await Multi((Check(place.path), *([Delete(self.leader_path)] if replaces else []), create))
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

    async def _reign(self, grant: Grant, leader_data: bytes, over: Signal) -> None:
        """During our term LEADER comes back whenever somebody deletes it; when we are deposed, it goes."""
        if await Wait(over, grant.loss, limit=GUARD_AFTER_S) is WakeReason.LIMIT:
            while not (over.fired or grant.loss.fired):
                watch = Watch()
                if await read(Exists(self.leader_path, watch)) is not None:
                    await Wait(over, grant.loss, watch)
                elif not over.fired:
                    published = await self._publish(grant.place, leader_data)
                    if over.fired:
                        await self._unname(grant.place)
                    if not published:
                        break
        if not over.fired:
            await Wait(over, grant.loss)
            self.posts.pop(grant, None)
            if not over.fired:
                await self._step_down(grant.place)

    async def _delete_node(self, grant: Grant) -> bool:
        """The end of a term: LEADER goes, and our candidate. False: it was gone before."""
        try:
            over = self.posts.pop(grant, None)
            if over is not None:
                over.fire()
            await StopHolding(grant.loss)
            return await self._step_down(grant.place)
        except DeadlineError:
            await Background(self._step_down(grant.place))
            return True
        except BaseException:
            await Background(self._step_down(grant.place))
            raise

    async def _step_down(self, place: wait_queue.QueueEntry) -> bool:
        """The mail: LEADER is deleted before the leadership is relinquished; here in one transaction."""
        in_doubt, named = False, True
        while (await Connected()).session_id == place.session_id:
            try:
                await Multi((Check(place.path), *([Delete(self.leader_path)] if named else []), Delete(place.path)))
                self.leader.forget()
                return True
            except NoNodeError as error:
                if getattr(error, "index", 0) == 0:
                    if not in_doubt or await self._is_named(place):
                        await Background(self._cleanup())
                    return in_doubt
                named = False
            except DisconnectedError:
                in_doubt = True
            except SessionLostError:
                break
        await Background(self._unname(place))
        return False

    async def _unname(self, place: wait_queue.QueueEntry) -> None:
        """Our term is over. LEADER may have been made since: while we stepped down, or in a later session, beside a
        candidate that the servers had let live on."""
        if await self._is_named(place):
            await self._cleanup()

    async def _is_named(self, place: wait_queue.QueueEntry) -> bool:
        """LEADER still names this candidate of ours."""
        _, node = await read_all(Sync(self.leader_path), GetData(self.leader_path))
        return isinstance(node, Node) and leading(node.data).candidate == place.name

    async def _cleanup(self) -> None:
        """Our candidate goes without us, and LEADER may still name us. We stand in the line again: whoever leads
        before us replaces it; if nobody has by our turn, nobody leads, and it goes."""
        while (place := await wait_queue.acquire(self.path, self.name_suffix, b"{}")) is not None:
            try:
                if await self._replaces(place):
                    return
            finally:
                await delete_until_session_ends(place.path, place.session_id)

    async def _replaces(self, place: wait_queue.QueueEntry) -> bool:
        """It is our turn: LEADER is gone, or our session is. False: somebody has deleted this candidate, too."""
        try:
            while (await Connected()).session_id == place.session_id:
                try:
                    await Multi((Check(place.path), Delete(self.leader_path)))
                    break
                except DisconnectedError:
                    continue
        except SessionLostError:
            return True
        except NoNodeError as error:
            return getattr(error, "index", 0) > 0
        return True
