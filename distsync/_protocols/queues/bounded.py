"""Bounded queues: a put succeeds once fewer than ``maxsize`` items precede its own.

In a queue with claims, only items that are neither claimed nor delayed count.

Source: stdlib ``queue.Queue(maxsize)`` and ``multiprocessing.JoinableQueue(maxsize)``. The queue
itself is the line of waiting producers: a blocked put waits with its item in place, as
semaphores/admission.py describes. At its deadline it removes the item; if the item is gone, a
consumer has taken it and the put has succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from distsync._protocols.queues.claim_layout import ClaimQueueLayout, ItemHeader
from distsync._protocols.queues.segments import Segments
from distsync._protocols.retries import INTERRUPTED, read_all
from distsync._protocols.semaphores.admission import QueueSnapshot, wait_for_admission
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    GetData,
    Listing,
    Node,
    SetData,
    Signal,
    Wait,
    Watch,
)
from distsync._protocols.wait_queue import in_order
from distsync._signal_handlers import is_interrupt
from distsync.errors import (
    BadVersionError,
    ClientClosedError,
    DeadlineError,
    Full,
    NoNodeError,
    OutcomeUnknownError,
    ShutDown,
)


class BoundedQueue(Protocol):
    """What a blocked put needs of its queue."""

    @property
    def znodes(self) -> Segments: ...

    async def segments_up_to(self, segment: str) -> Sequence[str]: ...

    async def retract(self, path: str) -> bool: ...


class BoundedClaimQueue(BoundedQueue, Protocol):
    """What a blocked put needs of a queue with claims."""

    @property
    def znodes(self) -> ClaimQueueLayout: ...

    async def retract_unclaimed(self, path: str, label: ItemHeader) -> bool: ...


def open_only(view: QueueSnapshot, state: Any) -> QueueSnapshot:
    """Return ``view``; raise ShutDown if the queue was shut down."""
    if isinstance(state, Node) and state.stat.version > 0:
        raise ShutDown
    return view


class PendingPut:
    """An item that was put and may exceed the bound."""

    def __init__(
        self, core: BoundedQueue, segment: str, item: str, path: str | None, data: bytes, maxsize: int
    ) -> None:
        self.core = core
        self.segment = segment
        self.item = item
        self.data = data
        self.maxsize = maxsize
        self.poll_interval = 60.0
        self.path = path

    async def wait_within_bound(self, replies: tuple[Any, ...], blocking: bool) -> None:
        """Wait until the item is within the bound.

        Raises Full and ShutDown after removing the item, and OutcomeUnknownError if there was no
        time left to remove it.
        """
        try:
            self.poll_interval = (await Connected()).timeout_ms / 2000
            view = self._first_view(replies) or await self.read()
            if not blocking and view.ahead is not None and len(view.ahead) >= self.maxsize:
                inside: bool | None = False
            else:
                inside = await wait_for_admission(self, view)
        except ShutDown:
            if self.path is not None and await self._withdrawn():
                raise
            return  # a consumer has taken it
        except BaseException as error:
            if not isinstance(error, DeadlineError) or is_interrupt(error):
                await self._take_out_after(error)
                raise
            inside = False
        if inside is False and await self._withdrawn():
            raise Full

    async def withdraw(self, path: str) -> bool:
        """Remove the item if no consumer has taken it. Return whether it was removed."""
        return await self.core.retract(path)

    async def _withdrawn(self) -> bool:
        """Return True if the item was removed, False if a consumer has taken it."""
        try:
            if self.path is not None:
                return await self.withdraw(self.path)
        except BaseException as error:
            if not isinstance(error, DeadlineError) or is_interrupt(error):
                await self._take_out_after(error)
                raise
        await Background(self._take_out())
        raise OutcomeUnknownError("a put", self.segment, "deadline")

    async def _take_out_after(self, interrupt: BaseException) -> None:
        """Remove the item in the background, and wait for that as long as the clean-up of a call may last."""
        finished = Signal()
        await Background(self._take_out(finished))
        if not isinstance(interrupt, ClientClosedError):  # then there is no background
            await Wait(finished)

    async def _take_out(self, finished: Signal | None = None) -> None:
        """Remove the item, if present, as soon as possible."""
        try:
            with suppress(ShutDown):
                await self.read()
            if self.path is not None:
                await self.withdraw(self.path)
        finally:
            if finished is not None:
                finished.fire()

    def _first_view(self, replies: tuple[Any, ...]) -> QueueSnapshot | None:
        """Return the snapshot from the reads sent with the item, if there is only one segment."""
        segments, listing = replies
        if not isinstance(segments, Listing) or not isinstance(listing, Listing) or len(segments.names) != 1:
            return None
        return self._view([(self.segment, listing)])

    def _view(self, listings: list[tuple[str, Listing]]) -> QueueSnapshot:
        ahead: list[str] = []
        for segment, listing in listings:
            for contender in in_order(listing.names):
                if self.item in contender.name and segment == self.segment:
                    self.path = f"{segment}/{contender.name}"
                    return QueueSnapshot(tuple(ahead), self.maxsize)
                ahead.append(f"{segment}/{contender.name}")
        return QueueSnapshot(None, self.maxsize)

    async def read(self) -> QueueSnapshot:
        return await self._read_view(None)

    async def watch(self, view: QueueSnapshot, watch: Watch) -> QueueSnapshot:
        return await self._read_view(watch)

    async def _read_view(self, watch: Watch | None) -> QueueSnapshot:
        self.poll_interval = (await Connected()).timeout_ms / 2000
        while True:
            segments = await self.core.segments_up_to(self.segment)
            # read last: an immediate shutdown removes items after it has set the state
            state_too = GetData(self.core.znodes.state, watch)
            *listed, state = await read_all(*(Children(segment, watch) for segment in segments), state_too)
            present = [(segment, reply) for segment, reply in zip(segments, listed, strict=True)]
            if not any(isinstance(reply, NoNodeError) for _, reply in present):
                return open_only(self._view(present), state)

    async def check_session(self) -> None:
        """Do nothing: an item outlives the session of its producer."""

    def is_admitted(self, node: Node) -> bool:
        return node.stat.version > 0

    async def mark_admitted(self) -> None:
        assert self.path is not None
        try:
            await SetData(self.path, self.data)
        except (NoNodeError, *INTERRUPTED):
            return


class PendingClaimPut(PendingPut):
    """An item that was put and may exceed a bound that counts unclaimed, undelayed items."""

    core: BoundedClaimQueue

    def _first_view(self, replies: tuple[Any, ...]) -> QueueSnapshot | None:
        segments, listing, claims = replies
        if any(not isinstance(reply, Listing) for reply in replies) or len(segments.names) != 1:
            return None
        return self._view([(self.segment, self._unclaimed(self.segment, listing, claims))])

    async def withdraw(self, path: str) -> bool:
        return await self.core.retract_unclaimed(path, ItemHeader.split(self.data)[0])

    async def _read_view(self, watch: Watch | None) -> QueueSnapshot:
        znodes = self.core.znodes
        self.poll_interval = (await Connected()).timeout_ms / 2000
        while True:
            segments = await self.core.segments_up_to(self.segment)
            extra = (Children(znodes.claims, watch), GetData(znodes.state, watch))
            *listed, claims, state = await read_all(*(Children(segment, watch) for segment in segments), *extra)
            if isinstance(claims, NoNodeError) or any(isinstance(reply, NoNodeError) for reply in listed):
                if not segments:
                    return open_only(self._view([]), state)
                continue
            unclaimed = [(s, self._unclaimed(s, a, claims)) for s, a in zip(segments, listed, strict=True)]
            return open_only(self._view(unclaimed), state)

    def _unclaimed(self, segment: str, listing: Listing, claims: Listing) -> Listing:
        taken, segment_name = set(claims.names), segment.rpartition("/")[2]
        return listing._replace(names=tuple(name for name in listing.names if f"{segment_name}~{name}" not in taken))

    async def mark_admitted(self) -> None:
        assert self.path is not None
        try:
            await SetData(self.path, self.data, 0)
        except (BadVersionError, NoNodeError, *INTERRUPTED):
            return
