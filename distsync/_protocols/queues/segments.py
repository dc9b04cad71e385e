"""Znodes of a queue: counters, a state, and a chain of segments that contain the items.

Source: recipes.txt, "Queues". The segments are ours: a list of children must fit into a reply of 1
MiB.

Znodes:
  ``<path>/state``                                  version 0 if open, greater if shut down
  ``<path>/puts``, ``gets``, ``dones``              the version is a counter that wraps at 32 bits
  ``<path>/hundreds``                               counts puts of 100 items; created with the first
  ``<path>/items/<segment>/i_<key><guid>-<number>`` an item; the segment's version is 1 if sealed
  ``<path>/getters/_c_<guid>-lock-<sequence>``      ephemeral znode of a waiting getter
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distsync._protocols.retries import INTERRUPTED, ensure, read, read_all
from distsync._protocols.steps import Children, Connected, Create, Delete, Exists, Multi, SetData, Stat
from distsync._protocols.wait_queue import parse, sequence_distance
from distsync.errors import BadVersionError, CorruptNodeError, NodeExistsError, NoNodeError, NotEmptyError

#: Items in a segment: 1,000 names of about 60 bytes are a reply of 60 kB, far below 1 MiB.
SEGMENT = 1000


#: Number of puts counted by one write to ``hundreds``. A write for each item would double the size
#: of a transaction.
BULK = 100


#: Offset of the number of a restored item whose segment was deleted: larger than any number in a
#: segment.
SEGMENT_NUMBERS = 1_000_000


def before_all(name: str) -> str:
    """Return the name, in the next segment, of an item whose segment was deleted. Its number precedes
    all others.
    """
    item = parse(name)
    assert item is not None
    printed = f"{item.number:010d}"
    return f"{name[: -len(printed)]}{item.number - SEGMENT_NUMBERS:010d}"


class Segments:
    """Location of the items of one queue, as known to one process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.state = f"{path}/state"
        self.puts = f"{path}/puts"
        self.hundreds = f"{path}/hundreds"
        self.batch_size = BULK
        self.gets = f"{path}/gets"
        self.dones = f"{path}/dones"
        self.items = f"{path}/items"
        self.tail: str | None = None

    @property
    def counters(self) -> tuple[str, ...]:
        """Znodes whose contents cannot be recreated."""
        return self.state, self.puts, self.gets, self.dones

    @property
    def parents(self) -> tuple[str, ...]:
        """Znodes that are empty in an empty queue."""
        return (self.items,)

    async def make(self) -> None:
        """Create all znodes of an empty queue, in one transaction, so that no first segment is created
        twice.

        Parents that were deleted are created again. Raises CorruptNodeError if a counter was
        deleted.
        """
        nodes = *self.counters, *self.parents, self.segment(0)
        while True:
            await ensure(self.path)
            try:
                await Multi(tuple(Create(node) for node in nodes))
                return
            except NodeExistsError:
                if await self._is_whole():
                    return
            except NoNodeError:  # the queue was deleted since
                continue
            except INTERRUPTED:
                await Connected()

    async def _is_whole(self) -> bool:
        """Create missing parents again. Return False if other clients are creating or deleting the
        queue.
        """
        nodes = (*self.counters, *self.parents)
        found = dict(zip(nodes, await read_all(*map(Exists, nodes)), strict=True))
        missing = [path for path in nodes if found[path] is None]
        gone = [path for path in missing if path in self.counters]
        if 0 < len(gone) < len(self.counters):
            raise CorruptNodeError(gone[0], b"")
        if found[self.items] is None or found[self.items].num_children == 0:
            missing.append(self.segment(0))
        try:
            if missing:
                await Multi(tuple(Create(path) for path in missing))
            return True
        except (NodeExistsError, NoNodeError):
            return False
        except INTERRUPTED:
            await Connected()
            return False

    def segment(self, number: int) -> str:
        return f"{self.items}/{number:010d}"

    async def present(self) -> list[str]:
        """Return the paths of the segments, oldest first; there is always one."""
        while True:
            try:
                listing = await read(Children(self.items))
                if listing.names:
                    return [f"{self.items}/{name}" for name in sorted(listing.names)]
            except NoNodeError:
                pass
            await self.make()

    async def find_tail(self) -> str:
        """Return the path of the segment for new items, as far as known."""
        if self.tail is None:
            self.tail = (await self.present())[-1]
        return self.tail

    def following(self, segment: str) -> str:
        """Return the path of the segment after ``segment``."""
        return self.segment(int(segment.rpartition("/")[2]) + 1)

    def sealing(self, segment: str) -> tuple[SetData, Create]:
        """Return the operations that seal ``segment``, if it is not sealed, and create the next one."""
        return SetData(segment, b"", 0), Create(self.following(segment))

    async def seal_segment(self, segment: str) -> None:
        """Seal ``segment`` and create the next one, in one transaction."""
        tail = None
        try:
            await Multi(self.sealing(segment))
            tail = self.following(segment)
        except (BadVersionError, NodeExistsError, NoNodeError, *INTERRUPTED):
            pass  # sealed by another client, or to be sealed by the next put
        if self.tail == segment:
            self.tail = tail

    async def ensure_next_segment(self, segment: str) -> None:
        """Create the segment after the sealed ``segment`` if it was deleted."""
        if (await self.present())[-1] == segment:
            await ensure(self.following(segment))

    async def drop_segment(self, segment: str) -> None:
        """Delete a sealed segment if it is empty."""
        try:
            await read(Delete(segment))
        except (NoNodeError, NotEmptyError):
            pass

    def counting(self, items: int) -> tuple[SetData, ...]:
        """Return the operations that count ``items`` puts."""
        bulks, singles = divmod(items, self.batch_size)
        return (SetData(self.hundreds),) * bulks + (SetData(self.puts),) * singles

    @property
    def put_counters(self) -> tuple[Exists, Exists]:
        """Reads whose answers `backlog` takes."""
        return Exists(self.puts), Exists(self.hundreds)

    def backlog(self, *stats: Stat | None) -> int:
        """Return the number of puts minus another counter.

        Takes the answers to `put_counters`, and to Exists of the other counter.
        """
        puts, hundreds, fewer = stats
        if puts is None or fewer is None:
            return 0
        return sequence_distance(puts.version + (self.batch_size * hundreds.version if hundreds else 0), fewer.version)

    async def size(self) -> int:
        """Return the number of items."""
        return max(0, self.backlog(*await read_all(*self.put_counters, Exists(self.gets))))

    async def unfinished(self) -> int:
        """Return the number of items that were put and are not done."""
        return max(0, self.backlog(*await read_all(*self.put_counters, Exists(self.dones))))

    async def repair(self, needs_batch_counter: bool) -> None:
        """Create what a put has not found: all znodes, or the counter that the first large batch
        creates.
        """
        if None in await read_all(Exists(self.state), Exists(self.puts)):
            await self.make()
        if needs_batch_counter:
            await ensure(self.hundreds)


#: Maximum number of items in a transaction: more save little, and delay the requests of others.
BATCH = 100
#: Maximum bytes of items in a transaction: a request larger than 1 MiB is refused (jute.maxbuffer).
BATCH_BYTES = 900_000
#: Bytes that an item needs in addition to its data: path, GUID, counter.
ITEM_BYTES = 400


def batches(
    items: Sequence[tuple[str, bytes]], path_bytes: int, max_items: int = BATCH
) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Split items, pairs of key and data, into transactions, in order."""
    batch: list[tuple[str, bytes]] = []
    size = 0
    for item in items:
        more = len(item[1]) + ITEM_BYTES + 2 * path_bytes
        if batch and (len(batch) >= max_items or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch
