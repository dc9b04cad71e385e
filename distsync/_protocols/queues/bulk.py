"""Puts and gets of several items: each batch is one transaction, performed as a whole or not at all.

Source: recipes.txt, "Queues".
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from distsync._protocols.queues.blocking_get import take
from distsync._protocols.queues.fifo import QueueCore, TakenItems
from distsync._protocols.queues.segments import BATCH, batches
from distsync._protocols.retries import read, read_all
from distsync._protocols.steps import Delete, GetData, Guid, MultiRead, Node, SetData, Watch
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError, Full, NoNodeError, RequestError

#: Maximum expected bytes of a reply with several items, because ZooKeeper builds the reply in
#: memory.
MAX_REPLY_BYTES = 1 << 20

#: Transactions that a feeder sends ahead: enough for the server to have the next one when one is
#: done.
PIPELINE_DEPTH = 8


class Progress:
    """The number of items that are known to be put."""

    def __init__(self) -> None:
        self.put = 0


async def put_many(
    core: QueueCore, items: Sequence[tuple[str, bytes]], blocking: bool, progress: Progress, maxsize: int = 0
) -> None:
    """Put all items, pairs of key and data; in a bounded queue one by one.

    Raises Full and ShutDown; ``progress`` then has the number of items put.
    """
    if maxsize > 0:
        for key, data in items:
            await core.put(data, blocking, key, maxsize)
            progress.put += 1
        return
    for batch in batches(items, len(core.znodes.path.encode())):
        guid = await Guid()  # their sequence numbers distinguish the items
        named = [(f"i_{key}{guid}-", data) for key, data in batch]
        try:
            await core.append(named)
        except DeadlineError as error:
            raise_if_from_handler(error)
            raise Full from None
        progress.put += len(batch)


async def feed(core: QueueCore, items: Sequence[bytes], progress: Progress, max_items: int = BATCH) -> None:
    """Put items into an unbounded queue with several transactions outstanding, for a caller that is
    never interrupted.

    No transaction is performed unless all before it are.
    """
    named: list[list[tuple[str, bytes]]] = []
    for batch in batches([("", data) for data in items], len(core.znodes.path.encode()), max_items):
        guid = await Guid()
        named.append([(f"i_{guid}-", data) for _, data in batch])
    while named:
        done = await _put_ahead(core, named[:PIPELINE_DEPTH]) if len(named) > 1 else 0
        if not done:
            await core.append(named[0])
            done = 1
        progress.put += sum(map(len, named[:done]))
        del named[:done]


async def _put_ahead(core: QueueCore, group: Sequence[Sequence[tuple[str, bytes]]]) -> int:
    """Put the first of these batches. Return how many; the next one has to be appended separately."""
    segment = await core.znodes.find_tail()
    outcomes = await core.receipts.commit_ahead([core.put_operations(segment, batch) for batch in group])
    for outcome, batch in zip(outcomes, group, strict=False):
        await core.seal_if_full(segment, outcome, len(batch))
    if len(outcomes) < len(group):
        core.znodes.tail = None
    return len(outcomes)


class BatchGet:
    """A source that takes several items of a queue at once."""

    poll_interval: float | None = None

    def __init__(self, core: QueueCore, max_items: int, maxsize: int, taken: TakenItems | None) -> None:
        self.core = core
        self.taken = taken
        self.max_items = min(max_items, BATCH)
        self.maxsize = maxsize

    async def try_take(self) -> list[bytes] | None:
        """Take the next items that are available; return None if there are none."""
        core, most = self.core, self.max_items
        if not core.segmented:  # each item is chosen separately
            data = await core.try_take(self.maxsize, self.taken)
            return None if data is None else [data]
        while True:
            path = await core.next_path_or_shutdown(self.maxsize)
            if path is None:
                return None
            paths = [path]
            while core.names and len(paths) < most:
                paths.append(f"{core.head}/{core.names.popleft()}")
            got = await take_batch(core, paths, self.taken)
            if got:
                core.taken_not_done += len(got)
                return got
            most = max(1, most // 2)  # contention: try fewer at once

    def set_watch(self, watch: Watch) -> Awaitable[bool]:
        return self.core.set_watch(watch, self.maxsize)

    def watch_arrivals(self, watch: Watch) -> Awaitable[str | None]:
        return self.core.watch_arrivals(watch, self.maxsize)


async def get_many(
    core: QueueCore,
    max_items: int,
    contender_data: bytes,
    blocking: bool,
    maxsize: int = 0,
    taken: TakenItems | None = None,
) -> list[bytes] | None:
    """Take 1 to ``max_items`` items in one transaction; returns None, and adds to ``taken``, as QueueCore.get does."""
    return await take(BatchGet(core, max_items, maxsize, taken), core.turns, core.getters, contender_data, blocking)


async def take_batch(core: QueueCore, paths: list[str], taken: TakenItems | None) -> list[bytes]:
    """Remove the items and return their data; return an empty list if another process has taken any of
    them.
    """
    is_known = False
    items: dict[str, bytes] = {}
    try:
        unknown = [path for path in paths if path not in core.prefetched]
        nodes = dict(zip(unknown, await read_items(core, unknown), strict=True)) if unknown else {}
        found = {path: core.prefetched.pop(path, None) for path in paths}
        found.update({path: node.data for path, node in nodes.items() if isinstance(node, Node)})
        items = {path: data for path, data in found.items() if data is not None}
        if not items:
            return []
        counted, pairs = (SetData(core.znodes.gets),) * len(items), list(items.items())
        back = partial(core.restore, pairs)
        outcome = await core.receipts.commit(
            *map(Delete, items), *counted, on_unknown_outcome=back, unsettled=core.unsettled
        )
        if taken is not None:
            taken += pairs
        is_known = True
        core.gets_version = outcome.results[-1].version if outcome.results else core.gets_version
        return list(items.values())
    except NoNodeError as error:
        if getattr(error, "index", -1) >= len(items):  # a counter is missing, not an item
            await core.znodes.make()
        return []
    finally:
        if not is_known:
            core.names.clear()


async def read_items(core: QueueCore, paths: Sequence[str]) -> Sequence[Any]:
    """Return the items' nodes, with NoNodeError in place of a deleted one.

    Reads all with one request if, judging by the last batch, the reply is at most MAX_REPLY_BYTES;
    otherwise each with its own.
    """
    nodes: Sequence[Any] = ()
    if (
        core.may_use_multi_read
        and core.largest is not None
        and 1 < len(paths) <= MAX_REPLY_BYTES // max(1, core.largest)
    ):
        try:
            each: tuple[Any, ...] = await read(MultiRead(tuple(paths)))
            nodes = each
        # the server does not support the request and closes the connection: do not send it again
        except RequestError:
            core.may_use_multi_read = False
    if not nodes or not all(isinstance(node, (Node, NoNodeError)) for node in nodes):
        nodes = await read_all(*map(GetData, paths))
    core.largest = max((len(node.data) for node in nodes if isinstance(node, Node)), default=None)
    return nodes
