"""A queue with claims that is bounded: a put waits until fewer than ``maxsize`` items ahead of its own are unclaimed.

Source: stdlib ``multiprocessing.JoinableQueue(maxsize)``.

Rules for this file: pure; it waits as bound.py does, and does not count what somebody has claimed, nor what is delayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsync.errors import BadVersionError, NoNodeError
from distsync.protocols.admission import QueueSnapshot
from distsync.protocols.bound import PendingPut, open_only
from distsync.protocols.claims import ItemHeader
from distsync.protocols.guard import INTERRUPTED, read_all
from distsync.session.steps import Children, Connected, GetData, Listing, SetData, Watch

if TYPE_CHECKING:
    from distsync.protocols.joinable import JoinableCore


class PendingClaimPut(PendingPut):
    """An item that was put and may be over the bound, which counts what nobody has claimed and nothing delayed."""

    core: JoinableCore

    def _first_view(self, answers: tuple[Any, ...]) -> QueueSnapshot | None:
        segments, listing, claims = answers
        if any(not isinstance(answer, Listing) for answer in answers) or len(segments.names) != 1:
            return None
        return self._view([(self.segment, self._unclaimed(self.segment, listing, claims))])

    async def withdraw(self, path: str) -> bool:
        return await self.core.retract_unclaimed(path, ItemHeader.split(self.contender_data)[0])

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
            await SetData(self.path, self.contender_data, 0)
        except (BadVersionError, NoNodeError, *INTERRUPTED):
            return
