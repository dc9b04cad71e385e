"""FIFO queue: unlimited depth, no lost and no duplicate items.

Source: recipes.txt, "Queues"; stdlib ``queue.Queue``. Unlike the recipe's, items are persistent,
because an ephemeral item would be deleted when the session of its producer ends.

A put is one transaction: check that the queue is open and the tail segment not sealed, create the
item, count the put. A get is one transaction as well: delete the item, count the get. Both write a
receipt, so that a lost reply neither duplicates nor loses an item. A getter reads an item before it
takes it. An item taken by a call that has already ended (deadline, Ctrl-C) is restored to its
place, unless the call was to discard it. See segments.py for the znodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from distsync._protocols.group_commit import GroupCommitter
from distsync._protocols.queues.blocking_get import LocalTurnQueue, take
from distsync._protocols.queues.bounded import PendingPut
from distsync._protocols.queues.segments import BATCH, SEGMENT, Segments, batches, before_all
from distsync._protocols.receipts import CommitOutcome, Operation, Receipts, StillNeeded, Unsettled, always
from distsync._protocols.retries import read, read_all
from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Connected,
    Create,
    Created,
    Delete,
    Exists,
    GetData,
    Guid,
    Node,
    Request,
    SetData,
    Signal,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import in_order, sequence_distance
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    DeadlineError,
    Full,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    ShutDown,
)

#: Paths and data of items that a call has removed from a queue.
TakenItems = list[tuple[str, bytes]]


class QueueCore:
    """In-process state of a queue, shared by all its threads.

    The bound is not part of it, because each call has its own.
    """

    #: Whether items are stored in several segments.
    segmented = True

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.receipts = receipts
        self.znodes = Segments(path)
        self.getters = f"{path}/getters"
        self.turns = LocalTurnQueue()
        #: Gets that were interrupted, whose items are being restored. Another get waits for them:
        #: otherwise it would take a later item.
        self.unsettled = Unsettled()
        self.head: str | None = None
        self.names: deque[str] = deque()
        self.prefetched: dict[str, bytes] = {}
        #: Size in bytes of the largest item of the last batch; None if unknown.
        self.largest: int | None = None
        #: Whether the server may support MultiRead, which ZooKeeper has since 3.6.
        self.may_use_multi_read = True
        #: Number of items that this process has got and not marked as done.
        self.taken_not_done = 0
        #: Version of the znode ``gets`` after the last item that this process got. If it is too
        #: great, an excessive task_done() may go unnoticed.
        self.gets_version = 0
        self.puts: GroupCommitter[tuple[str, bytes], None] = GroupCommitter(self._put_together, self._first_batch_size)
        self.dones: GroupCommitter[None, bool] = GroupCommitter(
            self._done_together, lambda loads: min(len(loads), BATCH)
        )

    @property
    def idle(self) -> bool:
        """Whether no thread waits for an item and no request is outstanding.

        The number of unfinished items is not considered: it only saves requests.
        """
        return not self.turns.is_held and self.puts.idle and self.dones.idle

    @property
    def segment_size(self) -> int:
        """Number of items in a full segment."""
        return SEGMENT

    # Putting

    async def put(
        self, data: bytes, blocking: bool = True, key: str = "", maxsize: int = 0, coalesce: bool = False
    ) -> None:
        """Put an item with data ``data``.

        With ``coalesce``, an item of an unbounded queue is put in one transaction with those of
        other threads; this is for calls without a deadline. Raises Full (without ``blocking``, or
        at the deadline) and ShutDown.
        """
        if maxsize > 0 and not blocking:
            await self._expect_room(maxsize)
        item = f"i_{key}{await Guid()}-"
        if coalesce and maxsize <= 0:
            await self.puts.send((item, data))
            return
        try:
            segment, outcome = await self.append([(item, data)], bounded=maxsize > 0)
        except DeadlineError as error:
            raise_if_from_handler(error)
            raise Full from None
        path = self._path_in(outcome, 1)
        if maxsize > 0:
            await PendingPut(self, segment, item, path, data, maxsize).wait_within_bound(outcome.replies, blocking)

    async def _put_together(self, items: Sequence[tuple[str, bytes]], still_needed: StillNeeded) -> Sequence[None]:
        await self.append(items, still_needed=still_needed)
        return [None] * len(items)

    def _first_batch_size(self, items: Sequence[tuple[str, bytes]]) -> int:
        return len(next(batches(items, len(self.znodes.items))))

    async def _expect_room(self, maxsize: int) -> None:
        """Raise ShutDown or Full if the queue is full, and Full if that is not known in time."""
        try:
            if await self.size() < maxsize:
                return
            if await self.is_shutdown():
                raise ShutDown
        except DeadlineError as error:
            raise_if_from_handler(error)
        raise Full

    async def append(
        self,
        items: Sequence[tuple[str, bytes]],
        *extra_operations: Operation,
        bounded: bool = False,
        still_needed: StillNeeded = always,
    ) -> tuple[str, CommitOutcome]:
        """Put all of these items, or none, and perform ``extra_operations`` in the same transaction.

        Returns the segment and the outcome. Raises Abandoned.
        """
        znodes = self.znodes
        fills = self.segmented and len(items) >= self.segment_size
        while True:
            segment = await znodes.find_tail()
            listings = self.bound_reads(segment) if bounded else ()
            seal = znodes.sealing(segment) if fills else ()
            try:
                operations = self.put_operations(segment, items)
                outcome = await self.receipts.commit(
                    *operations, *extra_operations, *seal, reads=listings, still_needed=still_needed
                )
                break
            except BadVersionError as error:
                if getattr(error, "index", 0) == 0:
                    raise ShutDown from None
                await znodes.ensure_next_segment(segment)
                fills = False  # several producers that all seal would refuse each other's puts
            except NodeExistsError:
                if not fills:
                    raise
                fills = False
            except NoNodeError:
                await znodes.repair(len(items) >= znodes.batch_size)
            znodes.tail = None
        if not fills:
            await self.seal_if_full(segment, outcome, len(items))
        elif znodes.tail == segment:
            znodes.tail = znodes.following(segment)
        return segment, outcome

    def put_operations(self, segment: str, items: Sequence[tuple[str, bytes]]) -> tuple[Operation, ...]:
        """Return the operations that put ``items`` into ``segment``, if it is neither sealed nor shut
        down.
        """
        checks = (Check(self.znodes.state, 0), Check(segment, 0))
        creates = (Create(f"{segment}/{item}", data, sequence=True) for item, data in items)
        return (*checks, *creates, *self.znodes.counting(len(items)))

    async def seal_if_full(self, segment: str, outcome: CommitOutcome, items: int) -> None:
        """Seal ``segment`` if the put of the last ``items`` items has filled it."""
        last = self._path_in(outcome, items)
        if self.segmented and last and int(last[-10:]) + 1 >= self.segment_size:
            await Background(self.znodes.seal_segment(segment))

    def bound_reads(self, segment: str) -> tuple[Request[Any], ...]:
        """Return the reads that show whether a new item is within the bound."""
        return Children(self.znodes.items), Children(segment)

    def _path_in(self, outcome: CommitOutcome, number: int) -> str | None:
        """Return the path of the ``number``th item, counted from 1; None if the reply was lost."""
        created = outcome.results[1 + number] if outcome.results else None
        return created.path if isinstance(created, Created) else None

    async def retract(self, path: str) -> bool:
        """Remove an item that no getter has taken. Return whether it was removed."""
        znodes = self.znodes
        try:
            await self.receipts.commit(Delete(path), SetData(znodes.gets), SetData(znodes.dones))
            return True
        except NoNodeError:
            return False

    # Taking

    async def get(
        self, contender_data: bytes, blocking: bool = True, maxsize: int = 0, taken: TakenItems | None = None
    ) -> bytes | None:
        """Remove and return the next item.

        Returns None if there is no item, without ``blocking`` or at the deadline. Raises ShutDown.
        The item is added to ``taken`` as soon as it is removed: an interrupt may hit the end of the
        call, and the caller then puts the item back.
        """
        return await take(GetAttempt(self, maxsize, taken), self.turns, self.getters, contender_data, blocking)

    async def try_take(self, maxsize: int, taken: TakenItems | None = None) -> bytes | None:
        while True:
            path = await self.next_path_or_shutdown(maxsize)
            if path is None:
                return None
            data = await self._take(path, taken=taken)
            if data is not None:
                self.taken_not_done += 1
                return data

    async def next_path_or_shutdown(self, maxsize: int) -> str | None:
        """Return the path of the next item, as `next_path` does.

        Raises ShutDown if the queue is shut down and empty. It lists once more after it has seen
        the shutdown, because an item put before the shutdown may have arrived after the first
        listing.
        """
        await self.unsettled.wait_until_settled()
        path = await self.next_path(maxsize)
        if path is None and await self.is_shutdown():
            path = await self.next_path(maxsize)
            if path is None:
                raise ShutDown
        return path

    async def next_path(self, maxsize: int) -> str | None:
        """Return the path of the next item, and never the same one to two threads of this process."""
        if self.names or await self._refresh():
            return f"{self.head}/{self.names.popleft()}"
        return None

    async def _refresh(self) -> bool:
        """List the oldest segment that has items, and make it the head. Return whether there are
        items.
        """
        if self.head and await self._list(self.head) and not self.names and await self.znodes.present() == [self.head]:
            return False
        while not self.names:
            segments = await self.znodes.present()
            is_open = await self._list(segments[0])
            if self.names:
                break
            if len(segments) > 1:
                await self.znodes.drop_segment(segments[0])
            elif is_open:
                return False
            else:  # sealed since, or deleted: the next segment may have items
                await self.znodes.ensure_next_segment(segments[0])
        return True

    async def _list(self, segment: str) -> bool:
        """List ``segment``; make it the head if no listed items are left. Return whether it exists
        unsealed.
        """
        try:
            listing = await read(Children(segment))
        except NoNodeError:
            return False
        if not self.names:
            self.head = segment
            self.prefetched.clear()
            self.names = deque(item.name for item in in_order(listing.names))
        return listing.stat.version == 0

    async def _take(self, path: str, *extra_operations: SetData, taken: TakenItems | None = None) -> bytes | None:
        """Remove the item and return its data; None if another process has taken it."""
        is_known = False
        try:
            data = self.prefetched.pop(path, None)
            if data is None:
                data = (await read(GetData(path))).data
            following = f"{self.head}/{self.names[0]}" if self.names else None
            outcome = await self.receipts.commit(
                Delete(path),
                SetData(self.znodes.gets),
                *extra_operations,
                reads=(GetData(following),) if following else (),
                # a discarded item is not restored
                on_unknown_outcome=None if extra_operations else partial(self.restore, [(path, data)]),
                unsettled=self.unsettled,
            )
            if taken is not None:
                taken.append((path, data))
            is_known = True
            self.gets_version = outcome.results[1].version if outcome.results else self.gets_version
        except NoNodeError as error:
            is_known = True
            if getattr(error, "index", 0) > 0:  # a counter is missing, not the item
                await self.znodes.make()
            return None
        finally:
            if not is_known:
                self.names.clear()
        if following and isinstance(outcome.replies[0], Node) and following.rpartition("/")[2] in self.names:
            self.prefetched[following] = outcome.replies[0].data
        return data

    async def restore(self, taken: Iterable[tuple[str, bytes]], committed: bool | None) -> None:
        """Restore items taken by a call that had ended, if the call took effect."""
        for path, data in taken if committed else ():
            with suppress(OutcomeUnknownError):  # a second attempt could duplicate the item; the others are restored
                await self._restore(path, data)

    async def _restore(self, path: str, data: bytes) -> None:
        """Restore an item to its place, or, if its segment was deleted, before all remaining items."""
        znodes = self.znodes
        counted: tuple[Operation, ...] = (SetData(znodes.puts), SetData(znodes.dones))
        while True:
            try:
                await self.receipts.commit(Create(path, data), *counted)
                return
            except NoNodeError as error:
                if getattr(error, "index", 0) > 0:  # a counter was deleted: the number of items is unknown
                    counted = ()
                    continue
                path = f"{(await znodes.present())[0]}/{before_all(path.rpartition('/')[2])}"

    async def put_back(self, taken: TakenItems, settled: Signal) -> None:
        """Restore the items that an interrupted call had taken."""
        try:
            self.names.clear()  # they are later items
            self.taken_not_done = max(0, self.taken_not_done - len(taken))
            await self.restore(taken, True)
        finally:
            settled.fire()

    async def set_watch(self, watch: Watch, maxsize: int = 0) -> bool:
        """Set ``watch`` on the segment with the next items, on the list of segments, which changes when
        that one is sealed, and on the state.
        """
        segment = self.head or self.znodes.segment(0)
        reads = (Children(self.znodes.items, watch), Children(segment, watch), GetData(self.znodes.state, watch))
        segments, listing, state = await read_all(*reads)
        if any(isinstance(reply, NoNodeError) for reply in (segments, listing, state)):
            return False
        if len(segments.names) > 1 or (self.segmented and listing.stat.version) or state.stat.version:
            return False
        return self.find_item(segment, listing.names, maxsize) is None

    async def watch_arrivals(self, watch: Watch, maxsize: int = 0) -> str | None:
        """Set ``watch`` on the segment with the next items. Return an item, or the segment if there is none
        and it is sealed.
        """
        segment = self.head or self.znodes.segment(0)
        (listing,) = await read_all(Children(segment, watch))
        if isinstance(listing, NoNodeError) or (self.segmented and listing.stat.version):
            segment = (await self.znodes.present())[0]
            if not self.names:
                self.head = segment
            (listing,) = await read_all(Children(segment, watch))
        if isinstance(listing, NoNodeError):
            return segment
        found = self.find_item(segment, listing.names, maxsize)
        return segment if found is None and self.segmented and listing.stat.version else found

    def find_item(self, segment: str, names: Sequence[str], maxsize: int) -> str | None:
        """Return the path of one of a segment's children that this process can get; None if there is none."""
        return f"{segment}/{min(names, key=lambda name: name[-10:])}" if names else None

    # Counting

    async def size(self) -> int:
        """Return the number of items."""
        await self.unsettled.wait_until_settled()
        return await self.znodes.size()

    async def task_done(self) -> bool:
        """Count one more item as done. Return False if all items ever put are done already."""
        znodes = self.znodes
        while True:
            if self.taken_not_done > 0:
                self.taken_not_done -= 1
                return await self.dones.send(None)
            dones, *puts = await read_all(Exists(znodes.dones), *znodes.put_counters)
            if dones is None or znodes.backlog(*puts, dones) <= 0:
                return False
            try:
                await self.receipts.commit(SetData(znodes.dones, b"", dones.version))
                return True
            except BadVersionError:
                continue

    async def _done_together(self, loads: Sequence[None], still_needed: StillNeeded) -> Sequence[bool]:
        """Count one item as done for each load, in one transaction. Return for each whether it was
        due.

        Another process may have counted an item that this process got. Every item got was put, so
        that usually no further request is needed.
        """
        number = len(loads)
        done = (SetData(self.znodes.dones),) * number
        outcome = await self.receipts.commit(
            *done, on_unknown_outcome=partial(self._reconcile_done_if, number), still_needed=still_needed
        )
        try:
            if outcome.results is not None and sequence_distance(outcome.results[-1].version, self.gets_version) <= 0:
                return [True] * number
            surplus = await self._reconcile_done(number)
        except BaseException:
            await Background(self._reconcile_done(number))
            raise
        return [True] * (number - surplus) + [False] * surplus

    async def _reconcile_done_if(self, number: int, committed: bool | None) -> None:
        if committed:
            await self._reconcile_done(number)

    async def _reconcile_done(self, max_items: int) -> int:
        """Undo up to ``max_items`` surplus dones by counting as many additional puts and gets. Return
        how many.

        This is one transaction that checks all counters, so that no surplus is corrected twice, nor
        one whose item has been put since. The dones are read last, so that no surplus is missed.
        ``hundreds`` counts puts of 100 items (see segments.py).
        """
        znodes = self.znodes
        while True:
            puts, hundreds, dones = await read_all(*znodes.put_counters, Exists(znodes.dones))
            surplus = min(max_items, max(0, -znodes.backlog(puts, hundreds, dones)))
            if not surplus:
                return 0
            as_read: tuple[Operation, ...] = (Check(znodes.dones, dones.version), Check(znodes.puts, puts.version))
            if hundreds is None:
                as_read += (Create(znodes.hundreds), Delete(znodes.hundreds))  # fails if it has been created since
            else:
                as_read += (Check(znodes.hundreds, hundreds.version),)
            try:
                await self.receipts.commit(*as_read, *(SetData(znodes.puts), SetData(znodes.gets)) * surplus)
                return surplus
            except (BadVersionError, NodeExistsError):
                continue

    async def join(self) -> bool:
        """Wait until every item put is done. Return False at the deadline."""
        while True:
            watch = Watch()
            try:
                dones, *puts = await read_all(Exists(self.znodes.dones, watch), *self.znodes.put_counters)
            except DeadlineError as error:
                raise_if_from_handler(error)
                return False
            if self.znodes.backlog(*puts, dones) <= 0:
                return True
            if await Wait(watch) is WakeReason.DEADLINE:
                return False

    async def is_shutdown(self) -> bool:
        """Return whether the queue was shut down."""
        stat = await read(Exists(self.znodes.state))
        return stat is not None and stat.version > 0

    async def shutdown(self, immediate: bool = False, maxsize: int = 0) -> None:
        """Refuse further puts. Getters get the remaining items, or none if ``immediate``, and then
        ShutDown.
        """
        while True:
            try:
                await self.receipts.commit(SetData(self.znodes.state, b"shutdown"))
                break
            except NoNodeError:
                await self.znodes.make()
        remaining_within_bound = maxsize
        while immediate:
            if remaining_within_bound == 0 and maxsize > 0:
                await self._let_blocked_leave()
            remaining_within_bound -= 1
            path = await self.next_to_discard(maxsize)
            if path is None:
                return
            await self._take(path, SetData(self.znodes.dones))

    async def next_to_discard(self, maxsize: int) -> str | None:
        """Return the path of the next item that a shutdown removes."""
        return await self.next_path(maxsize)

    async def _let_blocked_leave(self) -> None:
        """Wait until blocked puts have removed their items, which exceed the bound, unless their
        processes have exited.
        """
        half_timeout_s = (await Connected()).timeout_ms / 2000
        while True:
            watch = Watch()
            *puts, gets = await read_all(*self.znodes.put_counters, Exists(self.znodes.gets, watch))
            if self.znodes.backlog(*puts, gets) <= 0:
                return
            if await Wait(watch, limit=half_timeout_s) is not WakeReason.SIGNAL:
                return

    async def segments_up_to(self, segment: str) -> Sequence[str]:
        """Return the segments up to and including this one, oldest first."""
        return [present for present in await self.znodes.present() if present <= segment]


class GetAttempt:
    """A source from which one call takes an item of a queue."""

    poll_interval: float | None = None

    def __init__(self, core: QueueCore, maxsize: int, taken: TakenItems | None) -> None:
        self.core = core
        self.maxsize = maxsize
        self.taken = taken

    def try_take(self) -> Awaitable[bytes | None]:
        return self.core.try_take(self.maxsize, self.taken)

    def set_watch(self, watch: Watch) -> Awaitable[bool]:
        return self.core.set_watch(watch, self.maxsize)

    def watch_arrivals(self, watch: Watch) -> Awaitable[str | None]:
        return self.core.watch_arrivals(watch, self.maxsize)
