"""What a queue with claims looks like in znodes, and what follows from what is listed there.

Source: recipes.txt, "Queues"; claims, delays and keys are ours.

Rules for this file: pure; it decides nothing about who gets an item.

Picture: as segments.py, and
         ``<path>/claims/<folder>~<item>``                ephemeral, of the worker who has the item
         ``<path>/delayed/d_<due>_<guid>-<number>``       an item that may be got from then on (ms, the servers' clock)
         ``<path>/keys/<hash>``                           the key of an item that is not done
         ``<path>/clock``                                 written to see what time it is for the servers
         ``<path>/dead/...``                              the same again: items that were delivered too often
Each item's data begins with a line of JSON, its ItemHeader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from distsync._protocols.queues.segments import Segments
from distsync._protocols.retries import read_all
from distsync._protocols.steps import Exists, Loss

#: Items in a segment: fewer than in a queue without claims, for each get lists those that may be got.
SEGMENT = 100


class ItemHeader(NamedTuple):
    """What an item says about itself: how often it was delivered, and its key."""

    deliveries: int = 0
    key: str | None = None

    def before(self, payload: bytes) -> bytes:
        """The data of the item's znode."""
        return json.dumps(self).encode() + b"\n" + payload

    @classmethod
    def split(cls, data: bytes) -> tuple[ItemHeader, bytes]:
        """The label, and the item. What has no label was put by a client of another kind: all of it is the item."""
        line, end, payload = data.partition(b"\n")
        try:
            deliveries, key = json.loads(line)
        except (TypeError, ValueError, RecursionError):
            return cls(), data
        known = end and type(deliveries) is int and deliveries >= 0 and (key is None or isinstance(key, str))
        return (cls(deliveries, key), payload) if known else (cls(), data)


@dataclass(eq=False)
class ClaimedItem:
    """An item that a worker of this process has claimed. ``version`` is that of its znode since then: only who has it
    can write or delete the item."""

    path: str
    claim: str
    version: int
    label: ItemHeader
    payload: bytes
    loss: Loss = field(default_factory=Loss)
    session_id: int = 0


class ClaimQueueLayout(Segments):
    """Where the items of one queue are, who has them, and when the others may be got."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.claims = f"{path}/claims"
        self.delayed = f"{path}/delayed"
        self.keys = f"{path}/keys"
        self.clock = f"{path}/clock"

    @property
    def folders(self) -> tuple[str, ...]:
        return *super().folders, self.claims, self.delayed, self.keys, self.clock

    def claim(self, path: str) -> str:
        """The claim on the item at ``path``."""
        folder, name = path.split("/")[-2:]
        return f"{self.claims}/{folder}~{name}"

    def key(self, key: str) -> str:
        """The znode of a key, which may be any text."""
        return f"{self.keys}/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"

    def free(self, folder: str, names: Iterable[str], claims: set[str]) -> list[str]:
        """The paths of those of ``names`` that nobody has."""
        last = folder.rpartition("/")[2]
        return [f"{folder}/{name}" for name in names if f"{last}~{name}" not in claims]

    async def size(self) -> int:
        """How many items are there that nobody has, due or not."""
        *puts, dones, claims = await read_all(*self.put_counters, Exists(self.dones), Exists(self.claims))
        return max(0, self.backlog(*puts, dones) - claims.num_children) if claims else 0


def due_time(path: str) -> int:
    """From when on a delayed item may be got (ms, the servers' clock)."""
    return int(path.rpartition("/")[2].split("_")[1])


def by_due_time(names: Iterable[str]) -> list[str]:
    """Delayed items, the one that is due first first."""
    items = (name for name in names if name.startswith("d_") and name[2:17].isdigit())
    return sorted(items, key=lambda name: (name[:18], name[-10:]))
