"""Znodes of a queue with claims.

Source: recipes.txt, "Queues"; claims, delays and keys are ours.

Znodes, in addition to those of segments.py:
  ``<path>/claims/<parent>~<item>``           ephemeral znode of the worker that has claimed the item
  ``<path>/delayed/d_<due>_<guid>-<number>``  an item available from ``due`` on (ms, server time)
  ``<path>/keys/<hash>``                      the key of an unfinished item
  ``<path>/clock``                            written to read the servers' time
  ``<path>/dead/...``                         a queue of its own: items that were delivered too often

The data of an item begins with an ItemHeader, a line of JSON.
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
from distsync._signal_handlers import raise_if_from_handler

#: Items in a segment: fewer than in a queue without claims, because each get lists one.
SEGMENT = 100


class ItemHeader(NamedTuple):
    """Number of deliveries of an item, and its key."""

    deliveries: int = 0
    key: str | None = None

    def before(self, payload: bytes) -> bytes:
        """Return the data of the item's znode."""
        return json.dumps(self).encode() + b"\n" + payload

    @classmethod
    def split(cls, data: bytes) -> tuple[ItemHeader, bytes]:
        """Split a znode's data into header and payload. Data without a header, from another client, is
        all payload.
        """
        line, end, payload = data.partition(b"\n")
        try:
            deliveries, key = json.loads(line)
        except (TypeError, ValueError, RecursionError) as error:
            raise_if_from_handler(error)
            return cls(), data
        known = end and type(deliveries) is int and deliveries >= 0 and (key is None or isinstance(key, str))
        return (cls(deliveries, key), payload) if known else (cls(), data)


@dataclass(eq=False)
class ClaimedItem:
    """An item that a worker of this process has claimed.

    ``version`` is the version of its znode since the claim: only its owner can write or delete the
    item.
    """

    path: str
    claim: str
    version: int
    label: ItemHeader
    payload: bytes
    loss: Loss = field(default_factory=Loss)
    session_id: int = 0


class ClaimQueueLayout(Segments):
    """Location of the items of one queue, their claims, and the times at which delayed items become
    available.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.claims = f"{path}/claims"
        self.delayed = f"{path}/delayed"
        self.keys = f"{path}/keys"
        self.clock = f"{path}/clock"

    @property
    def parents(self) -> tuple[str, ...]:
        return *super().parents, self.claims, self.delayed, self.keys, self.clock

    def claim(self, path: str) -> str:
        """Return the path of the claim on the item at ``path``."""
        parent, name = path.split("/")[-2:]
        return f"{self.claims}/{parent}~{name}"

    def key(self, key: str) -> str:
        """Return the path of the znode of a key, which may be any text."""
        return f"{self.keys}/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"

    def free(self, parent: str, names: Iterable[str], claims: set[str]) -> list[str]:
        """Return the paths of the unclaimed items of ``names``."""
        parent_name = parent.rpartition("/")[2]
        return [f"{parent}/{name}" for name in names if f"{parent_name}~{name}" not in claims]

    async def size(self) -> int:
        """Return the number of unclaimed items, delayed ones included."""
        *puts, dones, claims = await read_all(*self.put_counters, Exists(self.dones), Exists(self.claims))
        return max(0, self.backlog(*puts, dones) - claims.num_children) if claims else 0


def due_time(path: str) -> int:
    """Return the time from which a delayed item is available (ms, server time)."""
    return int(path.rpartition("/")[2].split("_")[1])


def by_due_time(names: Iterable[str]) -> list[str]:
    """Sort delayed items by the time at which they become available."""
    items = (name for name in names if name.startswith("d_") and name[2:17].isdigit())
    return sorted(items, key=lambda name: (name[:18], name[-10:]))
