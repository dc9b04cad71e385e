"""Double barrier: members enter together and leave together, repeatedly.

Source: ZooKeeper recipes, "Double Barriers", both columns.

The recipe's znode ``ready`` wakes the waiting members. Which ones are inside is stated by the data
of the barrier's znode, which changes in the same transaction. So a slow member learns that it has
entered, however late it reads the state. ``ready`` never belongs to an earlier meeting. Surplus
members, and returning ones, wait until all of this meeting have left.

On leaving, the lowest member waits for the highest one, and the others for the lowest. So each
departure wakes one member, and only the last wakes all.

Znodes:
``<path>``                            container, data = ``{"parties": n, "inside": [names]}``
``<path>/_c_<guid>-lock-<sequence>``  ephemeral, one for each member
``<path>/ready``                      exists while members are inside

kazoo and Curator name a member by a GUID; a name without a number is a member of such a library, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._protocols.retries import (
    DECODE_ERRORS,
    INTERRUPTED,
    DeferredWork,
    cancel_pending_create,
    delete_guaranteed,
    delete_tree,
    ensure,
    read,
    read_all,
)
from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Listing,
    Multi,
    Node,
    Pipeline,
    Protocol,
    Request,
    SessionAlive,
    SetData,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import (
    LOCK,
    QueueEntry,
    enqueue,
    in_order,
    parse,
    read_consistent,
    sequence_distance,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    LockLostError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
    NotHeldError,
    SessionLostError,
    UsageError,
)

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

#: What an error calls the parameter.
PARTIES = "number of parties"


#: Name of the znode that exists while members are inside. It is not a member.
READY = "ready"

#: A member of kazoo or Curator. It may end with ten digits.
GUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")

Operation = SetData | Create | Delete | Check


@dataclass(frozen=True)
class DoubleBarrierState:
    """State of a double barrier, at one version of its znode.

    Attributes:
        path: Path of the barrier.
        parties: How many members enter together; None if a client of another library created it.
        inside: Names of the members that have entered, including those that left since.
        names: Names of all contenders, waiting or inside.
        ready: Whether the znode ``ready`` exists.
        version: Version of the barrier's znode.
    """

    path: str
    parties: int | None
    inside: tuple[str, ...]
    names: tuple[str, ...] = ()
    ready: bool = False
    version: int = 0

    def data(self) -> bytes:
        return json.dumps({"parties": self.parties, "inside": self.inside}).encode()

    @property
    def present(self) -> tuple[str, ...]:
        """Members that have entered and not left."""
        return tuple(name for name in self.inside if name in self.names)

    def waits(self, name: str) -> bool:
        """Return whether this contender waits to enter."""
        return name in self.names and name not in self.inside

    def first(self, parties: int) -> tuple[str, ...]:
        """Return the contenders that enter next, or none if there are too few."""
        inside = [contender.name for contender in in_order(self.names) if LOCK in contender.name]
        strangers = [name for name in self.names if name not in inside]
        return tuple((strangers + inside)[:parties]) if len(self.names) >= parties else ()

    def opening(self, inside: tuple[str, ...]) -> tuple[Operation, ...]:
        """Let ``inside`` enter together ("Enter", step 5). Fails if one of them is missing."""
        opened = SetData(self.path, replace(self, parties=len(inside), inside=inside).data(), self.version)
        return opened, Create(f"{self.path}/{READY}"), *(Check(f"{self.path}/{name}") for name in inside)

    def closing(self, *members: str) -> tuple[Operation, ...]:
        """End the meeting, and delete the last ``members``."""
        closed = SetData(self.path, replace(self, inside=()).data(), self.version)
        gone = [Delete(f"{self.path}/{name}") for name in (*members, *([READY] if self.ready else []))]
        return closed, *gone


@dataclass
class Entering:
    """A member that waits to enter.

    Attributes:
        entry: Its contender.
        seen: The latest state in which it is known not to have entered.
        late: Whether its deadline has passed.
    """

    entry: QueueEntry
    seen: DoubleBarrierState | None = None
    late: bool = False

    def missed(self, now: DoubleBarrierState) -> bool:
        """Return whether the others entered with it, or may have, before its znode was deleted."""
        if self.entry.name in now.inside or self.seen is None:
            return self.entry.name in now.inside
        known = 2 if self.seen.inside else 1  # the end of that meeting, and the start of the current one
        return sequence_distance(now.version, self.seen.version) > known


@dataclass
class Inside:
    """A member that is inside.

    Attributes:
        entry: Its contender.
        group: Names of all members that entered together.
        going: Whether the deletion of its znode was requested, so that its absence is no loss.
    """

    entry: QueueEntry
    group: tuple[str, ...]
    going: bool = False


def is_member(name: str) -> bool:
    """Return whether a child is a member, not one that a program created for other purposes."""
    return name != READY and (LOCK in name or parse(name) is None or GUID.fullmatch(name) is not None)


def meeting_in(path: str, listing: Listing | NoNodeError, node: Node | NoNodeError) -> DoubleBarrierState | None:
    """Parse the two replies. Return None if the state changed between them.

    Raise SessionLostError if the barrier's znode, and so all members, were deleted.
    """
    if isinstance(listing, NoNodeError) or isinstance(node, NoNodeError):
        raise SessionLostError(f"the wait at {path}")
    if listing.stat.version != node.stat.version:
        return None
    parties, inside = _fields(path, node.data)
    names = tuple(sorted(name for name in listing.names if is_member(name)))
    ready = READY in listing.names
    if ready and not inside:
        inside = names  # other implementations of the recipe: all members are inside
    return DoubleBarrierState(path, parties, inside, names, ready, node.stat.version)


def parties_in(path: str, node: Node) -> int | None:
    """Return the number of parties that the znode states."""
    return _fields(path, node.data)[0]


def _fields(path: str, data: bytes) -> tuple[int | None, tuple[str, ...]]:
    if not data.startswith(b"{"):
        return None, ()
    try:
        fields = json.loads(data)
        parties = None if fields["parties"] is None else int(fields["parties"])
        return parties, tuple(map(str, fields["inside"]))
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, data) from None


#: After these errors, read the state again: it has changed, or the connection was lost.
CHANGED = (BadVersionError, NoNodeError, NodeExistsError, *INTERRUPTED)


async def delete_double_barrier(path: str) -> None:
    """Delete all znodes of a double barrier, and wake the members that wait to enter.

    They watch ``ready`` only, so it is created if it does not exist.
    """
    ready = f"{path}/{READY}"
    while True:
        try:
            await delete_tree(path, Create(ready), Delete(ready))
            return
        except NodeExistsError:
            pass
        if await read(Exists(ready)) is not None:
            await delete_tree(path)
            return


class DoubleBarrierCore:
    """In-process state of a double barrier, shared by all its threads."""

    def __init__(self, path: str, parties: int) -> None:
        self.path = path
        self.parties = parties
        self.wanted = {PARTIES: parties}
        self.user: ParameterUser | None = None
        self.visits: dict[object, Inside] = {}
        #: Whether the znode states the same number of parties. It is checked before enqueueing, so
        #: that a caller with another number is not counted.
        self.agreed = False
        #: Deletion of the znodes of calls that gave up. It is finished before enqueueing, so that
        #: no thread is counted twice.
        self.unfinished = DeferredWork()

    @property
    def idle(self) -> bool:
        """Whether no thread of this process is inside."""
        return not self.visits

    @property
    def parameters(self) -> dict[str, Any]:
        """The number of parties; see parameter_users.py."""
        return {PARTIES: self.parties}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.parties, self.agreed = parameters[PARTIES], True

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the recorded number of parties; None if a client of another library created the barrier."""
        return {PARTIES: parties_in(self.path, node)}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that record another number, and delete what dead processes have left.

        Members of other libraries stay.
        """
        parties = parameters[PARTIES]
        if node is None:
            await ensure(self.path, DoubleBarrierState(self.path, parties, ()).data(), container=True)
            raise BadVersionError(self.path)
        listing: Listing = await read(Children(self.path))
        meeting = meeting_in(self.path, listing, node)
        if meeting is None:
            raise BadVersionError(self.path)
        left = [name for name in meeting.names if LOCK in name]
        others = tuple(name for name in meeting.present if name not in left)
        changed = DoubleBarrierState(self.path, parties, () if meeting.parties is None else others)
        deleted = left if others or not meeting.ready else [*left, READY]
        deletions = [Delete(f"{self.path}/{name}") for name in deleted]
        return SetData(self.path, changed.data(), node.stat.version), *deletions

    def check_outside(self, owner: object) -> None:
        """Raise UsageError if ``owner`` is inside."""
        if owner in self.visits:
            raise UsageError(f"this thread is already inside {self.path}; call leave() first")

    async def state(self) -> tuple[int, int]:
        """Return how many members wait to enter, and how many are inside."""
        while True:
            try:
                meeting = self._meeting(await read_all(Children(self.path), GetData(self.path)))
            except SessionLostError:
                return 0, 0
            if meeting is not None:
                inside = len(meeting.present)
                return len(meeting.names) - inside, inside

    async def _ensure_directory(self, directory: str) -> None:
        await ensure(directory, DoubleBarrierState(directory, self.parties, ()).data(), container=True)
        await self._agree()

    async def _agree(self) -> None:
        """Check the number of parties. Raise MismatchError if it is not ours."""
        while not self.agreed:
            try:
                node = await read(GetData(self.path))
                parties = parties_in(self.path, node)
                if parties is None:  # created by a client of another library
                    parameters = DoubleBarrierState(self.path, self.parties, ()).data()
                    await read(SetData(self.path, parameters, node.stat.version))
                self._check_parties(self.parties if parties is None else parties)
            except BadVersionError:
                continue
            except NoNodeError:
                return

    def _check_parties(self, parties: int | None) -> None:
        self.agreed = parties == self.parties
        if not self.agreed and parties is not None:
            raise MismatchError("the number of parties", self.path, parties, self.parties)

    # --- enter

    async def enter(self, contender_data: bytes, owner: object) -> bool:
        """Wait until all parties have arrived, and enter. Return False at the deadline."""
        while True:
            watch = Watch()
            reads = self._reads(watch)
            try:  # steps 1 to 4, pipelined; the watch is set unless its reply makes it unnecessary
                await self.unfinished.finish()
                if not self.agreed:
                    await self._agree()
                enqueued = await enqueue(
                    self.path,
                    LOCK,
                    contender_data,
                    *reads,
                    ensure_directory=self._ensure_directory,
                    find_granted=self._counted,
                    cancel=self._cancel_create,
                )
            except DeadlineError as error:
                raise_if_from_handler(error)
                return False
            arrival = Entering(enqueued.entry)
            try:
                group = await self._enter_meeting(arrival, enqueued.replies, watch)
            except BaseException as error:
                await self._delete_in_background(arrival.entry)
                if isinstance(error, DeadlineError) and not is_interrupt(error):
                    return False
                raise
            if group is not None:
                self.visits[owner] = Inside(arrival.entry, group)
                return True
            if arrival.late:
                return False

    def _cancel_create(self, directory: str, guid: str, error: BaseException | None) -> Coroutine[Any, Any, None]:
        return self.unfinished.deferred(partial(cancel_pending_create, directory, guid))

    async def _counted(self, directory: str, guid: str) -> None:
        """Raise LockLostError if others have entered with a contender that we did not know of."""
        meeting = await self._read_current()
        if meeting is not None and any(guid in name for name in meeting.inside):
            raise LockLostError(self.path, "session expired while entering")

    async def _read_current(self) -> DoubleBarrierState | None:
        """Return the state, no older than this call, or None if the barrier does not exist."""
        while True:
            _, *replies = await read_all(Sync(self.path), Children(self.path), GetData(self.path))
            try:
                meeting = self._meeting(tuple(replies))
            except SessionLostError:
                return None
            if meeting is not None:
                return meeting

    def _reads(self, watch: Watch | None) -> tuple[Request[Any], ...]:
        """Return the reads of "Enter", steps 2 and 4.

        In this order no creation of ``ready`` is missed: one in between fires the watch.
        """
        reads = Children(self.path), GetData(self.path)
        return reads if watch is None else (Exists(f"{self.path}/{READY}", watch), *reads)

    async def _enter_meeting(self, arrival: Entering, replies: tuple[Any, ...], watch: Watch) -> tuple[str, ...] | None:
        """Enter, and return all members that entered together.

        Return None at the deadline, or if our znode is missing and we have to enqueue again.
        """
        try:
            return await self._wait_inside(arrival, replies, watch)
        except SessionLostError:
            while (meeting := await self._read_current()) is not None and meeting.waits(arrival.entry.name):
                arrival.seen = meeting  # the server has not expired our session yet
                await self._try(Check(self.path, meeting.version), Delete(arrival.entry.path))
            if meeting is not None and arrival.missed(meeting):
                raise LockLostError(self.path, "znode deleted before entering") from None
            return None

    async def _wait_inside(
        self, arrival: Entering, replies: tuple[Any, ...], watch: Watch | None
    ) -> tuple[str, ...] | None:
        entry = arrival.entry
        while True:
            meeting = self._meeting(replies)
            if meeting is not None:
                if entry.name in meeting.inside:
                    return self._inside(entry, meeting)
                if entry.name not in meeting.names:
                    raise SessionLostError(f"the wait at {self.path}")
                arrival.seen = meeting
                group = () if meeting.inside else meeting.first(self.parties)
                if group:  # step 5; without a reply, read the state again
                    if await self._try(*meeting.opening(group)) and entry.name in group:
                        return group
                elif meeting.inside and not meeting.present:  # the last member exited without closing
                    await self._try(*meeting.closing())
                elif watch is not None and await self._wait(meeting, watch) is WakeReason.DEADLINE:
                    return await self._withdraw(arrival)
            # Most members that wake are inside, and would leave a watch on ``ready`` behind. So the
            # state is first read without one, and again with one if necessary.
            watch = Watch() if watch is None and meeting is not None else None
            replies = await read_consistent(entry, *self._reads(watch))

    def _inside(self, entry: QueueEntry, meeting: DoubleBarrierState) -> tuple[str, ...]:
        if entry.name not in meeting.names:
            raise LockLostError(self.path, "znode deleted while entering")
        return meeting.inside

    def _meeting(self, replies: tuple[Any, ...]) -> DoubleBarrierState | None:
        """Interpret the replies.

        Return None if the connection was lost or the state changed in between.
        """
        for reply in replies:
            if isinstance(reply, INTERRUPTED):
                return None
            if isinstance(reply, DistsyncError) and not isinstance(reply, NoNodeError):
                raise reply
        meeting = meeting_in(self.path, *replies[-2:])
        if meeting is not None:
            self._check_parties(meeting.parties)
        return meeting

    async def _try(self, *operations: Operation) -> bool:
        """Execute all operations.

        Return False if the state has changed, or the outcome is unknown.
        """
        try:
            await Multi(operations)
            return True
        except CHANGED:
            return False

    async def _wait(self, meeting: DoubleBarrierState, watch: Watch) -> WakeReason:
        """Wait until ``ready`` is created, or, if others are inside, until they have left.

        They have left when ``ready`` is deleted, or when the last of them has exited.
        """
        if not meeting.inside:
            return await Wait(watch)
        alive = Watch()
        try:
            await GetData(f"{self.path}/{meeting.present[0]}", alive)
        except (NoNodeError, *INTERRUPTED):
            return WakeReason.SIGNAL
        return await Wait(watch, alive)

    async def _withdraw(self, arrival: Entering) -> tuple[str, ...] | None:
        """Delete our znode at the deadline, unless we enter just now."""
        arrival.late, entry = True, arrival.entry
        while True:
            meeting = self._meeting(await read_consistent(entry, Children(self.path), GetData(self.path)))
            if meeting is None:
                continue
            if entry.name in meeting.inside:
                return self._inside(entry, meeting)
            if entry.name not in meeting.names:
                return None
            try:
                await Multi((Check(self.path, meeting.version), Delete(entry.path)))
                return None
            except CHANGED:
                continue

    # --- leave

    def give_up(self, owner: object) -> Protocol[None] | None:
        """Stop being inside. Return the clean-up to run, or None if ``owner`` was not inside."""
        visit = self.visits.pop(owner, None)
        return None if visit is None else self._delete_later(visit.entry)

    async def leave(self, owner: object) -> bool:
        """Leave, and wait until all have left.

        Return False at the deadline, when we have left as well.

        Raise LockLostError if our znode had been deleted before, NotHeldError if we are not inside.
        """
        visit = self.visits.get(owner)
        if visit is None:
            raise NotHeldError(f"this thread is not inside {self.path}; call enter() first")
        try:
            remaining = await self._leave(visit)
            if not remaining:
                await self._delete_in_background(visit.entry)
        except BaseException as error:
            await self._delete_in_background(visit.entry)
            self.visits.pop(owner, None)
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return False
            raise
        self.visits.pop(owner, None)
        return remaining

    async def _delete_in_background(self, entry: QueueEntry) -> None:
        """Delete our znode in the background, whichever session owns it."""
        await Background(self._delete_later(entry))

    def _delete_later(self, entry: QueueEntry) -> Coroutine[Any, Any, None]:
        return self.unfinished.deferred(partial(delete_guaranteed, entry.path))

    async def _leave(self, visit: Inside) -> bool:
        mine = visit.entry.name
        while True:
            meeting = await self._read_state(visit)  # step 1
            remaining = [name for name in meeting.names if name in visit.group]
            if mine not in remaining and not visit.going:
                raise LockLostError(self.path, "znode deleted")
            if not remaining:  # step 2
                if meeting.inside == visit.group:
                    await self._try(*meeting.closing())
                    continue
                return True
            if remaining == [mine]:  # step 3
                visit.going = True
                if await self._try(*meeting.closing(mine)):
                    return True
            elif remaining[0] == mine:  # step 4
                if await self._wait_until_deleted(remaining[-1]) is WakeReason.DEADLINE:
                    return False
            elif await self._delete_and_wait(visit, mine in remaining, remaining[0]) is WakeReason.DEADLINE:  # step 5
                return False

    async def _read_state(self, visit: Inside) -> DoubleBarrierState:
        """Read the state.

        After a change of session it is no older than what the former session read.
        """
        while True:
            same = (await Connected()).session_id == visit.entry.session_id
            if not same and not visit.going:
                raise LockLostError(self.path, "session expired")
            replies = await self._ask(same and await SessionAlive(visit.entry.session_id))
            try:
                meeting = self._meeting(replies)
            except SessionLostError:
                return DoubleBarrierState(self.path, self.parties, ())
            if meeting is not None:
                return meeting

    async def _ask(self, session_alive: bool) -> tuple[Any, ...]:
        reads = (Children(self.path), GetData(self.path))
        if session_alive:
            return await Pipeline(*reads)
        return (await Pipeline(Sync(self.path), *reads))[1:]

    async def _wait_until_deleted(self, name: str) -> WakeReason:
        watch = Watch()
        try:
            await GetData(f"{self.path}/{name}", watch)
        except (NoNodeError, *INTERRUPTED):
            return WakeReason.SIGNAL
        return await Wait(watch)

    async def _delete_and_wait(self, visit: Inside, present: bool, lowest: str) -> WakeReason:
        """Delete our znode if it exists, and wait for the lowest one."""
        if not present:
            return await self._wait_until_deleted(lowest)
        visit.going = True
        watch = Watch()
        deleted, node = await Pipeline(Delete(visit.entry.path), GetData(f"{self.path}/{lowest}", watch))
        for reply in (deleted, node):
            if isinstance(reply, DistsyncError) and not isinstance(reply, (NoNodeError, *INTERRUPTED)):
                raise reply
        if isinstance(deleted, DisconnectedError) or not isinstance(node, Node):
            return WakeReason.SIGNAL
        return await Wait(watch)
