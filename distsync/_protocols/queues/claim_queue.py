"""JoinableQueue: a worker claims an item and deletes it when done; if its session ends, the item is
available again.

Source: recipes.txt, "Queues"; stdlib ``multiprocessing.JoinableQueue``. Claims, delays, keys and
dead letters are ours.

A claim is one transaction: write the item, whose ItemHeader counts deliveries, if it is unchanged
since it was read, and create an ephemeral znode with the claim's fixed name. So only one worker has
the item, and the end of its session makes the item available in its old place: first in order.
Finishing is one transaction: delete item, claim and key, count it as done; it requires the item's
version since the claim. So a worker that lost its claim but not the item can still finish it, and a
worker that lost the item gets an error. Server time, as recorded in znodes, determines when a
delayed item is available; no host's clock does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from distsync._protocols.queues.acknowledgement import AckQueue
from distsync._protocols.queues.blocking_get import take
from distsync._protocols.queues.bounded import PendingClaimPut
from distsync._protocols.queues.claim_layout import ClaimedItem, ItemHeader, by_due_time, due_time
from distsync._protocols.queues.segments import BATCH, BATCH_BYTES, ITEM_BYTES
from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.retries import read, read_all
from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Create,
    Delete,
    Exists,
    GetData,
    Guid,
    Hold,
    Node,
    Request,
    SessionAlive,
    SetData,
    Signal,
    Wait,
    Watch,
)
from distsync._protocols.wait_queue import in_order
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    DeadlineError,
    Full,
    NodeExistsError,
    NoNodeError,
    ShutDown,
)

#: Seconds after which an item claimed ahead, but not requested, becomes available to others, which
#: may be idle.
AHEAD_S = 3.0

#: Errors of a request that lost a race: the item is claimed by another worker, or deleted.
CONFLICT_ERRORS = (BadVersionError, NodeExistsError, NoNodeError)


class JoinableCore(AckQueue):
    """In-process state of a queue with claims, shared by all its threads."""

    poll_interval: float | None = None

    def __init__(self, path: str, receipts: Receipts) -> None:
        super().__init__(path, receipts)
        self.claiming: set[str] = set()
        #: Items claimed ahead of a request for them, in order.
        self.ahead: deque[ClaimedItem] = deque()
        #: The watch of the thread that waits for items, if any.
        self.waiting_watch: Watch | None = None
        #: Time at which the first delayed item becomes available (ms, server time); None if there
        #: is none.
        self.next_due: int | None = None
        #: The same, as of the moment when the waiting thread set its watches; other threads
        #: update ``next_due``.
        self.watched_due: int | None = None
        #: Deliveries that the threads of this process have got, in order.
        self.open: list[Any] = []

    @property
    def idle(self) -> bool:
        return not self.open and not self.ahead and self.endings.idle and super().idle

    # Putting

    async def put(
        self, data: bytes, blocking: bool = True, key: str = "", maxsize: int = 0, coalesce: bool = False
    ) -> None:
        """Put an item with its header. Raises Full and ShutDown. ``coalesce``: as QueueCore.put."""
        if coalesce and maxsize <= 0:
            await super().put(data, blocking, "", maxsize, coalesce)
        else:
            await self._put(data, blocking, maxsize)

    async def add(
        self,
        payload: bytes,
        blocking: bool = True,
        delay: float = 0.0,
        key: str | None = None,
        maxsize: int = 0,
        coalesce: bool = False,
    ) -> bool:
        """Put an item that is available after ``delay`` seconds. Return False if the queue has an item
        of this key.
        """
        data = ItemHeader(0, key).before(payload)
        if coalesce and key is None and delay <= 0:
            await self.put(data, blocking, "", maxsize, coalesce)
            return True
        also = () if key is None else (Create(self.znodes.key(key)),)
        try:
            if delay > 0:
                await self._put_delayed(data, delay, *also)
            else:
                await self._put(data, blocking, maxsize, *also)
        except NodeExistsError:
            return False
        except DeadlineError as error:
            raise_if_from_handler(error)
            raise Full from None
        return True

    async def _put(self, data: bytes, blocking: bool, maxsize: int, *extra_operations: Operation) -> None:
        if maxsize > 0 and not blocking:
            await self._expect_room(maxsize)
        item = f"i_{await Guid()}-"
        try:
            segment, outcome = await self.append([(item, data)], *extra_operations, bounded=maxsize > 0)
        except DeadlineError as error:
            raise_if_from_handler(error)
            raise Full from None
        if maxsize > 0:
            path = self._path_in(outcome, 1)
            await PendingClaimPut(self, segment, item, path, data, maxsize).wait_within_bound(outcome.replies, blocking)

    def bound_reads(self, segment: str) -> tuple[Request[Any], ...]:
        return *super().bound_reads(segment), Children(self.znodes.claims)

    async def _put_delayed(self, data: bytes, delay: float, *extra_operations: Operation) -> None:
        while True:
            later = await self._later(data, delay)
            try:
                await self.receipts.commit(
                    Check(self.znodes.state, 0), later, SetData(self.znodes.puts), *extra_operations
                )
                return
            except BadVersionError:
                raise ShutDown from None
            except NoNodeError:
                await self.znodes.make()

    async def retract_unclaimed(self, path: str, label: ItemHeader) -> bool:
        """Remove an item that no worker has claimed. Return whether it was removed. A claim would have
        changed its version.
        """
        try:
            await self.receipts.commit(Delete(path, 0), SetData(self.znodes.dones), *self._without_key(label))
            return True
        except (NoNodeError, BadVersionError):
            return False

    # Claiming

    async def claim(
        self, contender_data: bytes, blocking: bool = True, max_items: int = 1, max_deliveries: int = 0
    ) -> list[ClaimedItem]:
        """Claim items as `claim_into` does, and return them. Give them back if this is interrupted."""
        claimed: list[ClaimedItem] = []
        try:
            await self.claim_into(claimed, contender_data, blocking, max_items, max_deliveries)
            return claimed
        except BaseException:
            if claimed:
                settled = Signal()
                self.unsettled.add(settled)
                await Background(self.give_all_back(claimed, settled))
            raise

    async def claim_into(
        self,
        claimed: list[ClaimedItem],
        contender_data: bytes,
        blocking: bool = True,
        max_items: int = 1,
        max_deliveries: int = 0,
        prefetch: int = 0,
    ) -> None:
        """Claim up to ``max_items`` items, those claimed ahead first, and add them to ``claimed``.

        Claim up to ``prefetch`` more for later calls. Add nothing if there is no item, without
        ``blocking`` or at the deadline. Raises ShutDown.

        An interrupt may come anywhere: an item is in ``claimed`` as soon as it is in no other list.
        The caller gives back what an interrupted call has claimed, by `give_all_back`.
        """
        most = min(max_items + prefetch, BATCH)
        claiming = ClaimAttempt(self, claimed, contender_data, most, max_deliveries, prefetch > 0)
        while not claimed:
            if await take(claiming, self.turns, self.getters, contender_data, blocking) is None:
                return
            await self._keep_ahead(claimed, max_items)
            while len(claimed) < max_items and self._take_ahead(claimed):
                pass

    async def _keep_ahead(self, claimed: list[ClaimedItem], max_items: int) -> None:
        """Move the items beyond ``max_items`` to those claimed ahead, for the next callers."""
        rest = claimed[max_items:]
        if rest:
            await Background(self._return_late(rest))
            try:
                self.ahead.extend(rest)
                del claimed[max_items:]
                if self.waiting_watch is not None:
                    self.waiting_watch.fire()
            except BaseException:
                self.ahead = deque(each for each in self.ahead if each not in claimed)
                raise

    async def _has_ahead(self) -> bool:
        """Return whether there is an item claimed ahead that is provably ours."""
        while self.ahead:
            first = self.ahead[0]
            ours = not first.loss.fired and await SessionAlive(first.session_id)
            if self.ahead and self.ahead[0] is first:
                if ours:
                    return True
                self.ahead.popleft()
        return False

    def _take_ahead(self, claimed: list[ClaimedItem]) -> bool:
        """Move the first item claimed ahead to ``claimed``. Return whether there was one."""
        while self.ahead and self.ahead[0].loss.fired:
            self.ahead.popleft()
        if not self.ahead:
            return False
        try:
            claimed.append(self.ahead[0])
            self.ahead.popleft()
        except BaseException:
            claimed[:] = [each for each in claimed if each not in self.ahead]
            raise
        return True

    async def _return_late(self, deliveries: Sequence[ClaimedItem]) -> None:
        await Wait(limit=AHEAD_S)
        await self._return(deliveries)

    async def _return(self, deliveries: Sequence[ClaimedItem]) -> None:
        """Undo the claims on those of ``deliveries`` that are still claimed ahead."""
        for each in deliveries:
            if each in self.ahead:
                self.ahead.remove(each)
                try:
                    await self.give_back(each)
                except BaseException:
                    await Background(self.give_back(each))
                    raise

    async def look(self, watch: Watch | None = None) -> list[str]:
        """Return the available items of the first parent that has any, in order. Set ``watch`` on all
        that may add one.
        """
        znodes = self.znodes
        while True:
            head = self.head or znodes.segment(0)
            reads = (Children(znodes.claims, watch), Children(znodes.delayed, watch), Children(znodes.items, watch))
            claims, delayed, items, first = await read_all(*reads, Children(head, watch))
            if any(isinstance(reply, NoNodeError) for reply in (claims, delayed, items)):
                await znodes.make()
                continue
            taken = set(claims.names)
            waiting = znodes.free(znodes.delayed, by_due_time(delayed.names), taken)
            due = [path for path in waiting if due_time(path) <= self.time]
            self.next_due = due_time(waiting[0]) if waiting else None
            if watch is not None:
                self.watched_due = self.next_due
            segments = [f"{znodes.items}/{name}" for name in sorted(items.names)]
            found = due or await self._look_in(segments, {head: first}, taken, watch)
            if found is not None:
                return found

    async def _look_in(
        self, segments: Sequence[str], known: dict[str, Any], taken: set[str], watch: Watch | None
    ) -> list[str] | None:
        """Return the unclaimed items of the first segment that has any, and delete empty segments
        before it.

        Returns None if the last segment was sealed or deleted since, so that there is a next one.
        """
        self.head, is_open = None, True
        for segment in segments:
            (listing,) = (known[segment],) if segment in known else await read_all(Children(segment, watch))
            is_open = not isinstance(listing, NoNodeError) and listing.stat.version == 0
            if isinstance(listing, NoNodeError):
                continue
            if listing.names or segment == segments[-1]:
                self.head = self.head or segment
            else:
                await self.znodes.drop_segment(segment)
            free = self.znodes.free(segment, (item.name for item in in_order(listing.names)), taken)
            if free:
                return free
        if is_open:
            return []
        await self.znodes.ensure_next_segment(segments[-1])
        return None

    async def is_over(self) -> bool:
        """Return whether the queue is shut down and all its items are done."""
        if not await self.is_shutdown():
            return False
        znodes = self.znodes
        state, *puts, dones = await read_all(Exists(znodes.state), *znodes.put_counters, Exists(znodes.dones))
        return bool(state and state.version > 0 and dones and znodes.backlog(*puts, dones) == 0)

    async def attempt_claim(
        self,
        claimed: list[ClaimedItem],
        contender_data: bytes,
        max_items: int,
        max_deliveries: int,
        only_undelivered: bool,
    ) -> bool | None:
        """Add items to ``claimed``. Return None if there are none, and False if there are items claimed ahead."""
        while not await self._has_ahead():
            await self.unsettled.wait_until_settled()
            paths = await self.look()
            if not paths:
                if self.next_due is not None and self.next_due <= await self.now():
                    continue
                if await self.is_over():
                    raise ShutDown
                return None
            paths = await self.candidates([path for path in paths if path not in self.claiming] or paths, max_items)
            for start in range(0, len(paths), max_items):
                chosen = paths[start : start + max_items]
                if await self._claim(claimed, chosen, contender_data, max_deliveries, only_undelivered):
                    return True
                if max_items > 1:  # contention: try fewer at once
                    max_items //= 2
                    break
        return False

    async def _claim(
        self,
        claimed: list[ClaimedItem],
        paths: list[str],
        contender_data: bytes,
        max_deliveries: int,
        only_undelivered: bool,
    ) -> bool:
        """Claim all of these items, and add them to ``claimed``; none if one is claimed by another
        worker, or was delivered too often. Return whether any was claimed.

        With ``only_undelivered``, an item that was delivered before is claimed alone.
        """
        self.claiming.update(paths)
        try:
            nodes = await read_all(*map(GetData, paths))
            found = [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
            claims = [self._wanted(path, node) for path, node in found]
            worn = [each for each in claims if 0 < max_deliveries < each.label.deliveries]
            for each in worn:
                await self._dead_letter(each, each.version - 1, each.label.deliveries - 1, *if_unclaimed(each.claim))
            if worn or not claims:
                return False
            claims = self.claimable(never_delivered(claims) if only_undelivered else claims)
            writes = [SetData(each.path, each.label.before(each.payload), each.version - 1) for each in claims]
            # The next claim on the item has the same name: only give_back, which knows the version of the item,
            # can tell them apart.
            ours = [Create(each.claim, contender_data, ephemeral=True, own_cleanup=True) for each in claims]
            outcome = await self.receipts.commit(
                *writes, *ours, on_unknown_outcome=partial(self._give_back, claims), unsettled=self.unsettled
            )
            claimed += claims
            if outcome.results:
                self._on_event(outcome.results[0])
            for each in claims:
                each.session_id = outcome.session_id
                await Hold(each.claim, outcome.session_id, each.loss)
            return True
        except CONFLICT_ERRORS:
            return False
        finally:
            self.claiming.difference_update(paths)

    async def candidates(self, paths: list[str], max_items: int) -> list[str]:
        """Return the available items in the order in which to try them, ``max_items`` at once."""
        return paths

    def claimable(self, claims: list[ClaimedItem]) -> list[ClaimedItem]:
        """Return the first of ``claims``: those to claim in one transaction."""
        return fit_request(claims)

    def _wanted(self, path: str, node: Node) -> ClaimedItem:
        """Return the item as it will be after our claim."""
        label, payload = ItemHeader.split(node.data)
        more = label._replace(deliveries=label.deliveries + 1)
        return ClaimedItem(path, self.znodes.claim(path), node.stat.version + 1, more, payload)

    async def _give_back(self, claims: Sequence[ClaimedItem], done: bool | None) -> None:
        """Undo the claims of a call that had ended."""
        for each in claims if done else ():
            await self.give_back(each)

    async def give_all_back(self, claimed: Sequence[ClaimedItem], settled: Signal) -> None:
        """Undo the claims of an interrupted call; then fire ``settled``, which `unsettled` has recorded."""
        try:
            for each in claimed:
                await self.give_back(each)
        finally:
            settled.fire()

    async def set_watch(self, watch: Watch, maxsize: int = 0) -> bool:
        self.waiting_watch = watch
        paths = await self.look(watch)
        (state,) = await read_all(GetData(self.znodes.state, watch))
        if paths or self.ahead or isinstance(state, NoNodeError) or (state.stat.version and await self.is_over()):
            return False
        self.poll_interval = None
        if self.watched_due is not None:
            self.poll_interval = max(0, self.watched_due - await self.now()) / 1000
        return self.poll_interval != 0

    async def watch_arrivals(self, watch: Watch, maxsize: int = 0) -> str | None:
        """Set ``watch`` on the claims, the delayed items and the first segment with items. Return an item
        that has no claim, or the folder of the delayed items if one is due.
        """
        znodes, head = self.znodes, self.head or self.znodes.segment(0)
        reads = (Children(znodes.claims, watch), Children(znodes.delayed, watch), Children(head, watch))
        claims, delayed, listing = replies = await read_all(*reads)
        self.poll_interval = None
        if any(isinstance(reply, NoNodeError) for reply in replies) or listing.stat.version:
            paths, due = await self.look(watch), self.next_due
        else:
            taken = set(claims.names)
            paths = znodes.free(head, (item.name for item in in_order(listing.names)), taken)
            waiting = znodes.free(znodes.delayed, by_due_time(delayed.names), taken)
            due = due_time(waiting[0]) if waiting else None
        if not paths and due is not None:
            self.poll_interval = max(0, due - await self.now()) / 1000
            return znodes.delayed if self.poll_interval == 0 else None
        return paths[0] if paths else None

    # Ending

    async def shutdown(self, immediate: bool = False, maxsize: int = 0) -> None:
        """Refuse further puts. Workers get the remaining items, or none if ``immediate``, and then
        ShutDown.
        """
        await super().shutdown(False)
        if immediate:
            await self._return(tuple(self.ahead))
        while immediate:
            paths = await self._all_free()
            if not paths:
                return
            for path in paths:
                await self._discard(path)

    async def _all_free(self) -> list[str]:
        """Return some of the unclaimed items, available or delayed."""
        paths = await self.look()
        if paths:
            return paths
        claims, delayed = await read_all(Children(self.znodes.claims), Children(self.znodes.delayed))
        return self.znodes.free(self.znodes.delayed, delayed.names, set(claims.names))

    async def _discard(self, path: str) -> None:
        try:
            node = await read(GetData(path))
            label, _ = ItemHeader.split(node.data)
            mine = (Delete(path, node.stat.version), *if_unclaimed(self.znodes.claim(path)))
            await self._commit_mine(*mine, SetData(self.znodes.dones), *self._without_key(label))
        except CONFLICT_ERRORS:
            pass


def if_unclaimed(claim: str) -> tuple[Operation, ...]:
    """Return operations that fail if the item is claimed."""
    return Create(claim), Delete(claim)


def never_delivered(claims: list[ClaimedItem]) -> list[ClaimedItem]:
    """Return the leading items that were never delivered, or the first item alone, which may kill its
    workers.
    """
    again = next((number for number, each in enumerate(claims) if each.label.deliveries > 1), len(claims))
    return claims[: max(1, again)]


def fit_request(claims: list[ClaimedItem]) -> list[ClaimedItem]:
    """Return the first items that fit into one request."""
    size, number = 0, 0
    for each in claims:
        size += len(each.payload) + ITEM_BYTES + 3 * len(each.path)
        if number and size > BATCH_BYTES:
            break
        number += 1
    return claims[:number]


class ClaimAttempt:
    """A source from which a worker claims items of a queue."""

    def __init__(
        self,
        core: JoinableCore,
        claimed: list[ClaimedItem],
        contender_data: bytes,
        max_items: int,
        max_deliveries: int,
        only_undelivered: bool,
    ) -> None:
        self.core = core
        self.claimed = claimed
        self.contender_data = contender_data
        self.max_items = max_items
        self.max_deliveries = max_deliveries
        self.only_undelivered = only_undelivered

    @property
    def poll_interval(self) -> float | None:
        return self.core.poll_interval

    def try_take(self) -> Awaitable[bool | None]:
        return self.core.attempt_claim(
            self.claimed, self.contender_data, self.max_items, self.max_deliveries, self.only_undelivered
        )

    def set_watch(self, watch: Watch) -> Awaitable[bool]:
        return self.core.set_watch(watch)

    def watch_arrivals(self, watch: Watch) -> Awaitable[str | None]:
        return self.core.watch_arrivals(watch)
