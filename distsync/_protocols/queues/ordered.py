"""LifoQueue and PriorityQueue: the znodes of a queue with one segment, and another choice of the next
item.

Source: recipes.txt, "Priority Queues" (a current list of the children for each get); stdlib
``queue.LifoQueue`` and ``queue.PriorityQueue``.

If a number determines the order of an item, the item's name contains it, so that the item's data
need not be read: ``n<16 hex digits>`` for a number, ``t<16 hex digits>`` for a tuple or list that
begins with a number, ``o`` for anything else. All items of such a queue are children of one znode,
which limits it to some 10,000 (1 MiB of names). A FIFO queue has no such limit.

Items are compared in a Call step, because comparing runs user code. A put compares nothing, because it
would have to read the queue first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from distsync._protocols.queues.fifo import QueueCore, TakenItems
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import read, read_all
from distsync._protocols.steps import Call, Children, GetData, Node, SetData
from distsync._protocols.wait_queue import in_order
from distsync._signal_handlers import is_from_signal
from distsync.errors import NoNodeError

_KEY = re.compile(r"^i_([nt])([0-9a-f]{16})_")
#: Largest integer up to which all are exact as floats.
_EXACT = 2**53

#: Maximum number of items with which two are compared of which one is to be taken, because they cannot
#: be compared with each other.
SAMPLE = 100

#: Maximum number of items of missing classes that a process remembers.
MAX_UNREADABLE = 1000


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
            paths = await self._list_items(maxsize)
            chosen = await self.choose([path for path in paths if path not in self.taking] or paths)
            if chosen is not None or not paths:
                return chosen

    async def _list_items(self, maxsize: int) -> list[str]:
        """Return the paths of the items within the bound, in order of arrival."""
        segment = self.znodes.segment(0)
        while True:
            try:
                listing = await read(Children(segment))
            except NoNodeError:
                await self.znodes.make()
                continue
            names = [item.name for item in in_order(listing.names)]
            return [f"{segment}/{name}" for name in (names[:maxsize] if maxsize > 0 else names)]

    async def choose(self, paths: list[str]) -> str | None:
        """Return the next item of ``paths``, which are in order of arrival; None if all are gone."""
        return paths[-1] if paths else None

    async def _take(self, path: str, *extra_operations: SetData, taken: TakenItems | None = None) -> bytes | None:
        self.taking.add(path)
        try:
            return await super()._take(path, *extra_operations, taken=taken)
        finally:
            self.taking.discard(path)


class TakenItem(bytes):
    """The data of an item that was taken from a PriorityQueue.

    Attributes:
        path: Its place in the queue.
        error: The error of the comparison because of which it was taken; None if it was its turn.
    """

    path: str
    error: BaseException | None

    def __new__(cls, data: bytes, path: str, error: BaseException | None = None) -> TakenItem:
        made = super().__new__(cls, data)
        made.path, made.error = path, error
        return made


class Choice(NamedTuple):
    """The item to take next, and the error of its comparison if it is not its turn."""

    path: str | None = None
    error: BaseException | None = None


class PriorityCore(OrderedCore):
    """The least item comes first; of equal items, the one that was put first.

    If two items cannot be compared, one of them is taken, with the error, so that it stops no other
    item. An item whose class cannot be imported here is left to other processes.
    """

    def __init__(self, path: str, receipts: Receipts, decode: Callable[[str, bytes], Any]) -> None:
        super().__init__(path, receipts)
        self.decode = decode
        #: Decoded items, as of the last choice. Replaced as a whole, because several threads may
        #: choose at once.
        self.items: dict[str, Any] = {}
        #: Items that this process ignores, because it cannot import their classes. An item that is being
        #: returned to the queue is not listed, so those that are not listed are not forgotten.
        self.unreadable: dict[str, None] = {}
        #: Errors of the comparison of items that are being taken because of them.
        self.errors: dict[str, BaseException] = {}

    async def _list_items(self, maxsize: int) -> list[str]:
        return [path for path in await super()._list_items(maxsize) if path not in self.unreadable]

    def find_item(self, segment: str, names: Sequence[str], maxsize: int) -> str | None:
        if not self.unreadable:
            return super().find_item(segment, names, maxsize)
        order = [item.name for item in in_order(names)]
        paths = (f"{segment}/{name}" for name in (order[:maxsize] if maxsize > 0 else order))
        return next((path for path in paths if path not in self.unreadable), None)

    async def next_to_discard(self, maxsize: int) -> str | None:
        paths = await super()._list_items(maxsize)
        return paths[0] if paths else None

    async def choose(self, paths: list[str]) -> str | None:
        group = least_group(paths)
        if len(group) < 2:
            return group[0] if group else None
        items = {path: self.items[path] for path in group if path in self.items}
        unknown = [path for path in group if path not in items]
        nodes = await read_all(*map(GetData, unknown)) if unknown else ()
        found = {path: node.data for path, node in zip(unknown, nodes, strict=True) if isinstance(node, Node)}
        choice: Choice = await Call(lambda: self._least(group, found, items))
        self.items = items
        if choice.path is not None and choice.error is not None:
            self.errors[choice.path] = choice.error
        return choice.path

    def _least(self, group: list[str], found: dict[str, bytes], items: dict[str, Any]) -> Choice:
        """Choose the least item of ``group``, or one that cannot be read or compared.

        Adds the decoded items of ``found`` to ``items``.
        """
        for path, data in found.items():
            try:
                items[path] = self.decode(path, data)
            except BaseException as error:  # an item can call sys.exit() when it is unpickled
                if is_from_signal(error):
                    raise
                return Choice(path)
        present = [path for path in group if path in items]
        if not present:
            return Choice()
        least = present[0]
        for path in present[1:]:
            is_least, reason = is_less(items[path], items[least])
            if reason is not None:
                others = [items[other] for other in present[:SAMPLE] if other not in (path, least)]
                is_odd = comparable(items[least], others) < comparable(items[path], others)
                return Choice(least if is_odd else path, reason)
            if is_least:
                least = path
        return Choice(least)

    async def _take(self, path: str, *extra_operations: SetData, taken: TakenItems | None = None) -> bytes | None:
        try:
            data = await super()._take(path, *extra_operations, taken=taken)
        except BaseException:
            self.errors.pop(path, None)
            raise
        error = self.errors.pop(path, None)
        return None if data is None else TakenItem(data, path, error)

    async def return_unreadable(self, item: TakenItem) -> None:
        """Return an item whose class cannot be imported here to its place, for other processes."""
        self.unreadable[item.path] = None
        if len(self.unreadable) > MAX_UNREADABLE:
            del self.unreadable[next(iter(self.unreadable))]
        self.taken_not_done = max(0, self.taken_not_done - 1)
        await self._restore(item.path, bytes(item))


def is_less(item: Any, other: Any) -> tuple[bool, BaseException | None]:
    """Return whether ``item`` is less than ``other``, and the error of the comparison."""
    try:
        return bool(item < other), None
    except BaseException as error:  # an item's __lt__ can raise anything, and call sys.exit()
        if is_from_signal(error):
            raise
        return False, error


def comparable(item: Any, others: Sequence[Any]) -> int:
    """Return how many of ``others`` the item can be compared with."""
    return sum(is_less(item, other)[1] is None for other in others)


def is_class_missing(error: BaseException) -> bool:
    """Return whether an item could not be decoded because its class cannot be imported in this process."""
    cause = error.__cause__
    return isinstance(cause, ImportError) or (
        isinstance(cause, AttributeError)
        and (isinstance(cause.obj, ModuleType) or str(cause).startswith("Can't get attribute "))
    )


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
