"""Cyclic barrier: the last party to arrive opens it in one transaction.

Source: ZooKeeper recipes, "Double Barriers" (entering); threading.Barrier (cyclic, action, broken,
reset).

Each party is a contender in a queue. The one with ``parties - 1`` ahead runs the action. Then one
transaction increments the generation and deletes the znodes of all members. A party whose znode is
missing while its session is alive has passed, and finds its index in the recorded names of the last
generations. If its name is not there, another client deleted the znode, or too many generations
have passed since. Then the barrier counts as broken for it.

Breaking the barrier only records that it is broken, and each waiter then leaves by itself. A reset
enqueues a mark in its transaction: contenders ahead of it no longer count. Afterwards the sequence
number of the mark is moved into the data.

A cancelled task records that it has left, in the transaction that deletes its znode, so that the
parties that counted on it wait for another one.

If a party's session ends without such a record, the waiters that had seen it break the barrier. So
do those that had arrived earlier, even if none has seen it: the arrivals are counted (generation.py). A
full group opens without the missing party.

A party that gives up without a connection breaks the barrier, and leaves, when it is connected
again. The next call in its process waits for that. Until then its znode counts, as long as its
session is alive. If it was not enqueued, it breaks the generation that its process read last, but
not a later one. If it was, but the reply was lost, it breaks the generation of its znode.

Znodes:
``<path>``                            data = ``{"parties": n, "generation": g, "broken": bool,
                                      "after": s, "passed": [[names], ...], "left": [names],
                                      "left_all": bool}``
``<path>/arrivals``                   its children ever created are the parties that ever arrived;
                                      each is deleted at once
``<path>/_c_<guid>-lock-<sequence>``  ephemeral, one for each party that waits
``<path>/_r_<guid>-reset-<sequence>`` ephemeral, short-lived: the mark of a reset
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from distsync._protocols.barriers.generation import (
    RESET,
    ArrivalCount,
    BarrierGeneration,
    BarrierSnapshot,
    generation_in,
)
from distsync._protocols.receipts import Operation, Receipts, raise_deadline
from distsync._protocols.retries import (
    INTERRUPTED,
    DeferredWork,
    cancel_pending_create,
    delete_guaranteed,
    ensure,
    raise_first,
    read,
    read_all,
)
from distsync._protocols.steps import (
    Background,
    Call,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Guid,
    Listing,
    Node,
    Pipeline,
    SetData,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import (
    HALF,
    LOCK,
    QueueEntry,
    creations,
    enqueue,
    in_order,
    read_consistent,
)
from distsync._signal_handlers import is_interrupt
from distsync.errors import (
    BadVersionError,
    BrokenBarrierError,
    DeadlineError,
    DistsyncError,
    MismatchError,
    NoNodeError,
    OutcomeUnknownError,
    SessionLostError,
)

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

#: What an error calls the parameter.
PARTIES = "number of parties"


@dataclass
class Waiter:
    """One call of wait.

    Attributes:
        entry: Its contender.
        arrivals: What it knows of the count of arrivals.
        view: The state that it read last.
        seen: All contenders that were seen in its generation.
        refused: The generation that was broken when it was read, if any.
        acted: Generation and members for which it ran the action.
    """

    entry: QueueEntry
    arrivals: ArrivalCount
    view: BarrierSnapshot | None = None
    seen: set[str] = field(default_factory=set)
    refused: BarrierGeneration | None = None
    acted: tuple[int, list[str]] | None = None

    def index_in(self, record: BarrierGeneration) -> int:
        """Return our index, given that our znode is missing.

        Raise BrokenBarrierError if we have not passed, because another client deleted the znode.
        """
        index = record.index_of(self.entry.name)
        if index is None:
            raise BrokenBarrierError
        return index

    def update(self, view: BarrierSnapshot, parties: int) -> int | None:
        """Return how many contenders of this generation are ahead, or None if a party is missing.

        Raise BrokenBarrierError if the barrier is broken.
        """
        if view.record.broken or self.entry.name not in view.names:
            self.refused = view.record
            raise BrokenBarrierError
        if self.view is not None and self.view.record.generation != view.record.generation:
            self.seen.clear()  # they were enqueued before a reset
        group = set(view.names[:parties])
        self.view = view
        if self.entry.name in group:
            if self.seen - group - {*view.record.left}:
                return None
            self.seen |= group
        return view.names.index(self.entry.name)


class BarrierCore:
    """In-process state of a barrier, shared by all its threads."""

    def __init__(self, path: str, parties: int, receipts: Receipts) -> None:
        self.path = path
        self.arrivals = f"{path}/arrivals"
        self.parties = parties
        self.wanted = {PARTIES: parties}
        self.user: ParameterUser | None = None
        self.receipts = receipts
        #: The latest generation that this process has read.
        self.generation = 0
        #: Whether the znode states the same number of parties. It is checked before enqueueing, so
        #: that a caller with another number is not counted.
        self.agreed = False
        #: Clean-up of calls that gave up. It is finished before enqueueing, so that no thread is
        #: counted twice.
        self.unfinished = DeferredWork()

    @property
    def parameters(self) -> dict[str, Any]:
        """The number of parties; see parameter_users.py."""
        return {PARTIES: self.parties}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.parties, self.agreed = parameters[PARTIES], True

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the recorded number of parties."""
        return {PARTIES: generation_in(self.path, node).parties}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that record another number, and reset the barrier.

        Contenders that dead processes have left do not count any more.
        """
        parties = parameters[PARTIES]
        if node is None:
            return Create(self.path, BarrierGeneration(parties).data()), Create(self.arrivals)
        listing = await read(Children(self.path))
        now, waiting = generation_in(self.path, node).with_reset_marks(listing.names)
        return (SetData(self.path, now.with_parties(parties, waiting).data(), node.stat.version),)

    async def _ensure_directory(self, directory: str) -> None:
        await ensure(directory, BarrierGeneration(self.parties).data())
        await self._agree()

    async def _ensure_counted_directory(self, directory: str) -> None:
        await self._ensure_directory(directory)
        await ensure(self.arrivals)

    async def _agree(self) -> None:
        """Check the number of parties. Raise MismatchError if it is not ours."""
        with suppress(NoNodeError):
            self._parse_record(await read(GetData(self.path)))

    async def wait(
        self, contender_data: bytes, action: Callable[[], Any] | None = None, on_cancel_leave: bool = False
    ) -> int:
        """Wait until all parties have arrived.

        The deadline breaks the barrier for all. So does an interrupt, unless ``on_cancel_leave``:
        then the caller leaves as if it had never arrived. Both also work without a connection.

        Args:
            contender_data: Data of the contender's znode.
            action: Called by the last party to arrive.
            on_cancel_leave: Whether an interrupted call leaves the barrier unbroken.

        Returns:
            The index of this party, from 0 to ``parties - 1``.

        Raises:
            BrokenBarrierError: The barrier was or is broken.
        """
        watch, guids = Watch(), list[str]()
        reads = (Children(self.path), GetData(self.path, watch))

        def cancel(directory: str, guid: str, error: BaseException | None) -> Coroutine[Any, Any, None]:
            guids.append(guid)
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return self.unfinished.deferred(partial(self._break_after_lost_reply, guid))
            return self.unfinished.deferred(
                partial(self._leave, guid) if on_cancel_leave else partial(cancel_pending_create, directory, guid)
            )

        try:
            await self.unfinished.finish()
            if not self.agreed:
                await self._agree()
            find_granted = partial(self._passed, self.generation)
            entry, (count, *replies) = await enqueue(
                self.path,
                LOCK,
                contender_data,
                *reads,
                ensure_directory=self._ensure_counted_directory,
                find_granted=find_granted,
                cancel=cancel,
                counter=self.arrivals,
            )
        except BaseException as error:
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                # not a generation after a reset, which does not count on us
                seen = BarrierGeneration(self.parties, self.generation)
                await self.unfinished.defer(partial(self._break, seen, True))
                raise BrokenBarrierError from None
            if on_cancel_leave and guids:
                await self._leave_before_end(guids[-1])
            raise
        waiter = Waiter(entry, ArrivalCount(self.arrivals, entry, count))
        try:
            await waiter.arrivals.find()
            return await self._wait_for_release(waiter, tuple(replies), watch, action)
        except BaseException as error:
            gives_up = isinstance(error, (DeadlineError, SessionLostError, OutcomeUnknownError))
            gives_up = gives_up and not is_interrupt(error)
            has_left = False
            try:
                has_left = on_cancel_leave and is_interrupt(error) and await self._leave_before_end(entry.name)
            finally:
                if not has_left:
                    await self.unfinished.defer(partial(self._leave_and_break, waiter, gives_up))
            if gives_up:
                raise BrokenBarrierError from error
            raise

    async def _leave_before_end(self, mark: str) -> bool:
        """Leave like _leave, while the call still runs.

        Return False if time or session does not allow it.

        The clean-up that the driver does after a call cannot record that the party was cancelled.
        """
        with suppress(DistsyncError):
            return await self._leave(mark)
        return False

    async def _leave(self, mark: str) -> bool:
        """Delete the contender whose name contains ``mark``, as if it had never arrived.

        Return False if there is none.
        """
        while True:
            reads = (Sync(self.path), Children(self.path), GetData(self.path))
            _, listing, node = await read_all(*reads)
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                return False
            now, waiting = self._parse_record(node).with_reset_marks(listing.names)
            mine = next((each for each in waiting if mark in each.name), None)
            if mine is None:
                return any(mark in name for name in now.left)
            if listing.stat.version != node.stat.version:
                continue
            path = f"{self.path}/{mine.name}"
            if now.broken or not now.includes(mine):
                return await delete_guaranteed(path)
            try:
                await self.receipts.commit(
                    SetData(self.path, now.without_waiter(mine.name).data(), now.version), Delete(path)
                )
                return True
            except (BadVersionError, NoNodeError):
                continue
            except OutcomeUnknownError as unknown:
                raise_deadline(unknown)

    async def _passed(self, known: int, directory: str, guid: str) -> QueueEntry | None:
        """Find our contender if it passed before we learned that it was enqueued.

        Raise BrokenBarrierError if that is unknown, because too many generations have passed since
        ``known``. Enqueueing again could then count this call twice.
        """
        try:
            record = self._parse_record(await read(GetData(directory)))
        except NoNodeError:
            return None
        session_id = (await Connected()).session_id
        passed = chain.from_iterable(record.passed)
        entry = next((QueueEntry(directory, name, 0, session_id) for name in passed if guid in name), None)
        if entry is None and record.generation - known > record.recorded_generations:
            raise BrokenBarrierError
        return entry

    async def _wait_for_release(
        self, waiter: Waiter, replies: Any, watch: Watch, action: Callable[[], Any] | None
    ) -> int:
        view = self._view(waiter.entry, replies)
        while True:
            if view is None:
                watch = Watch()
                view = await self._read_state(waiter.entry, watch)
            if not view.present:
                return waiter.index_in(view.record)
            ahead = waiter.update(view, self.parties)
            if ahead is None or await self._misses_a_party(waiter, view):
                return await self._give_up(waiter)
            if ahead == self.parties - 1:
                if await self._open(waiter, view, action):
                    return ahead
            elif await self._wait(watch) is WakeReason.DEADLINE:
                return await self._give_up(waiter)
            view = None

    async def _misses_a_party(self, waiter: Waiter, view: BarrierSnapshot) -> bool:
        """Return whether a party arrived after ours that neither waits nor has left.

        This does not matter if enough others wait. The count is read first, so that each counted party
        is listed afterwards unless it is missing.
        """
        arrivals = waiter.arrivals
        if len(view.names) >= self.parties or not arrivals.may_miss_a_party(view):
            return False
        reads = (Exists(self.arrivals), Children(self.path), GetData(self.path))
        count, *replies = await read_consistent(waiter.entry, *reads)
        now = self._view(waiter.entry, tuple(replies))
        if now is None or not now.present or now.record != view.record:  # our watch fires, too
            return False
        if arrivals.misses_a_party(count, now):
            return len(now.names) < self.parties
        arrivals.accept(view)
        return False

    async def _wait(self, watch: Watch) -> WakeReason:
        """Wait for ``watch``, but half a session timeout at most.

        A party that exits does not wake the others.
        """
        return await Wait(watch, limit=(await Connected()).timeout_ms / 2000)

    def _view(self, entry: QueueEntry, replies: tuple[Any, ...]) -> BarrierSnapshot | None:
        """Interpret the replies.

        Return None if the connection was lost or the data changed in between.
        """
        listing, node = replies
        for reply in replies:
            if isinstance(reply, DistsyncError) and not isinstance(reply, (NoNodeError, *INTERRUPTED)):
                raise reply
        if isinstance(node, NoNodeError):
            raise SessionLostError(f"the wait at {self.path}")
        if not isinstance(listing, Listing) or not isinstance(node, Node):
            return None
        if listing.stat.version != node.stat.version:
            return None
        record, waiting = self._parse_record(node).with_reset_marks(listing.names)
        names = [contender.name for contender in waiting if record.includes(contender)]
        ours = next((index for index, contender in enumerate(waiting) if contender.name == entry.name), None)
        if ours is None:
            return BarrierSnapshot(names, False, record)
        created_later = (creations(listing.stat) - waiting[ours].number - 1) % HALF
        return BarrierSnapshot(names, True, record, len(waiting) - ours - 1, created_later)

    def _parse_record(self, node: Node) -> BarrierGeneration:
        record = generation_in(self.path, node)
        self.agreed = record.parties == self.parties
        if not self.agreed:
            raise MismatchError("the number of parties", self.path, record.parties, self.parties)
        self.generation = max(self.generation, record.generation)
        return record

    async def _read_state(self, entry: QueueEntry, watch: Watch) -> BarrierSnapshot:
        while True:
            view = self._view(entry, await read_consistent(entry, Children(self.path), GetData(self.path, watch)))
            # A missing znode means that we have passed only if our session did not end.
            if view is not None and (view.present or (await Connected()).session_id == entry.session_id):
                return view

    async def _open(self, waiter: Waiter, view: BarrierSnapshot, action: Callable[[], Any] | None) -> bool:
        """Run the action, and let all members pass. Return False if the generation has changed."""
        names = view.names[: self.parties]
        group = (view.record.generation, names)
        if action is not None and waiter.acted != group:
            try:
                await Call(action)
            except BaseException:
                await self._break(view.record)
                raise
            waiter.acted = group
        record = view.record.next_generation(names, len(view.names) - len(names))
        members = [Delete(f"{self.path}/{name}") for name in names]
        try:
            await self.receipts.commit(SetData(self.path, record.data(), view.record.version), *members)
            self.generation = max(self.generation, record.generation)
            return True
        except (BadVersionError, NoNodeError):
            return False

    async def _give_up(self, waiter: Waiter) -> int:
        """Break the barrier, unless it opens just now.

        The reason is our deadline, or a missing party.
        """
        while True:
            view = await self._read_state(waiter.entry, Watch())
            if not view.present:
                return waiter.index_in(view.record)
            waiter.update(view, self.parties)
            broken = replace(view.record, broken=True)
            try:
                breaking = SetData(self.path, broken.data(), view.record.version)
                await self.receipts.commit(breaking, Delete(waiter.entry.path))
            except (BadVersionError, NoNodeError):
                continue
            raise BrokenBarrierError

    async def _leave_and_break(self, waiter: Waiter, timed_out: bool) -> None:
        """Leave after the call has ended, and break the barrier for the parties that count on us.

        A party that gave up breaks the barrier wherever it was in the queue, as it would with a
        connection. An interrupted one does so only if it was to pass with this generation.
        """
        view, entry = None, waiter.entry
        limit = None if timed_out else self.parties
        with suppress(SessionLostError):  # the barrier was deleted
            while view is None:
                view = self._view(entry, await read_all(Children(self.path), GetData(self.path)))
        if view is None or 0 < entry.token < view.record.czxid:  # it was deleted, and created afresh
            return
        if not view.present:
            passed = view.record.index_of(entry.name) is not None
            for seen in () if passed or entry.name in view.record.left else (waiter.view, view):
                if seen is not None and entry.name in self._counting(seen, entry)[:limit]:
                    await self._break(seen.record)
        elif entry.name in view.names and entry.name not in view.names[:limit] and not view.record.broken:
            await self._leave(entry.name)
        else:
            if entry.name in view.names[:limit]:
                await self._break(waiter.refused or view.record)
            await delete_guaranteed(entry.path)

    async def _break_after_lost_reply(self, guid: str) -> None:
        """Leave like _leave_and_break, if it is unknown whether our contender was enqueued.

        It breaks the generation to which its place in the queue belongs.
        """
        while True:
            await Connected()
            _, listing, node = await Pipeline(Sync(self.path), Children(self.path), GetData(self.path))
            if isinstance(listing, INTERRUPTED) or isinstance(node, INTERRUPTED):
                continue
            if not isinstance(listing, Listing) or not isinstance(node, Node):
                return
            now, waiting = self._parse_record(node).with_reset_marks(listing.names)
            mine = next((each for each in waiting if guid in each.name), None)
            if mine is None:
                return
            if listing.stat.version != node.stat.version:
                continue
            if now.includes(mine):
                await self._break(now)
            await delete_guaranteed(f"{self.path}/{mine.name}")
            return

    def _counting(self, snapshot: BarrierSnapshot, entry: QueueEntry) -> list[str]:
        """Return the contenders that count, in queue order, given that ``entry`` is enqueued."""
        waiting = in_order({*snapshot.names, entry.name})
        return [each.name for each in waiting if snapshot.record.includes(each)]

    async def _break(self, record: BarrierGeneration | None, creates: bool = False) -> None:
        """Break this generation of the barrier, or the current one if None.

        With ``creates``, a missing barrier is created. A party that has waited must not do so, as
        this would bring a deleted barrier back.
        """
        sync: tuple[Sync, ...] = ()
        while True:
            try:
                *_, node = await read_all(*sync, GetData(self.path))
                raise_first((node,))
                now = self._parse_record(node)
                if now.broken and record is None and not sync:
                    sync = (Sync(self.path),)  # the server may lag, and miss a reset
                    continue
                if now.broken or (record is not None and not now.is_same(record)):
                    return
                await self.receipts.commit(SetData(self.path, replace(now, broken=True).data(), now.version))
                return
            except BadVersionError:
                continue
            except OutcomeUnknownError as unknown:
                if record is None:
                    raise
                raise_deadline(unknown)
            except NoNodeError:
                if sync or not creates:  # it existed, and was deleted
                    return
                await self._ensure_directory(self.path)

    async def abort(self) -> None:
        """Break the barrier until it is reset."""
        await self._break(None, creates=True)

    async def reset(self) -> None:
        """Reset the barrier. Waiting parties get BrokenBarrierError."""
        await self.unfinished.finish()
        guid = await Guid()
        mark = Create(f"{self.path}/_r_{guid}{RESET}", ephemeral=True, sequence=True)
        is_sent, sync = False, tuple[Sync, ...]()
        try:
            while True:
                *_, listing, node = await read_all(*sync, Children(self.path), GetData(self.path))
                if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                    if sync:
                        return
                    sync = (Sync(self.path),)  # the server may lag
                    continue
                now, waiting = self._parse_record(node).with_reset_marks(listing.names)
                after = waiting[-1].number if waiting else now.after  # in case we exit before the mark is read
                fresh = now.after_reset(after)
                is_sent = True
                try:
                    await self.receipts.commit(SetData(self.path, fresh.data(), now.version), mark)
                    self.generation = max(self.generation, fresh.generation)
                    return
                except (BadVersionError, NoNodeError):
                    continue
        finally:
            if is_sent:
                await Background(self._merge_reset_mark(guid))

    async def _merge_reset_mark(self, guid: str) -> None:
        """Move the sequence number of our mark into the data, and delete the mark."""
        while True:
            listing, node = await read_all(Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                return
            now, _ = self._parse_record(node).with_reset_marks(listing.names)
            marks = [name for name in listing.names if guid in name]
            if not marks:
                return
            merged = SetData(self.path, now.data(), now.version)
            try:
                await self.receipts.commit(merged, Delete(f"{self.path}/{marks[0]}"))
                return
            except BadVersionError:
                continue
            except NoNodeError:
                return

    async def state(self) -> tuple[int, bool]:
        """Return how many parties wait, and whether the barrier is broken."""
        await self.unfinished.finish()
        listing, node = await read_all(Children(self.path), GetData(self.path))
        if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
            return 0, False
        record, contenders = self._parse_record(node).with_reset_marks(listing.names)
        waiting = [contender for contender in contenders if record.includes(contender)]
        return (0 if record.broken else min(len(waiting), self.parties)), record.broken
