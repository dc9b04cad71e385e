"""Bounded queues: a put has succeeded once fewer than ``maxsize`` items are ahead of its own.

Source: stdlib ``queue.Queue(maxsize)``; the line is the queue itself.

Rules for this file: pure; it waits as admission.py says, and does not take items.

At its deadline a blocked put takes its own item out again; if that is gone, somebody has got it: it had succeeded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distsync.errors import DeadlineError, Full, NoNodeError, OutcomeUnknownError, ShutDown
from distsync.protocols.admission import QueueSnapshot, admit
from distsync.protocols.guard import INTERRUPTED, read_all
from distsync.protocols.line import in_order
from distsync.session.steps import Background, Children, Connected, GetData, Listing, Node, SetData, Watch

if TYPE_CHECKING:
    from distsync.protocols.queue import QueueCore


def open_only(view: QueueSnapshot, state: Any) -> QueueSnapshot:
    """What was seen, the way of our item too. Raises ShutDown if the queue was shut down before."""
    if isinstance(state, Node) and state.stat.version > 0:
        raise ShutDown
    return view


class PendingPut:
    """An item that was put and may be over the bound, as something to wait in."""

    def __init__(
        self, core: QueueCore, segment: str, item: str, path: str | None, contender_data: bytes, maxsize: int
    ) -> None:
        self.core = core
        self.segment = segment
        self.item = item
        self.contender_data = contender_data
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
            await SetData(self.path, self.contender_data)
        except (NoNodeError, *INTERRUPTED):
            return
