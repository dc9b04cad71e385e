"""Condition: waiters stand in a line, a notifier marks the first of them, and no mark is lost with its receiver.

Source: stdlib ``threading.Condition``; recipes.txt, "Queues", for the line of waiters.

Rules for this file: pure; the lock is not its business: the caller enlists and releases, waits, acquires, confirms.

A waiter stands in the line before the lock is released, and a notifier holds the lock: no notify falls between. The
signals that were given and not yet confirmed are listed in the condition's own znode; a signal whose receiver is no
more goes to the next waiter: at once if he was interrupted; if he died, at the next notify, or when a waiter looks by
itself, at the latest half a session time-out later.

Picture: ``<path>``                                    data = JSON list: waiters that were notified, not confirmed
         ``<path>/waiters/_c_<guid>-lock-<sequence>``  ephemeral; version 0: waits, above 0: was notified
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
    raise_first,
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
from distsync._protocols.wait_queue import LOCK, QueueEntry, enqueue, in_order
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    NoNodeError,
    OutcomeUnknownError,
    SessionLostError,
)

#: So many waiters are marked in one transaction; each costs about 150 bytes of the 1 MiB that a request may have.
CHUNK = 1000


def names_in(path: str, data: bytes) -> list[str]:
    """The waiters that were notified and have not confirmed."""
    if not data:  # made as the parent of something else
        return []
    try:
        names = json.loads(data)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
    except DECODE_ERRORS:
        pass
    raise CorruptNodeError(path, data)


@dataclass(frozen=True)
class ConditionState:
    """Who waits, whose signal has no receiver any more, and who has a signal and has not confirmed."""

    waiting: list[str]
    orphans: list[str]
    signalled: list[str]
    version: int

    def data(self, chosen: list[str]) -> bytes:
        """What the condition's znode says once ``chosen`` have a signal, and the orphans are settled."""
        return json.dumps(self.signalled + chosen).encode()


