"""Condition: waiters form a queue, a notifier marks the first of them, and no notification is lost
with its receiver.

Source: stdlib ``threading.Condition``; recipes.txt, "Queues", for the queue of waiters.

The caller handles the lock: `enlist`, release, `wait`, re-acquire, `confirm`. A waiter is in the
queue before the lock is released, and a notifier holds the lock, so that no notification is missed.
The condition's own znode lists the waiters that were notified and have not confirmed. The
notification of a receiver that is gone passes to the next waiter: at once if the receiver was
interrupted; if its session ended, at the next notify, or when a waiter looks by itself, at most
half a session timeout later.

The server deletes the containers when no process waits, and none holds a lock below ``<path>``. The list
is lost then, but all waiters in it are gone, and so are those to which their notifications could pass. A
transaction that changes the list requires the znode of a waiter that was there when the list was read.
The container was not deleted and created again in between, so the version is that of the same list.

Znodes:
  ``<path>``                                    container, data: JSON list of notified, unconfirmed waiters
  ``<path>/waiters``                            container
  ``<path>/waiters/_c_<guid>-lock-<sequence>``  ephemeral; version greater than 0 if notified
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from distsync._protocols.receipts import Receipts, raise_deadline
from distsync._protocols.retries import (
    DECODE_ERRORS,
    INTERRUPTED,
    delete_own,
    delete_until_session_ends,
    ensure,
    read,
    read_all,
)
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    SetData,
    Stat,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import LOCK, QueueEntry, enqueue, ensure_container_in_container, in_order
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    NoNodeError,
    OutcomeUnknownError,
    SessionLostError,
)

#: Number of waiters marked in one transaction. Each needs about 150 bytes of the 1 MiB of a
#: request.
CHUNK = 1000


def names_in(path: str, data: bytes) -> list[str]:
    """Return the waiters that were notified and have not confirmed."""
    if not data:  # created as the parent of another znode
        return []
    try:
        names = json.loads(data)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
    raise CorruptNodeError(path, data)


@dataclass(frozen=True)
class ConditionState:
    """Waiters of a condition, and version of its znode.

    Attributes:
        waiting: Waiters that were not notified.
        lost_receivers: Notified waiters that have left without confirming.
        notified: Notified waiters that have not confirmed yet.
        version: Version of the condition's znode.
    """

    waiting: list[str]
    lost_receivers: list[str]
    notified: list[str]
    version: int

    def data(self, chosen: list[str]) -> bytes:
        """Return the data of the condition's znode after ``chosen`` were notified in place of
        the lost receivers.
        """
        return json.dumps(self.notified + chosen).encode()


class ConditionCore:
    """In-process state of a condition, shared by all its threads."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.waiters = f"{path}/waiters"
        self.receipts = receipts

    async def _ensure_directory(self, directory: str) -> None:
        await ensure(self.path, b"[]", container=True)
        await ensure_container_in_container(directory)  # the server may have deleted the former in between

    async def enlist(self, contender_data: bytes, entries: list[QueueEntry]) -> None:
        """Enqueue a waiter, and append its entry to ``entries``. Later notifications count it."""
        entries.append(
            (await enqueue(self.waiters, LOCK, contender_data, ensure_directory=self._ensure_directory)).entry
        )

    async def wait(self, entry: QueueEntry) -> bool:
        """Wait for a notification. Return False at the deadline.

        Also returns True if the session has ended, because a notification may have been missed: the
        caller has to check its predicate.
        """
        try:
            while True:
                node, watch = await self._read_own_node(entry)
                if node is None or node.stat.version > 0:
                    return True
                half_timeout_s = (await Connected()).timeout_ms / 2000
                woke = await Wait(watch, limit=half_timeout_s)
                if woke is WakeReason.DEADLINE:
                    return not await self._resign(entry)
                if woke is WakeReason.LIMIT:
                    await self._replace_lost_receivers(entry)
        except SessionLostError:
            return True
        except BaseException as error:
            await Background(self.abandon_wait(entry))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return False
            raise

    async def _read_own_node(self, entry: QueueEntry) -> tuple[Node | None, Watch]:
        """Return our znode and a watch on it; None if it has ended with its session."""
        while (await Connected()).session_id == entry.session_id:
            watch = Watch()
            try:
                return await GetData(entry.path, watch), watch
            except NoNodeError:
                break
            except INTERRUPTED:
                continue
        return None, Watch()

    async def _resign(self, entry: QueueEntry) -> bool:
        """Leave the queue. Return False if we were notified first."""
        while (await Connected()).session_id == entry.session_id:
            try:
                await Delete(entry.path, 0)
                return True
            except (BadVersionError, NoNodeError):
                return False
            except INTERRUPTED:
                continue
        return True

    async def waiting(self) -> int:
        """Return the number of waiters."""
        try:
            return len(in_order((await read(Children(self.waiters))).names))
        except NoNodeError:
            return 0

    async def _read_state(self) -> ConditionState | None:
        """Return the state; None if the condition does not exist."""
        listing, node = await read_all(Children(self.waiters), GetData(self.path))
        if isinstance(node, NoNodeError):
            return None
        present = [] if isinstance(listing, NoNodeError) else [waiter.name for waiter in in_order(listing.names)]
        notified = names_in(self.path, node.data)
        return ConditionState(
            waiting=[name for name in present if name not in notified],
            lost_receivers=[name for name in notified if name not in present],
            notified=[name for name in notified if name in present],
            version=node.stat.version,
        )

    async def notify(self, count: int | None) -> int:
        """Notify the first ``count`` waiters, or all if None. Return the number notified."""
        notified, changed_by_others = 0, set[str]()
        while count is None or notified < count:
            state = await self._read_state()
            if state is None:
                break
            unnotified = [name for name in state.waiting if name not in changed_by_others]
            wanted = len(unnotified) if count is None else count - notified
            chosen = unnotified[: min(wanted + len(state.lost_receivers), CHUNK)]
            if not chosen:
                break
            try:
                await self.receipts.commit(*self._mark_operations(state, chosen))
            except NoNodeError:
                continue
            except BadVersionError:
                changed_by_others.update(await self._changed_by_others(chosen))
                continue
            notified += len(chosen) - len(state.lost_receivers)
            if count is None and len(chosen) == len(unnotified):
                break  # later waiters do not hold the lock
        return notified

    async def _changed_by_others(self, names: list[str]) -> list[str]:
        """Return the waiters whose znodes have changed: one that is not listed was woken by a write of
        another client.
        """
        nodes = await read_all(*(Exists(f"{self.waiters}/{name}") for name in names))
        return [name for name, stat in zip(names, nodes, strict=True) if isinstance(stat, Stat) and stat.version > 0]

    def _mark_operations(self, state: ConditionState, chosen: list[str]) -> list[SetData]:
        marks = [SetData(f"{self.waiters}/{name}", b"", 0) for name in chosen]
        return [SetData(self.path, state.data(chosen), state.version), *marks]

    async def _replace_lost_receivers(self, entry: QueueEntry) -> None:
        """Notify the first waiters in place of receivers that are gone, if we are one of these
        waiters.
        """
        state = await self._read_state()
        successors = [] if state is None else state.waiting[: len(state.lost_receivers)]
        if state is not None and entry.name in successors:
            try:
                await self.receipts.commit(*self._mark_operations(state, successors))
            except (BadVersionError, NoNodeError):
                return
            except OutcomeUnknownError as unknown:
                raise_deadline(unknown)

    async def abandon_wait(self, entry: QueueEntry, may_be_unlisted: bool = False) -> None:
        """Delete our znode. If we were notified, pass the notification on to the first waiter.

        With ``may_be_unlisted``, we had a notification, which may have been removed from the list
        already.
        """
        await delete_until_session_ends(entry.path, entry.session_id)
        while (state := await self._read_state()) is not None:
            listed = entry.name in state.lost_receivers
            successors = state.waiting[: len(state.lost_receivers) + (may_be_unlisted and not listed)]
            if not successors or not (listed or may_be_unlisted):  # without a waiter, the next notify uses it
                return
            try:
                await self.receipts.commit(*self._mark_operations(state, successors))
                return
            except (BadVersionError, NoNodeError):
                continue

    async def confirm(self, entry: QueueEntry) -> None:
        """Delete our znode and its mark after the lock was re-acquired. If interrupted, pass the
        notification on.
        """
        may_be_unlisted = False
        try:
            while (await Connected()).session_id == entry.session_id:
                state = await self._read_state()
                if state is None or entry.name not in state.notified:
                    await delete_own(entry.path, entry.session_id)
                    return
                rest = [name for name in (*state.notified, *state.lost_receivers) if name != entry.name]
                unlist = SetData(self.path, json.dumps(rest).encode(), state.version)
                may_be_unlisted = True
                try:
                    await Multi((unlist, Delete(entry.path)))
                    return
                except (BadVersionError, NoNodeError, *INTERRUPTED):
                    continue
        except BaseException:
            await Background(self.abandon_wait(entry, may_be_unlisted))
            raise
