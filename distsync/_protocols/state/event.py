"""Event: a flag whose znode's version increases with every change, so that no set is missed.

Source: recipes.txt, "Barriers" (a watch on one znode); stdlib ``threading.Event``.

``clear`` changes the znode only if the flag is set, and ``set`` always does. So a waiter that saw
the flag unset at version v, and sees it unset at a later version, knows that it was set in between.
A wakeup is a hint; flag and version decide.

Znodes:
  ``<path>``  data: ``1`` if set, otherwise ``0``
"""

from __future__ import annotations

from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import ensure, read, read_all
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Exists, GetData, Node, SetData, Signal, Sync, Wait, WakeReason, Watch
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import BadVersionError, DeadlineError, NoNodeError

SET = b"1"
UNSET = b"0"


class EventCore:
    """In-process state of an event, shared by all its threads."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.flag: WatchCache[bool] = WatchCache(path, self._read_state)
        #: Changes requested without waiting that are not done yet, and the signal that fires when
        #: the last of them is done.
        self.pending_changes: list[bool] = []
        self.changes_done: Signal | None = None

    @property
    def idle(self) -> bool:
        """Whether there is no listener, and no change in the background."""
        return self.flag.idle and self.changes_done is None

    async def _read_state(self, watch: Watch) -> bool:
        while True:
            try:
                return (await read(GetData(self.path, watch))).data == SET
            except NoNodeError:
                if await read(Exists(self.path, watch)) is None:
                    return False

    async def is_set(self) -> bool:
        """Return whether the flag is set, from the watched copy or by a read."""
        return await self.flag.get()

    async def set(self) -> None:
        """Set the flag and wake all waiters."""
        try:
            while True:
                try:
                    await self.receipts.commit(SetData(self.path, SET))
                    return
                except NoNodeError:
                    await ensure(self.path, UNSET)
        finally:
            self.flag.forget()

    async def change_in_background(self, flag: bool) -> None:
        """Set or clear the flag after all earlier background changes: for callers that do not wait."""
        before, mine = self.changes_done, Signal()
        try:
            self.changes_done = mine
            self.pending_changes.append(flag)
            if before is not None:
                await Wait(before)
            await (self.set() if flag else self.clear())
        finally:
            del self.pending_changes[0]
            mine.fire()
            self.changes_done = None if self.changes_done is mine else self.changes_done

    async def wait_after_background_changes(self) -> bool:
        """Wait as `wait` does, after all earlier background changes."""
        if self.changes_done is not None:
            await Wait(self.changes_done)
        return await self.wait()

    async def clear(self) -> None:
        """Clear the flag."""
        try:
            await self._clear()
        finally:
            self.flag.forget()

    async def _clear(self) -> None:
        while True:
            node = await self._read()
            if node.data != SET:  # according to our server, which may lag behind
                _, node = await read_all(Sync(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or node.data != SET:
                return
            try:
                await self.receipts.commit(SetData(self.path, UNSET, node.stat.version))
                return
            except BadVersionError:
                continue

    async def _read(self, watch: Watch | None = None) -> Node:
        while True:
            try:
                return await read(GetData(self.path, watch))
            except NoNodeError:
                await ensure(self.path, UNSET)

    async def wait(self) -> bool:
        """Wait until the flag is set, or was set since the call began. Return False at the deadline."""
        first: tuple[int, int] | None = None
        try:
            while True:
                watch = Watch()
                node = await self._read(watch)
                state = (node.stat.czxid, node.stat.version)
                first = first or state
                if node.data == SET or (state[0] == first[0] and state > first):
                    return True
                if await Wait(watch) is WakeReason.DEADLINE:
                    return False
        except DeadlineError as error:
            raise_if_from_handler(error)
            return False
