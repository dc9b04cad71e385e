"""The znodes of a queue: counters, a state, and items in a chain of segments.

Source: recipes.txt, "Queues"; the segments are ours: a znode's child list must fit one reply of 1 MiB.

Rules for this file: pure; it knows where items are, and not in which order they are taken.

Picture: ``<path>/state``                                  version 0: open, above: shut down
         ``<path>/puts``, ``gets``, ``dones``              each one's version is a counter (wraps at 32 bits)
         ``<path>/hundreds``                               likewise, of puts of a hundred at once; made with the first
         ``<path>/items/<segment>/i_<key><guid>-<number>`` one item; the segment's version 0: open, 1: sealed
         ``<path>/getters/_c_<guid>-lock-<sequence>``      ephemeral, one a getter that waits
"""

from __future__ import annotations

from distsync._protocols.retries import INTERRUPTED, ensure, read, read_all
from distsync._protocols.steps import Children, Connected, Create, Delete, Exists, Multi, SetData, Stat
from distsync._protocols.wait_queue import parse, sequence_distance
from distsync.errors import BadVersionError, CorruptNodeError, NodeExistsError, NoNodeError, NotEmptyError

#: Items in a segment: 1,000 names of about 60 bytes are a reply of 60 kB, well under the limit of 1 MiB.
SEGMENT = 1000


#: Items that are put in one transaction are counted by so many at once: a write for each would double its length.
BULK = 100


#: More than a segment ever numbers: what is put back from a dropped one is numbered so much lower.
SEGMENT_NUMBERS = 1_000_000


def before_all(name: str) -> str:
    """The name of an item of a segment that is gone, in the next one: its number comes before any number there."""
    item = parse(name)
    assert item is not None
    printed = f"{item.number:010d}"
    return f"{name[: -len(printed)]}{item.number - SEGMENT_NUMBERS:010d}"


class Segments:
    """Where the items of one queue are; the state of one process."""

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
        """What no queue can be without: nobody knows what they said."""
        return self.state, self.puts, self.gets, self.dones

    @property
    def folders(self) -> tuple[str, ...]:
        """What is empty in an empty queue."""
        return (self.items,)

    async def make(self) -> None:
        """All znodes of an empty queue are there. One transaction, so that no first segment is made twice.

        Where somebody has deleted folders of the queue they are there again. Raises CorruptNodeError when he has
        deleted a counter."""
        nodes = *self.counters, *self.folders, self.segment(0)
        while True:
            await ensure(self.path)
            try:
                await Multi(tuple(Create(node) for node in nodes))
                return
            except NodeExistsError:
                if await self._is_whole():
                    return
            except NoNodeError:  # it was deleted meanwhile
                continue
            except INTERRUPTED:
                await Connected()

    async def _is_whole(self) -> bool:
        """Whether all is there, or is made again now. False: others make or delete it in this moment."""
        nodes = (*self.counters, *self.folders)
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
        """The segments, oldest first; there is always one."""
        while True:
            try:
                listing = await read(Children(self.items))
                if listing.names:
                    return [f"{self.items}/{name}" for name in sorted(listing.names)]
            except NoNodeError:
                pass
            await self.make()

    async def find_tail(self) -> str:
        """The segment that is put into, as far as we know."""
        if self.tail is None:
            self.tail = (await self.present())[-1]
        return self.tail

    async def seal_segment(self, segment: str) -> None:
        """No item comes into ``segment`` any more, and the next one is there: one transaction."""
        following = self.segment(int(segment.rpartition("/")[2]) + 1)
        try:
            await Multi((SetData(segment, b"", 0), Create(following)))
        except (BadVersionError, NodeExistsError, NoNodeError, *INTERRUPTED):
            pass  # somebody else has sealed it, or the next one to put will
        if self.tail == segment:
            self.tail = None

    async def ensure_next_segment(self, segment: str) -> None:
        """``segment``, which is sealed, has one after it, although somebody may have deleted that."""
        if (await self.present())[-1] == segment:
            await ensure(self.segment(int(segment.rpartition("/")[2]) + 1))

    async def drop_segment(self, segment: str) -> None:
        """A sealed segment that is empty goes."""
        try:
            await read(Delete(segment))
        except (NoNodeError, NotEmptyError):
            pass

    def counting(self, items: int) -> tuple[SetData, ...]:
        """What counts so many puts, in the transaction that puts them."""
        bulks, singles = divmod(items, self.batch_size)
        return (SetData(self.hundreds),) * bulks + (SetData(self.puts),) * singles

    @property
    def put_counters(self) -> tuple[Exists, Exists]:
        """The reads whose answers `backlog` understands."""
        return Exists(self.puts), Exists(self.hundreds)

    def backlog(self, *stats: Stat | None) -> int:
        """How many more were put than another counter says: the answers to `put_counters`, and to a look at that."""
        puts, hundreds, fewer = stats
        if puts is None or fewer is None:
            return 0
        return sequence_distance(puts.version + (self.batch_size * hundreds.version if hundreds else 0), fewer.version)

    async def size(self) -> int:
        """How many items are there."""
        return max(0, self.backlog(*await read_all(*self.put_counters, Exists(self.gets))))

    async def unfinished(self) -> int:
        """How many items were put and not done."""
        return max(0, self.backlog(*await read_all(*self.put_counters, Exists(self.dones))))

    async def repair(self, needs_batch_counter: bool) -> None:
        """What was not there for a put is there: all, or the counter that is made when it is first needed."""
        if None in await read_all(Exists(self.state), Exists(self.puts)):
            await self.make()
        if needs_batch_counter:
            await ensure(self.hundreds)
