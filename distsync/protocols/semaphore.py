"""Semaphores of leases: fewer than ``limit`` ahead in the line is a permit; a dead holder's permit comes back.

Source: recipes.txt, "Locks", with a limit; the extra permits and the marks are ours.

Rules for this file: pure; the state of a SemaphoreCore is shared by the threads of one process.

Picture: ``<path>``                            data = ``{"initial": n, "extra": k}``
         ``<path>/_c_<guid>-lock-<sequence>``  ephemeral, one a permit taken or waited for; version 0: has not waited
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable
from typing import Any

from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    DistsyncError,
    LockLostError,
    MismatchError,
    NoNodeError,
    OutcomeUnknownError,
    OverReleaseError,
    SessionLostError,
)
from distsync.protocols import admission, line
from distsync.protocols.commit import Receipts
from distsync.protocols.grant import Grant, hold, of_owner
from distsync.protocols.guard import INTERRUPTED, SENSELESS, ensure, leave, read, read_all, remove
from distsync.session.steps import (
    Background,
    Check,
    Children,
    Connected,
    Delete,
    GetData,
    Listing,
    Node,
    Proven,
    SetData,
    Sync,
    Unhold,
    Watch,
)


def permits_in(path: str, data: bytes) -> tuple[int, int]:
    """The initial number of permits, and how many were released beyond."""
    try:
        fields = json.loads(data)
        return int(fields["initial"]), int(fields["extra"])
    except SENSELESS:
        raise CorruptNodeError(path, data) from None


def permits_data(initial: int, extra: int) -> bytes:
    """The data of the semaphore's own znode."""
    return json.dumps({"initial": initial, "extra": extra}).encode()


class SemaphoreCore:
    """What the threads of one process know together about one semaphore."""

    def __init__(self, path: str, initial: int, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.receipts = receipts
        self.grants: deque[Grant] = deque()
        self.extra, self.version = 0, -1

    @property
    def idle(self) -> bool:
        """No permit is held."""
        return not self.grants

    async def parents(self, directory: str) -> None:
        await ensure(directory, permits_data(self.initial, 0))

    async def acquire(
        self, data: bytes, wait: bool = True, owner: object = None, bound: int | None = None
    ) -> Grant | None:
        """A permit. None: not at once if we do not ``wait``, or not before the deadline; then no more than ``bound``
        are free for it, should one have been released to us in this moment."""
        while True:
            try:
                reads = (Children(self.path), GetData(self.path))
                place, answers = await line.stand(self.path, line.LOCK, data, *reads, parents=self.parents)
            except DeadlineError:
                return None
            admitted: bool | None = None
            try:
                admitted = await self.enter(place, data, answers, wait)
                if admitted:
                    return await self.granted(place, owner)
            except SessionLostError:
                continue
            except BaseException as error:
                await Background(self._forgo(place, bound))
                if isinstance(error, DeadlineError):
                    return None
                raise
            if admitted is False:
                await self._forgo(place, bound)
                return None

    async def _forgo(self, place: line.Place, bound: int | None) -> None:
        """We do not wait any more."""
        try:
            if bound is None:
                await leave(place.path, place.session_id)
            else:
                await self._leave_bounded(place.path, bound)
        except (OverReleaseError, SessionLostError):
            pass
        except (DeadlineError, OutcomeUnknownError):
            await Background(remove(place.path, place.session_id))

    async def enter(self, place: line.Place, data: bytes, answers: tuple[Any, ...], wait: bool) -> bool | None:
        """True: we are in, and our session provably lives. False: not in time. None: our znode is gone."""
        crowd = Lease(self, place, data)
        crowd.patience = (await Connected()).timeout_ms / 2000
        view = crowd.view(answers) or await crowd.look()
        while True:
            if not wait and view.ahead is not None and len(view.ahead) >= view.limit:
                return False
            admitted = await admission.admit(crowd, view)
            if not admitted or await Proven(crowd.place.session_id):
                return admitted
            view = await crowd.look()

    async def granted(self, place: line.Place, owner: object) -> Grant:
        """Who has this place holds a permit."""
        grant = await hold(place, owner)
        self.grants.append(grant)
        return grant

    def limit(self, node: Node) -> int:
        """How many permits there are in all."""
        initial, extra = permits_in(self.path, node.data)
        if initial != self.initial:
            raise MismatchError("the initial value", self.path, initial, self.initial)
        self.extra, self.version = extra, node.stat.version
        return initial + extra

    async def capacity(self) -> int:
        """How many permits there are, free or not."""
        try:
            return self.limit(await read(GetData(self.path)))
        except NoNodeError:
            return self.initial

    async def release(
        self, count: int = 1, bound: int | None = None, begun: list[bool] | None = None, owner: object = None
    ) -> None:
        """``count`` permits are free again: leases of ``owner`` first, so that who lost one is told, then others of
        this process, then permits added for good.

        Raises OverReleaseError if then more than ``bound`` would be free: no more are. Once ``begun`` says
        so, whatever interrupts it, the leases go.
        """
        mine: list[Grant] = []
        try:
            if begun is not None:
                begun[0] = True
            mine += of_owner(self.grants, owner, count)
            for grant in mine:
                self.grants.remove(grant)
            if count > len(mine):
                try:
                    await self._add(count - len(mine), bound, mine)
                except OverReleaseError:
                    self.grants.extendleft(reversed(mine))
                    raise
            lost, over = [], None
            for grant in mine:
                try:
                    if not await self._give_back(grant, bound):
                        lost.append(grant)
                except OverReleaseError as error:
                    over = error
            if over is not None:
                raise over
        except OverReleaseError:
            raise
        except BaseException:
            for grant in mine or of_owner(self.grants, owner, count):
                await Background(self.drop(grant))
            raise
        if lost:
            raise LockLostError(self.path, lost[0].loss.reason or "znode deleted")

    async def drop(self, grant: Grant) -> None:
        """Its acquire or its release was interrupted somewhere."""
        if grant in self.grants:
            self.grants.remove(grant)
        await self._give_back(grant, None)

    async def _give_back(self, grant: Grant, bound: int | None) -> bool:
        path, session_id = grant.place.path, grant.place.session_id
        try:
            await Unhold(grant.loss)
            there = await (leave(path, session_id) if bound is None else self._leave_bounded(path, bound))
            return there and not grant.loss.fired
        except OverReleaseError:
            raise
        except (DeadlineError, OutcomeUnknownError):
            await Background(remove(path, session_id))
            return not grant.loss.fired
        except BaseException:
            await Background(remove(grant.place.path, grant.place.session_id))
            raise

    async def _leave_bounded(self, path: str, bound: int) -> bool:
        """As leave; where somebody added a permit meanwhile, that one goes too if more than ``bound`` would be free."""
        while True:
            try:
                change, over = await self.leaving(bound)
                await self.receipts.commit(change, Delete(path))
            except BadVersionError:
                self.version = -1
                continue
            except NoNodeError:
                return False
            if over:
                raise OverReleaseError("Semaphore released too many times")
            return True

    async def leaving(self, bound: int) -> tuple[Check | SetData, bool]:
        """What is done in the transaction in which one leaves, and whether there are too many permits then. Raises
        NoNodeError; a BadVersionError of the transaction means that ``version`` is not known, -1."""
        behind: tuple[Sync, ...] = ()
        while self.extra or self.version < 0:
            *_, listing, node = await read_all(*behind, Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                raise NoNodeError(self.path)
            if listing.stat.version != node.stat.version:
                continue
            free, leases = self.limit(node), len(line.in_order(listing.names))
            over = free - leases + 1 > bound and self.extra > 0
            if over and not behind:
                behind = (Sync(self.path),)  # our server may lag
                continue
            if self.extra:
                return SetData(self.path, permits_data(self.initial, self.extra - over), self.version), over
            break
        return Check(self.path, self.version), False

    async def _add(self, count: int, bound: int | None, returned: list[Grant]) -> None:
        """More permits for good. They, and those that are ``returned`` beside them, may be over the bound."""
        returning = {grant.place.name for grant in returned}
        behind: tuple[Sync, ...] = ()
        while True:
            *_, listing, node = await read_all(*behind, Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                await self.parents(self.path)
                continue
            initial, extra = permits_in(self.path, node.data)
            holders = line.in_order(listing.names)[: initial + extra]
            taken = [f"{self.path}/{lease.name}" for lease in holders if lease.name not in returning]
            over = 0 if bound is None else max(0, initial + extra + count - bound)
            if over > len(taken) and not behind:
                behind = (Sync(self.path),)  # our server may lag
                continue
            if over > len(taken):
                raise OverReleaseError("Semaphore released too many times")
            change = SetData(self.path, permits_data(initial, extra + count), node.stat.version)
            try:  # so many are taken still
                await self.receipts.commit(change, *map(Check, taken[len(taken) - over :]))
                return
            except (BadVersionError, NoNodeError):
                continue

    async def value(self) -> int:
        """How many permits are free now."""
        listing, node = await read_all(Children(self.path), GetData(self.path))
        if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
            return self.initial
        return max(0, self.limit(node) - len(line.in_order(listing.names)))


class Lease:
    """One contender of a semaphore, as something to wait in."""

    def __init__(self, core: SemaphoreCore, place: line.Place, data: bytes) -> None:
        self.core = core
        self.place = place
        self.data = data
        self.patience = 60.0

    def view(self, answers: tuple[Any, ...]) -> admission.View | None:
        """What these answers say; None if they say nothing because the connection broke."""
        listing, node = answers
        if isinstance(listing, NoNodeError) or isinstance(node, NoNodeError):
            return admission.View(None, 0)
        for answer in answers:
            if isinstance(answer, DistsyncError) and not isinstance(answer, INTERRUPTED):
                raise answer
        if not isinstance(listing, Listing) or not isinstance(node, Node):
            return None
        ahead = line.ahead_of(listing.names, self.place.name)
        paths = None if ahead is None else tuple(f"{self.place.directory}/{contender.name}" for contender in ahead)
        return admission.View(paths, self.core.limit(node))

    async def look(self) -> admission.View:
        return await self._see(None)

    async def watch(self, view: admission.View, watch: Watch) -> admission.View:
        return await self._see(watch)

    async def _see(self, watch: Watch | None) -> admission.View:
        self.patience = (await Connected()).timeout_ms / 2000
        path = self.place.directory
        while True:
            view = self.view(await line.look(self.place, Children(path, watch), GetData(path, watch)))
            if view is not None:
                return view

    def still(self) -> Awaitable[None]:
        return line.still(self.place)

    def marked(self, node: Node) -> bool:
        return node.stat.version > 0

    async def mark(self) -> None:
        try:
            await SetData(self.place.path, self.data)
        except (NoNodeError, *INTERRUPTED):
            return
