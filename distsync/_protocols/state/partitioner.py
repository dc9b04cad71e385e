"""Partitioner: divides shares of work among the live members of a group; each share is held like a
lock.

Source: kazoo's SetPartitioner; recipes.txt, "Group Membership", and "Locks" for a claim.

Members need not agree on which share belongs to which member, only on the number of shares of each:
its quota follows from the list of members. A member with too many shares gives some up, one with
too few takes free ones, and the claim decides. So no two members hold a share at the same time,
whatever they believe about the group, and a share moves only if its holder has too many or is gone.

A member whose znode another client deletes joins again at once. One whose request is refused (quota,
permissions) gives up its shares and leaves, so that others take them, and joins again once a claim
would be accepted.

Znodes:
  ``<path>/members/m_<guid>``                    ephemeral member (group.py)
  ``<path>/claims/<share>;<member>-<sequence>``  ephemeral; the first claim on a share holds it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols import wait_queue
from distsync._protocols.locks.lock import Grant, hold
from distsync._protocols.retries import INTERRUPTED, REFUSED_S, delete_own, delete_until_session_ends, ensure
from distsync._protocols.state.group import GroupCore, Members
from distsync._protocols.state.watch_cache import WatchCache, names_below
from distsync._protocols.steps import (
    Background,
    Call,
    Children,
    Connected,
    Create,
    Created,
    Delete,
    Guid,
    KeepResults,
    Listing,
    Multi,
    Pipeline,
    Signal,
    StopHolding,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import ClientClosedError, DeadlineError, DistsyncError, NoNodeError

OnShare = Callable[[str, int], Any]
"""A callback that gets a share and its fencing token."""


class Callbacks(NamedTuple):
    """Callbacks, called without the mutex: after a share was acquired, before it is given up, and, with
    the reason, when the membership has ended although `leave` was not called.
    """

    acquired: OnShare
    released: OnShare
    interrupted: Callable[[str], object] = lambda reason: None


def share_of(claim: str) -> str:
    """Return the share that a znode of this name claims."""
    return claim.rpartition(";")[0]


def quota(members: Members, me: str, shares: int) -> int:
    """Return the maximum number of shares of member ``me``; 0 if it is no member.

    All members get the same number; if shares remain, the first ones get one more. The order is
    that of the names, which all members see alike. A czxid differs for members that have not
    noticed that a member returned.
    """
    order = sorted(members)
    if me not in order:
        return 0
    return shares // len(order) + (order.index(me) < shares % len(order))


def preference(me: str, shares: Iterable[str]) -> list[str]:
    """Return the shares in an order specific to ``me``, so that members that start together rarely
    claim the same.
    """
    turned = sorted(shares)
    start = sum(me.encode()) % len(turned) if turned else 0
    return turned[start:] + turned[:start]


class PartitionerCore:
    """In-process state of a partition, shared by all its threads."""

    def __init__(self, path: str, shares: frozenset[str]) -> None:
        self.path = path
        self.shares = shares
        self.group = GroupCore(f"{path}/members")
        self.claims: WatchCache[frozenset[str]] = WatchCache(f"{path}/claims", self._read_state)
        self.held: dict[str, Grant] = {}
        self.changed = Signal()
        self.member: str | None = None
        self._has_stray_claims = False
        """Whether there may be claims of ours that we do not hold."""
        self._names: list[str] = []
        """Names under which there may be claims of ours: that of the member, and earlier ones."""
        self._leaving = Signal()
        self._finished = Signal()
        self._joining: Signal | None = None
        self._undo_finished: Signal | None = None
        """Fires when a membership whose start was interrupted has ended."""
        self._working = False

    @property
    def idle(self) -> bool:
        """Whether we are no member, nor joining."""
        return self.member is None and self._joining is None

    async def _read_state(self, watch: Watch) -> frozenset[str]:
        return frozenset(await names_below(self.claims.path, watch))

    async def join(self, contender_data: bytes, callbacks: Callbacks, names: list[str] | None = None) -> Members | None:
        """Become a member; the shares follow in the background.

        Returns the members that were there before; None if this process was a member already. If
        several threads join at once, one of them does. A membership that is being left ends first.
        ``names`` gets our name before the member is created.
        """
        while (before := self._joining or self._undo_finished or self._leave_finished) is not None:
            if await Wait(before) is WakeReason.DEADLINE:
                raise DeadlineError(f"another membership of this process in {self.claims.path}")
        if self.member is not None:
            return None
        self._joining = joining = Signal()
        try:
            return await self._join(contender_data, callbacks, names)
        finally:
            self._joining = None
            joining.fire()

    @property
    def _leave_finished(self) -> Signal | None:
        """A signal that fires when the membership that is being left has ended."""
        return self._finished if self.member is not None and self._leaving.fired else None

    async def _join(self, contender_data: bytes, callbacks: Callbacks, names: list[str] | None) -> Members:
        member = await self.group.join(contender_data, names=names)
        try:
            members = await self.group.view.get()
            self.member, self._leaving, self._finished = member, Signal(), Signal()
            await Background(self._work(member, contender_data, callbacks))
        except BaseException:
            if self.member == member:  # its work may have started: no second one may run beside it
                self._leaving.fire()
                self._undo_finished = self._finished
                await Background(self._work(member, contender_data, callbacks))
            else:
                await Background(self.group.leave(member))
            raise
        mine = members.get(member)
        return {} if mine is None else {n: m for n, m in members.items() if m.stat.czxid < mine.stat.czxid}

    async def leave(self, member: str | None = None) -> bool:
        """Give up all shares, then leave. Return False if we were no member, or not this one."""
        if self.member is None or member not in (None, self.member):
            return False
        self._leaving.fire()
        if await Wait(self._finished) is WakeReason.DEADLINE:
            raise DeadlineError(f"giving up shares of {self.claims.path}")
        return True

    async def _work(self, member: str, contender_data: bytes, callbacks: Callbacks) -> None:
        """Keep the number of our shares at our quota: the only background protocol."""
        if self._working or self.member != member:  # it has started already, although the start was interrupted
            return
        self._working = True
        leaving, finished = self._leaving, self._finished
        try:
            await self._take_part(member, contender_data, callbacks, leaving)
        except ClientClosedError:
            pass
        finally:
            self.held.clear()
            self.member = self._undo_finished = None
            self._working = False
            finished.fire()
            self._notify()

    async def _take_part(self, member: str, contender_data: bytes, callbacks: Callbacks, leaving: Signal) -> None:
        """Keep shares until we leave. Join again, under another name, if the membership ends otherwise."""
        name: str | None = member
        while name is not None:
            self._names.append(name)
            refusal: DistsyncError | None = None
            try:
                await self._balance(name, contender_data, callbacks, leaving)
                if not leaving.fired:
                    await Call(partial(callbacks.interrupted, "its znode was deleted"), is_notice=True)
                    name = await self.group.join(contender_data)
                    continue
            except ClientClosedError:
                raise
            except DistsyncError as error:
                refusal = error
            refusal = await self._leave_group(name, callbacks) or refusal
            if leaving.fired:
                if refusal is not None:
                    raise refusal
                return
            await Call(partial(callbacks.interrupted, str(refusal)), is_notice=True)
            name = await self._come_back(contender_data, leaving)

    async def _come_back(self, contender_data: bytes, leaving: Signal) -> str | None:
        """Join once the server accepts our requests. Return our name, or None if we leave before."""
        while not leaving.fired:
            await KeepResults()
            if await Wait(leaving, limit=REFUSED_S) is WakeReason.SIGNAL:
                break
            try:
                await self._delete_stray_claims()
                await self._try_to_claim(contender_data)
                return await self.group.join(contender_data)
            except ClientClosedError:
                raise
            except DistsyncError:
                continue
        return None

    async def _try_to_claim(self, contender_data: bytes) -> None:
        """Create and delete a claim in one transaction, so that no other client sees it. Raise if that is refused."""
        path = f"{self.claims.path}/;{await Guid()}-"
        while True:
            try:
                await Multi((Create(path, contender_data, ephemeral=True, own_cleanup=True), Delete(path)))
                return
            except NoNodeError:
                await ensure(self.claims.path, container=True)
            except INTERRUPTED:
                await Connected()

    async def _balance(self, member: str, contender_data: bytes, callbacks: Callbacks, leaving: Signal) -> None:
        """Take and give up shares until we leave, or our znode was deleted."""
        while not leaving.fired and member in self.group.mine:
            await self._drop_lost(callbacks)
            if self._has_stray_claims:
                await self._delete_stray_claims()
            await KeepResults()
            members = await self.group.view.get()
            wanted = quota(members, member, len(self.shares)) - len(self.held)
            if wanted < 0:
                await self._give_up(self._newest(), callbacks)
            elif not (wanted and await self._take(member, wanted, contender_data, callbacks)):
                losses = [grant.loss for grant in self.held.values()]
                signals = [self.group.view.watch, *([self.claims.watch] if wanted else [])]
                await Wait(leaving, self.group.membership_ended(member), *signals, *losses)

    async def _leave_group(self, name: str, callbacks: Callbacks) -> DistsyncError | None:
        """Give up all shares and leave. Return the error of a refused request, for which other members do not wait."""
        refusal: DistsyncError | None = None
        while self.held:
            await self._drop_lost(callbacks)
            for share in list(self.held):
                try:
                    await self._give_up(share, callbacks)
                except ClientClosedError:
                    raise
                except DistsyncError as error:
                    refusal = error
        for leave in (self._delete_stray_claims, partial(self.group.leave, name)):
            try:
                await leave()
            except ClientClosedError:
                raise
            except DistsyncError as error:
                refusal = error
        return refusal

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
        """Let the user's callback stop the work, then free the share."""
        grant = self.held[share]
        await Call(partial(callbacks.released, share, grant.token))
        del self.held[share]
        self._notify()
        await StopHolding(grant.loss)
        await delete_own(grant.entry.path, grant.entry.session_id)
        self.claims.forget()

    async def _take(self, member: str, wanted: int, contender_data: bytes, callbacks: Callbacks) -> bool:
        """Claim free shares, up to ``wanted``. Return False if there are none.

        As in Locks, steps 1 to 3: a claim holds its share if it is the first one in a list that was
        read after it.
        """
        taken = set(map(share_of, await self.claims.get()))
        free = [share for share in preference(member, self.shares) if share not in taken][:wanted]
        if not free:
            return False
        claims = [
            Create(f"{self.claims.path}/{share};{member}-", contender_data, ephemeral=True, sequence=True)
            for share in free
        ]
        self._has_stray_claims = True
        *replies, listing = await Pipeline(*claims, Children(self.claims.path))
        self.claims.forget()
        for share, reply in zip(free, replies, strict=True):
            if isinstance(reply, NoNodeError):
                await ensure(self.claims.path, container=True)
            elif isinstance(reply, Created) and reply.stat is not None and isinstance(listing, Listing):
                name = reply.path.rpartition("/")[2]
                if wait_queue.predecessors([each for each in listing.names if share_of(each) == share], name) == []:
                    entry = wait_queue.QueueEntry(self.claims.path, name, reply.stat.czxid, reply.stat.ephemeral_owner)
                    await self._hold(share, entry, callbacks)
            elif isinstance(reply, DistsyncError) and not isinstance(reply, INTERRUPTED):
                raise reply
        return True

    async def _delete_stray_claims(self) -> None:
        """Delete claims of ours that came too late, or whose reply was lost, or that we could not delete."""
        held, mine = {grant.entry.name for grant in self.held.values()}, [f";{name}-" for name in self._names]
        for name in sorted(await self.claims.get(sync=True)):
            if name not in held and any(each in name for each in mine):
                await delete_until_session_ends(f"{self.claims.path}/{name}", (await Connected()).session_id)
                self.claims.forget()
        self._has_stray_claims = False
        self._names = [
            name for name in self._names if name in self.group.mine or any(f";{name}-" in one for one in held)
        ]

    async def _hold(self, share: str, entry: wait_queue.QueueEntry, callbacks: Callbacks) -> None:
        grant = await hold(entry)
        if not grant.loss.fired:
            self.held[share] = grant
            self._notify()
            await Call(partial(callbacks.acquired, share, grant.token))

    async def wait_for_change(self, changed: Signal) -> None:
        """Wait until ``changed``, obtained before the caller looked, fires; or a share is lost; or the
        deadline.
        """
        await Wait(changed, *(grant.loss for grant in self.held.values() if not grant.loss.fired))
