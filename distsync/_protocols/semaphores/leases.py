"""Counting semaphores: a contender with fewer than ``limit`` contenders ahead holds a permit.

Source: ZooKeeper recipes, "Locks", with a limit. Extra permits and the marks of admitted contenders
are not from the recipe.

The server deletes the container when no permit is held or waited for. Extra permits outlive it, so a
child keeps it as long as there are any. That child is created and deleted together with the change
of their number.

Znodes:
``<path>``                            container, data = ``{"initial": n, "extra": k}``
``<path>/extra``                      persistent, exists while k is above 0
``<path>/_c_<guid>-lock-<sequence>``  ephemeral, one for each permit that is held or waited for;
                                      its version is above 0 once it was admitted after a wait
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import Grant, TemporaryOwner, hold, of_owner
from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.retries import (
    DECODE_ERRORS,
    INTERRUPTED,
    delete_own,
    delete_until_session_ends,
    ensure,
    read,
    read_all,
)
from distsync._protocols.semaphores import admission
from distsync._protocols.steps import (
    ZNODE_DELETED,
    Background,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Listing,
    Node,
    SessionAlive,
    SetData,
    StopHolding,
    Sync,
    Watch,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    DistsyncError,
    LockLostError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    OverReleaseError,
    SessionLostError,
)

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

#: What an error calls the number of permits.
INITIAL = "initial value"

#: Name of the child that keeps the container while there are extra permits.
EXTRA = "extra"


def parse_permits(path: str, data: bytes) -> tuple[int, int]:
    """Return the initial number of permits, and the number released beyond it."""
    try:
        fields = json.loads(data)
        return int(fields["initial"]), int(fields["extra"])
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, data) from None


def format_permits(initial: int, extra: int) -> bytes:
    return json.dumps({"initial": initial, "extra": extra}).encode()


class SemaphoreCore:
    """In-process state of a semaphore, shared by all its threads."""

    def __init__(self, path: str, initial: int, receipts: Receipts) -> None:
        self.path = path
        self.initial = initial
        self.wanted = self.parameters
        self.user: ParameterUser | None = None
        self.receipts = receipts
        self.grants: deque[Grant] = deque()
        self.extra, self.version = 0, -1

    @property
    def parameters(self) -> dict[str, Any]:
        """The initial number of permits; see parameter_users.py."""
        return {INITIAL: self.initial}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.initial = parameters[INITIAL]
        self.extra, self.version = 0, -1

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the recorded number."""
        initial, _ = parse_permits(self.path, node.data)
        return {INITIAL: initial}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operation that records another number; permits that were added are gone."""
        data, keeper = format_permits(parameters[INITIAL], 0), f"{self.path}/{EXTRA}"
        if node is None:
            # before the transaction, which a server without containers would refuse
            await Create(self.path, data, container=True)
            return Create(keeper), Delete(keeper)  # no server deletes a container that never had a child
        change = SetData(self.path, data, node.stat.version)
        _, extra = parse_permits(self.path, node.data)
        has_keeper = extra > 0 and await read(Exists(keeper)) is not None
        return (change, Delete(keeper)) if has_keeper else (change,)

    @property
    def idle(self) -> bool:
        """Whether this process holds no permit."""
        return not self.grants

    async def ensure_directory(self, directory: str) -> None:
        await ensure(directory, format_permits(self.initial, 0), container=True)

    async def acquire(
        self, contender_data: bytes, blocking: bool = True, owner: object = None, max_permits: int | None = None
    ) -> Grant | None:
        """Acquire a permit.

        Args:
            contender_data: Data of the contender's znode.
            blocking: Whether to wait if no permit is free.
            owner: The thread or task that will hold the permit.
            max_permits: Maximum number of free permits after an unsuccessful call that was admitted in
                the last moment and so releases a permit. None if unlimited.

        Returns:
            The grant. None at the deadline, or if ``blocking`` is False and no permit is free.
        """
        while True:
            try:
                reads = (Children(self.path), GetData(self.path))
                entry, replies = await wait_queue.enqueue(
                    self.path, wait_queue.LOCK, contender_data, *reads, ensure_directory=self.ensure_directory
                )
            except DeadlineError as error:
                raise_if_from_handler(error)
                return None
            admitted: bool | None = None
            try:
                admitted = await self.wait_for_admission(entry, contender_data, replies, blocking)
                if admitted:
                    return await self.hold_permit(entry, owner)
            except SessionLostError:
                continue
            except BaseException as error:
                await Background(self._abandon_wait(entry, max_permits))
                if isinstance(error, DeadlineError) and not is_interrupt(error):
                    return None
                raise
            if admitted is False:
                await self._abandon_wait(entry, max_permits)
                return None

    async def _abandon_wait(self, entry: wait_queue.QueueEntry, max_permits: int | None) -> None:
        """Delete our contender."""
        try:
            if max_permits is None:
                await delete_own(entry.path, entry.session_id)
            else:
                await self._delete_bounded(entry.path, max_permits)
        except (OverReleaseError, SessionLostError):
            pass
        except (DeadlineError, OutcomeUnknownError) as error:
            await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            raise_if_from_handler(error)

    async def wait_for_admission(
        self, entry: wait_queue.QueueEntry, contender_data: bytes, replies: tuple[Any, ...], blocking: bool
    ) -> bool | None:
        """Wait until our contender is admitted.

        Return True if it was, and our session is proven alive. Return False at the deadline, or if
        ``blocking`` is False and no permit is free. Return None if our znode was deleted.
        """
        lease = Lease(self, entry, contender_data)
        lease.poll_interval = (await Connected()).timeout_ms / 2000
        view = lease.view(replies) or await lease.read()
        while True:
            if not blocking and view.ahead is not None and len(view.ahead) >= view.limit:
                return False
            admitted = await admission.wait_for_admission(lease, view)
            if not admitted or await SessionAlive(lease.entry.session_id):
                return admitted
            view = await lease.read()

    async def hold_permit(self, entry: wait_queue.QueueEntry, owner: object) -> Grant:
        """Hold a permit by an admitted contender. Raise MismatchError if the number was changed in between."""
        if self.user is not None:
            await self.user.rejoin(entry.session_id)
        grant = await hold(entry, owner)
        self.grants.append(grant)
        return grant

    def limit(self, node: Node) -> int:
        """Return the total number of permits."""
        initial, extra = parse_permits(self.path, node.data)
        if initial != self.initial:
            raise MismatchError("the initial value", self.path, initial, self.initial)
        self.extra, self.version = extra, node.stat.version
        return initial + extra

    async def capacity(self) -> int:
        """Return the total number of permits, free or not."""
        try:
            return self.limit(await read(GetData(self.path)))
        except NoNodeError:
            return self.initial

    async def release(
        self, count: int = 1, max_permits: int | None = None, started: list[bool] | None = None, owner: object = None
    ) -> None:
        """Release ``count`` permits.

        The order is: permits of ``owner``, so that it is notified of a loss, then others of this
        process, then new permits, which raise the total number.

        Args:
            count: Number of permits.
            max_permits: Maximum number of free permits afterwards, or None if unlimited.
            started: Its element is set to True at the start. From then on, an interrupted call is
                completed in the background, except for new permits.
            owner: The thread or task that releases.

        Raises:
            OverReleaseError: More than ``max_permits`` would be free. No new ones were added.
            LockLostError: A permit was lost while it was held.
        """
        mine: list[Grant] = []
        try:
            if started is not None:
                started[0] = True
            mine += of_owner(self.grants, owner, count)
            for grant in mine:
                self.grants.remove(grant)
            if count > len(mine):
                try:
                    await self._add(count - len(mine), max_permits, mine)
                except OverReleaseError:
                    self.grants.extendleft(reversed(mine))
                    raise
            lost, over_release = [], None
            for grant in mine:
                try:
                    if not await self._delete_lease(grant, max_permits):
                        lost.append(grant)
                except OverReleaseError as error:
                    over_release = error
            if over_release is not None:
                raise over_release
        except OverReleaseError:
            raise
        except BaseException:
            for grant in mine or of_owner(self.grants, owner, count):
                grant.owner = TemporaryOwner()
                await Background(self.force_release(grant))
            raise
        if lost:
            for grant in lost:
                grant.lose(ZNODE_DELETED)
            raise LockLostError(self.path, lost[0].loss.reason)

    async def force_release(self, grant: Grant) -> None:
        """Release a permit whose acquire or release was interrupted at an unknown point."""
        if grant in self.grants:
            self.grants.remove(grant)
        await self._delete_lease(grant, None)

    async def _delete_lease(self, grant: Grant, max_permits: int | None) -> bool:
        path, session_id = grant.entry.path, grant.entry.session_id
        try:
            await StopHolding(grant.loss)
            existed = await (
                delete_own(path, session_id) if max_permits is None else self._delete_bounded(path, max_permits)
            )
            return existed and not grant.loss.fired
        except OverReleaseError:
            raise
        except BaseException as error:
            await Background(partial(delete_until_session_ends, path, session_id))
            if isinstance(error, (DeadlineError, OutcomeUnknownError)) and not is_interrupt(error):
                return not grant.loss.fired
            raise

    async def _delete_bounded(self, path: str, max_permits: int) -> bool:
        """Delete our contender like delete_own.

        Also remove an extra permit if too many would be free.
        """
        while True:
            try:
                changes, exceeds_max = await self.release_operations(max_permits)
                await self.receipts.commit(*changes, Delete(path))
            except BadVersionError:
                self.version = -1
                continue
            except NoNodeError:
                return False
            if exceeds_max:
                raise OverReleaseError("Semaphore released too many times")
            return True

    async def release_operations(self, max_permits: int) -> tuple[tuple[Operation, ...], bool]:
        """Return the operations to send with a release, and whether too many permits would be free.

        The operations remove an extra permit in that case. Raise NoNodeError if there is no
        semaphore. If the transaction raises BadVersionError, set ``version`` to -1 and call this
        again.
        """
        sync: tuple[Sync, ...] = ()
        while self.extra or self.version < 0:
            *_, listing, node = await read_all(*sync, Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                raise NoNodeError(self.path)
            if listing.stat.version != node.stat.version:
                continue
            free, leases = self.limit(node), len(wait_queue.in_order(listing.names))
            exceeds_max = free - leases + 1 > max_permits and self.extra > 0
            if exceeds_max and not sync:
                sync = (Sync(self.path),)  # the server may lag
                continue
            if self.extra:
                data = format_permits(self.initial, self.extra - exceeds_max)
                return self._change(data, self.version, self.extra - exceeds_max, listing.names), exceeds_max
            break
        return (Check(self.path, self.version),), False

    def _change(self, data: bytes, version: int, extra: int, names: Sequence[str]) -> tuple[Operation, ...]:
        """Return the operations that write the numbers, and create or delete the child that keeps the container.

        ``names`` are the children, as they are or were before ``version``.
        """
        change, keeper = SetData(self.path, data, version), f"{self.path}/{EXTRA}"
        if (EXTRA in names) == (extra > 0):
            return (change,)
        return change, Create(keeper) if extra else Delete(keeper)

    async def _add(self, count: int, max_permits: int | None, returned: list[Grant]) -> None:
        """Add permits, unless too many would be free together with those that are ``returned``."""
        while True:
            operations = await self.add_operations(count, max_permits, returned)
            try:
                await self.receipts.commit(*operations)
                return
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue

    async def add_operations(
        self, count: int, max_permits: int | None, returned: Sequence[Grant] = ()
    ) -> tuple[Operation, ...]:
        """Return the transaction that adds permits, together with those that are ``returned``.

        Raise OverReleaseError if more than ``max_permits`` would be free. If the transaction raises
        BadVersionError, NodeExistsError or NoNodeError, call this again.
        """
        returning = {grant.entry.name for grant in returned}
        sync: tuple[Sync, ...] = ()
        while True:
            *_, listing, node = await read_all(*sync, Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                await self.ensure_directory(self.path)
                continue
            initial, extra = parse_permits(self.path, node.data)
            holders = wait_queue.in_order(listing.names)[: initial + extra]
            held = [f"{self.path}/{lease.name}" for lease in holders if lease.name not in returning]
            excess = 0 if max_permits is None else max(0, initial + extra + count - max_permits)
            if excess > len(held) and not sync:
                sync = (Sync(self.path),)  # the server may lag
                continue
            if excess > len(held):
                raise OverReleaseError("Semaphore released too many times")
            data = format_permits(initial, extra + count)
            change = self._change(data, node.stat.version, extra + count, listing.names)
            return *change, *map(Check, held[len(held) - excess :])  # only if enough permits are still held

    async def value(self) -> int:
        """Return the number of free permits."""
        listing, node = await read_all(Children(self.path), GetData(self.path))
        if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
            return self.initial
        return max(0, self.limit(node) - len(wait_queue.in_order(listing.names)))


class Lease:
    """Contender of a semaphore, as a CapacityQueue to wait in."""

    def __init__(self, core: SemaphoreCore, entry: wait_queue.QueueEntry, contender_data: bytes) -> None:
        self.core = core
        self.entry = entry
        self.contender_data = contender_data
        self.poll_interval = 60.0

    def view(self, replies: tuple[Any, ...]) -> admission.QueueSnapshot | None:
        """Interpret the replies. Return None if the connection was lost."""
        listing, node = replies
        if isinstance(listing, NoNodeError) or isinstance(node, NoNodeError):
            return admission.QueueSnapshot(None, 0)
        for reply in replies:
            if isinstance(reply, DistsyncError) and not isinstance(reply, INTERRUPTED):
                raise reply
        if not isinstance(listing, Listing) or not isinstance(node, Node):
            return None
        ahead = wait_queue.predecessors(listing.names, self.entry.name)
        paths = None if ahead is None else tuple(f"{self.entry.directory}/{contender.name}" for contender in ahead)
        return admission.QueueSnapshot(paths, self.core.limit(node))

    async def read(self) -> admission.QueueSnapshot:
        return await self._read_view(None)

    async def watch(self, view: admission.QueueSnapshot, watch: Watch) -> admission.QueueSnapshot:
        return await self._read_view(watch)

    async def _read_view(self, watch: Watch | None) -> admission.QueueSnapshot:
        self.poll_interval = (await Connected()).timeout_ms / 2000
        path = self.entry.directory
        while True:
            view = self.view(await wait_queue.read_consistent(self.entry, Children(path, watch), GetData(path, watch)))
            if view is not None:
                return view

    def check_session(self) -> Awaitable[None]:
        return wait_queue.check_session(self.entry)

    def is_admitted(self, node: Node) -> bool:
        return node.stat.version > 0

    async def mark_admitted(self) -> None:
        try:
            await SetData(self.entry.path, self.contender_data)
        except (NoNodeError, *INTERRUPTED):
            return
