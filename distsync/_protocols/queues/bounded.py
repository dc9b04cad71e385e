"""Bounded queues: a put has succeeded once fewer than ``maxsize`` items are ahead of its own.

In a queue with claims only the items that are neither claimed nor delayed count.

Source: stdlib ``queue.Queue(maxsize)`` and ``multiprocessing.JoinableQueue(maxsize)``; the queue itself is the wait
queue.

Rules for this file: pure; it waits as semaphores/capacity_wait.py says, and does not take items. At its deadline a
blocked put removes its own item; if the item is gone, a consumer has taken it, and the put has succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from distsync._protocols.queues.claim_layout import ClaimQueueLayout, ItemHeader
from distsync._protocols.queues.segments import Segments
from distsync._protocols.retries import INTERRUPTED, read_all
from distsync._protocols.semaphores.capacity_wait import QueueSnapshot, admit
from distsync._protocols.steps import Background, Children, Connected, GetData, Listing, Node, SetData, Watch
from distsync._protocols.wait_queue import in_order
from distsync.errors import BadVersionError, DeadlineError, Full, NoNodeError, OutcomeUnknownError, ShutDown


class BoundedQueue(Protocol):
    """What a blocked put needs of its queue."""

    @property
    def znodes(self) -> Segments: ...

    async def segments_before(self, segment: str) -> Sequence[str]: ...

    async def retract(self, path: str) -> bool: ...


class BoundedClaimQueue(BoundedQueue, Protocol):
    """What a blocked put needs of a queue with claims."""

    @property
    def znodes(self) -> ClaimQueueLayout: ...

    async def retract_unclaimed(self, path: str, label: ItemHeader) -> bool: ...


def open_only(view: QueueSnapshot, state: Any) -> QueueSnapshot:
    """What was seen, the way of our item too. Raises ShutDown if the queue was shut down before."""
    if isinstance(state, Node) and state.stat.version > 0:
        raise ShutDown
    return view


class PendingPut:
    """An item that was put and may be over the bound, as something to wait in."""

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

    async def wait_inside(self, answers: tuple[Any, ...], blocking: bool) -> None:
        """The item is inside the bound. Raises Full (the item is out again) and ShutDown (likewise), and
        OutcomeUnknownError if there was no time left to take it out."""
        try:
            self.poll_interval = (await Connected()).timeout_ms / 2000
            view = self._first_view(answers) or await self.read()
            if not blocking and view.ahead is not None and len(view.ahead) >= self.maxsize:
                inside: bool | None = False
            else:
                inside = await admit(self, view)
        except DeadlineError:
            inside = False
        except ShutDown:
            if self.path is not None and await self._withdrawn():
                raise
            return  # somebody has got it
        except BaseException:
            await Background(self._take_out())
            raise
        if inside is False and await self._withdrawn():
            raise Full

    async def withdraw(self, path: str) -> bool:
        """Whether the item was taken out again before anybody got it."""
        return await self.core.retract(path)

    async def _withdrawn(self) -> bool:
        """Whether the item is out again; False: somebody has got it."""
        try:
            if self.path is not None:
                return await self.withdraw(self.path)
        except DeadlineError:
            pass
        except BaseException:
            await Background(self._take_out())
            raise
        await Background(self._take_out())
        raise OutcomeUnknownError("a put", self.segment, "deadline")

    async def _take_out(self) -> None:
        """As soon as can be, if it is there."""
        with suppress(ShutDown):
            await self.read()
        if self.path is not None:
            await self.withdraw(self.path)

    def _first_view(self, answers: tuple[Any, ...]) -> QueueSnapshot | None:
        """What the reads that were sent with the item say, if it is in the only segment."""
        segments, listing = answers
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
        return await self._see(None)

    async def watch(self, view: QueueSnapshot, watch: Watch) -> QueueSnapshot:
        return await self._see(watch)

    async def _see(self, watch: Watch | None) -> QueueSnapshot:
        self.poll_interval = (await Connected()).timeout_ms / 2000
        while True:
            segments = await self.core.segments_before(self.segment)
            state_too = GetData(self.core.znodes.state, watch)  # after them: what a shutdown throws away goes after it
            *listed, state = await read_all(*(Children(segment, watch) for segment in segments), state_too)
            present = [(segment, answer) for segment, answer in zip(segments, listed, strict=True)]
            if not any(isinstance(answer, NoNodeError) for _, answer in present):
                return open_only(self._view(present), state)

    async def check_session(self) -> None:
        """An item outlives the session that put it."""

    def is_admitted(self, node: Node) -> bool:
        return node.stat.version > 0

    async def mark_admitted(self) -> None:
        assert self.path is not None
        try:
            await SetData(self.path, self.data)
        except (NoNodeError, *INTERRUPTED):
            return


class PendingClaimPut(PendingPut):
    """An item that was put and may be over the bound, which counts what nobody has claimed and nothing delayed."""

    core: BoundedClaimQueue

    def _first_view(self, answers: tuple[Any, ...]) -> QueueSnapshot | None:
        segments, listing, claims = answers
        if any(not isinstance(answer, Listing) for answer in answers) or len(segments.names) != 1:
            return None
        return self._view([(self.segment, self._unclaimed(self.segment, listing, claims))])

    async def withdraw(self, path: str) -> bool:
        return await self.core.retract_unclaimed(path, ItemHeader.split(self.data)[0])

    async def _see(self, watch: Watch | None) -> QueueSnapshot:
        znodes = self.core.znodes
        self.poll_interval = (await Connected()).timeout_ms / 2000
        while True:
            segments = await self.core.segments_before(self.segment)
            extra = (Children(znodes.claims, watch), GetData(znodes.state, watch))
            *listed, claims, state = await read_all(*(Children(segment, watch) for segment in segments), *extra)
            if isinstance(claims, NoNodeError) or any(isinstance(answer, NoNodeError) for answer in listed):
                if not segments:
                    return open_only(self._view([]), state)
                continue
            unclaimed = [(s, self._unclaimed(s, a, claims)) for s, a in zip(segments, listed, strict=True)]
            return open_only(self._view(unclaimed), state)

    def _unclaimed(self, segment: str, listing: Listing, claims: Listing) -> Listing:
        taken, folder = set(claims.names), segment.rpartition("/")[2]
        return listing._replace(names=tuple(name for name in listing.names if f"{folder}~{name}" not in taken))

    async def mark_admitted(self) -> None:
        assert self.path is not None
        try:
            await SetData(self.path, self.data, 0)
        except (BadVersionError, NoNodeError, *INTERRUPTED):
            return