class ConditionCore:
    """What the threads of one process know together about one condition."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.waiters = f"{path}/waiters"
        self.receipts = receipts

    async def _parents(self, directory: str) -> None:
        await ensure(self.path, b"[]")
        await ensure(directory, container=True)

    async def enlist(self, contender_data: bytes, places: list[QueueEntry]) -> None:
        """We stand in the line of waiters, at the last of ``places``: a notify from now on is for us too."""
        places.append((await enqueue(self.waiters, LOCK, contender_data, parents=self._parents)).place)

    async def wait(self, place: QueueEntry) -> bool:
        """True once we were notified, False at the deadline. True also when our session ended meanwhile: a notify
        may have been missed with it, so that the caller looks at what he waits for."""
        try:
            while True:
                node, watch = await self._read_state(place)
                if node is None or node.stat.version > 0:
                    return True
                patience = (await Connected()).timeout_ms / 2000
                woke = await Wait(watch, limit=patience)
                if woke is WakeReason.DEADLINE:
                    return not await self._resign(place)
                if woke is WakeReason.LIMIT:
                    await self._inherit(place)
        except SessionLostError:
            return True
        except BaseException as error:
            await Background(self.abandon_wait(place))
            if isinstance(error, DeadlineError):
                return False
            raise

    async def _read_state(self, place: QueueEntry) -> tuple[Node | None, Watch]:
        """Our znode with a watch on it; None when it is gone with its session."""
        while (await Connected()).session_id == place.session_id:
            watch = Watch()
            try:
                return await GetData(place.path, watch), watch
            except NoNodeError:
                break
            except INTERRUPTED:
                continue
        return None, Watch()

    async def _resign(self, place: QueueEntry) -> bool:
        """Whether we left the line unnotified."""
        while (await Connected()).session_id == place.session_id:
            try:
                await Delete(place.path, 0)
                return True
            except (BadVersionError, NoNodeError):
                return False
            except INTERRUPTED:
                continue
        return True

    async def waiting(self) -> int:
        """How many stand in the line of waiters."""
        try:
            return len(in_order((await read(Children(self.waiters))).names))
        except NoNodeError:
            return 0

    async def _state(self) -> ConditionState:
        while (state := await self._seen()) is None:
            await self._parents(self.waiters)
        return state

    async def _seen(self) -> ConditionState | None:
        """None: there is no such condition."""
        listing, node = await read_all(Children(self.waiters), GetData(self.path))
        if isinstance(node, NoNodeError):
            return None
        present = [] if isinstance(listing, NoNodeError) else [waiter.name for waiter in in_order(listing.names)]
        signalled = names_in(self.path, node.data)
        return ConditionState(
            waiting=[name for name in present if name not in signalled],
            orphans=[name for name in signalled if name not in present],
            signalled=[name for name in signalled if name in present],
            version=node.stat.version,
        )

    async def notify(self, count: int | None) -> int:
        """The first ``count`` waiters (None: all) are notified. Returns how many."""
        notified, awake = 0, set[str]()
        while count is None or notified < count:
            state = await self._state()
            asleep = [name for name in state.waiting if name not in awake]
            wanted = len(asleep) if count is None else count - notified
            chosen = asleep[: min(wanted + len(state.orphans), CHUNK)]
            if not chosen:
                break
            try:
                await self.receipts.commit(*self._marks(state, chosen))
            except NoNodeError:
                continue
            except BadVersionError:
                awake.update(await self._woken(chosen))
                continue
            notified += len(chosen) - len(state.orphans)
            if count is None and len(chosen) == len(asleep):
                break  # who waits since then does it without the lock
        return notified

    async def _woken(self, names: list[str]) -> list[str]:
        """Those whose znodes have changed: who is not among the signalled then was woken by somebody's write."""
        nodes = await read_all(*(Exists(f"{self.waiters}/{name}") for name in names))
        return [name for name, stat in zip(names, nodes, strict=True) if isinstance(stat, Stat) and stat.version > 0]

    def _marks(self, state: ConditionState, chosen: list[str]) -> list[SetData]:
        marks = [SetData(f"{self.waiters}/{name}", b"", 0) for name in chosen]
        return [SetData(self.path, state.data(chosen), state.version), *marks]

    async def _inherit(self, place: QueueEntry) -> None:
        """A signal whose receiver is no more goes to the first who waits, if that is us."""
        state = await self._state()
        heirs = state.waiting[: len(state.orphans)]
        if place.name in heirs:
            try:
                await self.receipts.commit(*self._marks(state, heirs))
            except (BadVersionError, NoNodeError):
                return
            except OutcomeUnknownError as unknown:
                raise_deadline(unknown)

    async def abandon_wait(self, place: QueueEntry, confirming: bool = False) -> None:
        """We wait no more: our znode goes, and the signal that we may have got goes to the first who waits. Who was
        ``confirming`` it had one, which is listed no more if that was done."""
        await delete_until_session_ends(place.path, place.session_id)
        while (state := await self._seen()) is not None:
            listed = place.name in state.orphans
            heirs = state.waiting[: len(state.orphans) + (confirming and not listed)]
            if not heirs or not (listed or confirming):  # without heirs the next notify sees to what is listed
                return
            try:
                await self.receipts.commit(*self._marks(state, heirs))
                return
            except (BadVersionError, NoNodeError):
                continue

    async def confirm(self, place: QueueEntry) -> None:
        """We have the lock again: our signal has arrived, and our znode goes; else it goes to another."""
        asked: list[None] = []
        try:
            await self._confirm(place, asked)
        except BaseException:
            await Background(self.abandon_wait(place, bool(asked)))
            raise

    async def _confirm(self, place: QueueEntry, asked: list[None]) -> None:
        while (await Connected()).session_id == place.session_id:
            state = await self._state()
            if place.name not in state.signalled:
                await delete_own(place.path, place.session_id)
                return
            kept = [name for name in (*state.signalled, *state.orphans) if name != place.name]
            try:
                forget = SetData(self.path, json.dumps(kept).encode(), state.version)
                asked.append(None)
                raise_first((await Multi((forget, Delete(place.path))),))
                return
            except (BadVersionError, NoNodeError, *INTERRUPTED):
                continue
