"""LifoQueue and PriorityQueue: the znodes of a queue with one segment, and another choice of the next
item.

Source: recipes.txt, "Priority Queues" (a current list of the children for each get); stdlib
``queue.LifoQueue`` and ``queue.PriorityQueue``.

If a number determines the order of an item, the item's name contains it, so that the item's data
need not be read: ``n<16 hex digits>`` for a number, ``t<16 hex digits>`` for a tuple or list that
begins with a number, ``o`` for anything else. All items of such a queue are children of one znode,
which limits it to some 10,000 (1 MiB of names). A FIFO queue has no such limit.

Items are compared in a Call step, because comparing runs user code.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from distsync._protocols.queues.fifo import QueueCore
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import read, read_all
from distsync._protocols.steps import Call, Children, GetData, Node, SetData
from distsync._protocols.wait_queue import in_order
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import NoNodeError, PayloadRefusedError

_KEY = re.compile(r"^i_([nt])([0-9a-f]{16})_")
#: Largest integer up to which all are exact as floats.
_EXACT = 2**53


def number_key(number: float) -> str:
    """Return 16 hex digits that sort like the numbers: the bits of an IEEE double with the sign
    adjusted.
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))
    return f"{bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63:016x}"


def key_of(item: object) -> str:
    """Return the key that the name of ``item`` contains."""
    kind, first = ("t", item[0]) if type(item) in (tuple, list) and item else ("n", item)  # type: ignore[index]
    if type(first) is int and abs(first) <= _EXACT or type(first) is float and first == first:
        return f"{kind}{number_key(first)}_"
    return "o_"


class OrderedCore(QueueCore):
    """A queue with one segment, which is listed for each get."""

    segmented = False

    def __init__(self, path: str, receipts: Receipts) -> None:
        super().__init__(path, receipts)
        self.taking: set[str] = set()

    async def next_path(self, maxsize: int) -> str | None:
        while True:
            segment = self.znodes.segment(0)
            try:
                listing = await read(Children(segment))
            except NoNodeError:
                await self.znodes.make()
                continue
            names = [item.name for item in in_order(listing.names)]
            inside = names[:maxsize] if maxsize > 0 else names
            free = [f"{segment}/{name}" for name in inside if f"{segment}/{name}" not in self.taking]
            chosen = await self.choose(free or [f"{segment}/{name}" for name in inside])
            if chosen is not None or not names:
                return chosen

    async def choose(self, paths: list[str]) -> str | None:
        """Return the next item of ``paths``, which are in order of arrival; None if all are gone."""
        return paths[-1] if paths else None

    async def _take(self, path: str, *extra_operations: SetData) -> bytes | None:
        self.taking.add(path)
        try:
            return await super()._take(path, *extra_operations)
        finally:
            self.taking.discard(path)


class PriorityCore(OrderedCore):
    """The least item comes first; of equal items, the one that was put first."""

    def __init__(self, path: str, receipts: Receipts, decode: Callable[[str, bytes], Any]) -> None:
        super().__init__(path, receipts)
        self.decode = decode
        #: Decoded items, as of the last choice. Replaced as a whole, because several threads may
        #: choose at once.
        self.items: dict[str, Any] = {}

    async def choose(self, paths: list[str]) -> str | None:
        group = least_group(paths)
        if len(group) < 2:
            return group[0] if group else None
        items = {path: self.items[path] for path in group if path in self.items}
        unknown = [path for path in group if path not in items]
        nodes = await read_all(*map(GetData, unknown)) if unknown else ()
        found = {path: node.data for path, node in zip(unknown, nodes, strict=True) if isinstance(node, Node)}
        chosen: str | None = await Call(lambda: self._least(group, found, items))
        self.items = items
        return chosen

    def _least(self, group: list[str], found: dict[str, bytes], items: dict[str, Any]) -> str | None:
        """Return the path of the least item of ``group``. Adds the decoded items of ``found`` to
        ``items``.
        """
        for path, data in found.items():
            try:
                items[path] = self.decode(path, data)
            except (PayloadRefusedError, SystemExit) as error:  # an item can call sys.exit() when it is unpickled
                raise_if_from_handler(error)
                return path
        present = [path for path in group if path in items]
        return min(present, key=items.__getitem__) if present else None


def least_group(paths: list[str]) -> list[str]:
    """Return the items that may be the least: by the numbers in their names if these decide, otherwise
    all.
    """
    keys = [_KEY.match(path.rpartition("/")[2]) for path in paths]
    if not all(keys) or len({key[1] for key in keys if key}) > 1:
        return paths
    least = min((key[2] for key in keys if key), default="")
    group = [path for path, key in zip(paths, keys, strict=True) if key and key[2] == least]
    return group[:1] if group and _KEY.match(group[0].rpartition("/")[2])[1] == "n" else group  # type: ignore[index]
