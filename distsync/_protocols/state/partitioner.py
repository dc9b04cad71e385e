"""Partitioner: shares of work among the live members of a group; each is held as a lock is.

Source: kazoo's SetPartitioner and Curator's users' wish for it; recipes.txt, "Group Membership", "Locks" for a claim.

Rules for this file: pure. Members need not agree on who gets what, only on how many each may have: its quota follows
from the list of members. Who has too many gives some up, who has too few takes free ones; the claim decides. So no two
hold a share at once whatever they believe of the group, and a share moves only when its holder has too many or is gone.

Picture: ``<path>/members/m_<guid>``                         ephemeral, one a member (group.py)
         ``<path>/claims/<share>;<member>-<sequence>``  ephemeral; the first one for a share holds it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant, hold
from distsync._protocols.retries import INTERRUPTED, delete_own, delete_until_session_ends, ensure
from distsync._protocols.state.group import GroupCore, Members
from distsync._protocols.state.watch_cache import WatchCache, names_below
from distsync._protocols.steps import (
    Background,
    Call,
    Children,
    Connected,
    Create,
    Created,
    Listing,
    Signal,
    StopHolding,
    Together,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import ClientClosedError, DeadlineError, DistsyncError, NoNodeError

OnShare = Callable[[str, int], Any]
"""Called with a share and its token."""


class Callbacks(NamedTuple):
    """What is called, with no mutex held: after a share was acquired, and before it is given up."""

    acquired: OnShare
    released: OnShare


def share_of(claim: str) -> str:
    """What is claimed by a znode of this name."""
    return claim.rpartition(";")[0]


def quota(members: Members, me: str, shares: int) -> int:
    """How many shares are ours at most: as many as everybody's, and one more for some, where they do not come out
    even; none if we are no member. By name, which all see alike: a member that returned has another czxid, which who
    did not look meanwhile does not know."""
    order = sorted(members)
    if me not in order:
        return 0
    return shares // len(order) + (order.index(me) < shares % len(order))


def preference(me: str, shares: Iterable[str]) -> list[str]:
    """The shares in an order of our own, so that members who begin together seldom want the same."""
    turned = sorted(shares)
    start = sum(me.encode()) % len(turned) if turned else 0
    return turned[start:] + turned[:start]


class PartitionerCore:
    """What the threads of one process know together about one partition."""

    def __init__(self, path: str, shares: frozenset[str]) -> None:
        self.path = path
        self.shares = shares
        self.group = GroupCore(f"{path}/members")
        self.claims: WatchCache[frozenset[str]] = WatchCache(f"{path}/claims", self._read_state)
        self.held: dict[str, Grant] = {}
        self.changed = Signal()
        self.member: str | None = None
        self._untidy = False
        """There may be claims of ours that we do not hold."""
        self._over = Signal()
        self._finished = Signal()
        self._joining: Signal | None = None
        self._undone: Signal | None = None
        """What ends a membership whose beginning was interrupted, until it has."""
        self._working = False

    @property
    def idle(self) -> bool:
        """We are no member, and are not about to be one."""
        return self.member is None and self._joining is None

    async def _read_state(self, watch: Watch) -> frozenset[str]:
        return frozenset(await names_below(self.claims.path, watch))

    async def join(self, contender_data: bytes, callbacks: Callbacks, names: list[str] | None = None) -> Members | None:
        """We are a member, and get our shares soon. Returns the members that were there before us; None if we were one
        already: of the threads that join at once one does. ``names`` has our name before we are one."""
        while (before := self._joining or self._undone) is not None:
            await Wait(before)
        if self.member is not None:
            return None
        self._joining = joining = Signal()
        try:
            return await self._join(contender_data, callbacks, names)
        finally:
            self._joining = None
            joining.fire()

    async def _join(self, contender_data: bytes, callbacks: Callbacks, names: list[str] | None) -> Members:
        member = await self.group.join(contender_data, names=names)
        try:
            members = await self.group.view.get()
            self.member, self._over, self._finished = member, Signal(), Signal()
            await Background(self._work(member, contender_data, callbacks))
        except BaseException:
            if self.member == member:  # its work may have begun: nobody begins anew beside it
                self._over.fire()
                self._undone = self._finished
                await Background(self._work(member, contender_data, callbacks))
            else:
                await Background(self.group.leave(member))
            raise
        mine = members.get(member)
        return {} if mine is None else {n: m for n, m in members.items() if m.stat.czxid < mine.stat.czxid}

    async def leave(self, member: str | None = None) -> bool:
        """Our shares are given up, and then we are no member. False: we were none, or not this one."""
        if self.member is None or member not in (None, self.member):
            return False
        self._over.fire()
        if await Wait(self._finished) is WakeReason.DEADLINE:
            raise DeadlineError(f"giving up shares of {self.claims.path}")
        return True

    async def _work(self, member: str, contender_data: bytes, callbacks: Callbacks) -> None:
        """The one protocol in the background: our shares are as many as our quota."""
        if self._working or self.member != member:  # what was begun in doubt has begun already
            return
        self._working = True
        over, finished = self._over, self._finished
        try:
            try:
                await self._balance(member, contender_data, callbacks, over)
            except ClientClosedError:
                raise
            except DistsyncError:  # we may not write there, say: then others shall have our shares
                await self._go(member, callbacks)
                raise
            await self._go(member, callbacks)
        except ClientClosedError:
            pass
        finally:
            self.held.clear()
            self.member = self._undone = None
            self._working = False
            finished.fire()
            self._notify()

    async def _balance(self, member: str, contender_data: bytes, callbacks: Callbacks, over: Signal) -> None:
        """Until we leave: what we hold is what is due to us."""
        while not over.fired and member in self.group.mine:
            await self._drop_lost(callbacks)
            if self._untidy:
                await self._clear_up(member)
            members = await self.group.view.get()
            wanted = quota(members, member, len(self.shares)) - len(self.held)
            if wanted < 0:
                await self._give_up(self._newest(), callbacks)
            elif not (wanted and await self._take(member, wanted, contender_data, callbacks)):
                losses = [grant.loss for grant in self.held.values()]
                signals = [self.group.view.watch, *([self.claims.watch] if wanted else [])]
                await Wait(over, self.group.over(member), *signals, *losses)

    async def _go(self, member: str, callbacks: Callbacks) -> None:
        """Nothing of ours stands any more. The others do not wait for us, whatever we may not do."""
        try:
            while self.held:
                await self._drop_lost(callbacks)
                for share in list(self.held):
                    await self._give_up(share, callbacks)
            await self._clear_up(member)
        except ClientClosedError:
            raise
        except DistsyncError:
            await self.group.leave(member)
            raise
        await self.group.leave(member)

    def _newest(self) -> str:
        return max(self.held, key=lambda share: self.held[share].token)

    def _notify(self) -> None:
        changed, self.changed = self.changed, Signal()
        changed.fire()

    async def _drop_lost(self, callbacks: Callbacks) -> None:
        for share, grant in list(self.held.items()):
            if grant.loss.fired:
                del self.held[share]
                self._notify()
                await Call(partial(callbacks.released, share, grant.token))

    async def _give_up(self, share: str, callbacks: Callbacks) -> None:
        """Whoever works on it stops, and then it is free."""
        grant = self.held[share]
        await Call(partial(callbacks.released, share, grant.token))
        del self.held[share]
        self._notify()
        await StopHolding(grant.loss)
        await delete_own(grant.place.path, grant.place.session_id)
        self.claims.forget()

    async def _take(self, member: str, wanted: int, contender_data: bytes, callbacks: Callbacks) -> bool:
        """Free shares are ours, as many as are wanted. False: there are none.

        As in Locks, steps 1 to 3: a claim stands, and is the first for its share in a list that was read after it.
        """
        taken = set(map(share_of, await self.claims.get()))
        free = [share for share in preference(member, self.shares) if share not in taken][:wanted]
        if not free:
            return False
        claims = [
            Create(f"{self.claims.path}/{share};{member}-", contender_data, ephemeral=True, sequence=True)
            for share in free
        ]
        self._untidy = True
        *answers, listing = await Together(*claims, Children(self.claims.path))
        self.claims.forget()
        for share, answer in zip(free, answers, strict=True):
            if isinstance(answer, NoNodeError):
                await ensure(self.claims.path, container=True)
            elif isinstance(answer, Created) and answer.stat is not None and isinstance(listing, Listing):
                name = answer.path.rpartition("/")[2]
                if wait_queue.predecessors([each for each in listing.names if share_of(each) == share], name) == []:
                    place = wait_queue.QueueEntry(
                        self.claims.path, name, answer.stat.czxid, answer.stat.ephemeral_owner
                    )
                    await self._hold(share, place, callbacks)
            elif isinstance(answer, DistsyncError) and not isinstance(answer, INTERRUPTED):
                raise answer
        return True

    async def _clear_up(self, member: str) -> None:
        """Claims of ours that came too late, or whose answer was lost, go."""
        held = {grant.place.name for grant in self.held.values()}
        for name in sorted(await self.claims.get(sync=True)):
            if f";{member}-" in name and name not in held:
                await delete_until_session_ends(f"{self.claims.path}/{name}", (await Connected()).session_id)
                self.claims.forget()
        self._untidy = False

    async def _hold(self, share: str, place: wait_queue.QueueEntry, callbacks: Callbacks) -> None:
        grant = await hold(place)
        if not grant.loss.fired:
            self.held[share] = grant
            self._notify()
            await Call(partial(callbacks.acquired, share, grant.token))

    async def next(self, changed: Signal) -> None:
        """Until ``changed`` fires, which was ours before the caller looked; or a share is lost; or the deadline."""
        await Wait(changed, *(grant.loss for grant in self.held.values() if not grant.loss.fired))
