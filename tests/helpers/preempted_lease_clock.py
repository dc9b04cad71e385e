"""A lease clock whose reader is suspended while its session ends and another one starts."""

from __future__ import annotations

from typing import Any

from distsync._client.lease.lease_clock import LeaseClock


class Preempted(LeaseClock):
    """After this many reads, the session ``later`` starts: id, timeout, and when it was requested."""

    __slots__ = ("reads", "later")

    def __init__(self, reads: int, later: tuple[int, float, float]) -> None:
        super().__init__()
        self.reads, self.later = reads, later

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in LeaseClock.__slots__:
            self.reads -= 1
            if self.reads == 0:
                self.end()
                self.begin(*self.later)
        return value
