"""Registry: a name is a znode, its data says where to find what is called so.

Source: recipes.txt, "Out of the Box Applications: Name Service ...".

Rules for this file: pure; an entry is bytes here, and a name is one part of a path.

A persistent entry is a plain znode. One that lives as long as who registered it is ephemeral, and returns with his next
session (persistent_ephemeral.py) unless somebody has taken the name meanwhile. A name is taken over in one transaction:
there is no moment without it.

Picture: ``<path>/<name>``  ephemeral or persistent, data = JSON: address, metadata, who registered it
"""

from __future__ import annotations

from distsync._protocols.receipts import CommitOutcome, Operation, Receipts
from distsync._protocols.retries import ensure, read, read_all
from distsync._protocols.state.persistent_ephemeral import Presence
from distsync._protocols.state.watch_cache import WatchCache, names_below
from distsync._protocols.steps import (
    Background,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Node,
    Signal,
    Stat,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import BadVersionError, DeadlineError, DistsyncError, NodeExistsError, NoNodeError

Entries = dict[str, Node]
"""By name."""


class OwnedEntry(Presence):
    """An entry of ours that lives as long as we do."""

    async def _meet(self, stat: Stat) -> None:
        """While our session was lost somebody else has registered the name: it is his."""
        if self.owns(stat):
            await super()._meet(stat)
        else:
            self.withdraw()
            self.session_id = 0

    def owns(self, stat: Stat) -> bool:
        """Whether the znode is that of a session in which we made it, or may have; a persistent one is of none."""
        return stat.ephemeral_owner != 0 and stat.ephemeral_owner in (self.session_id, *self.asked_in)

    async def keep_what_is(self, was_there: bool) -> None:
        """As maintain, after a change that was interrupted and may have happened."""
        self._making = making = Signal()
        try:
            _, node = await read_all(Sync(self.path), GetData(self.path))
            session_id = (await Connected()).session_id
            if isinstance(node, Node) and node.stat.ephemeral_owner == session_id:
                self.data, self.session_id = node.data, session_id
            elif not was_there:
                self.withdraw()
        except DistsyncError:  # it cannot be read, say
            if not was_there:
                self.withdraw()
        finally:
            self._making = None
            making.fire()
        await self.maintain()


class RegistryCore:
    """What the threads of one process know together about one registry."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.view: WatchCache[Entries] = WatchCache(path, self._read_state)
        self.kept: dict[str, OwnedEntry] = {}
        self._known: dict[str, tuple[Node, Watch]] = {}
        self._busy: dict[str, Signal] = {}

    @property
    def idle(self) -> bool:
        """Nothing here is ours, and nobody asked to be told."""
        return self.view.idle and not self.mine

    @property
    def mine(self) -> list[str]:
        """The names that live as long as we do. Also a thread that drives no protocol asks, so this changes nothing."""
        return [name for name, kept in self.kept.copy().items() if kept.wanted]

    async def _read_state(self, watch: Watch) -> Entries:
        """Each entry has a watch of its own, and is read again only when that has fired."""
        names = await names_below(self.path, watch)
        known = {name: each for name, each in self._known.items() if name in names and not each[1].fired}
        reads = {name: GetData(f"{self.path}/{name}", self._watch()) for name in names if name not in known}
        nodes = await read_all(*reads.values()) if reads else ()
        for request, (name, node) in zip(reads.values(), zip(reads, nodes, strict=True), strict=True):
            if isinstance(node, Node) and request.watch is not None:
                known[name] = node, request.watch
        self._known = {name: each for name, each in known.items() if not (watch.fired and name in reads)}
        return {name: node for name, (node, _) in known.items()}

    async def look_up(self, name: str) -> Node | None:
        """The entry as a quorum of the ensemble knows it; None: there is none. What is watched is looked at again where
        it is another one: no event comes of a change that is made while we may not read."""
        _, answer = await read_all(Sync(self.path), GetData(f"{self.path}/{name}"))
        found = answer if isinstance(answer, Node) else None
        known, _ = self._known.get(name, (None, None))
        if found != known:
            self._forget(name)
        return found

    def _forget(self, name: str) -> None:
        """We have written: what we know, and what a look that is under way will say, is old."""
        if name in self._known:
            self._known[name][1].fire()
        self.view.forget()

    def _watch(self) -> Watch:
        watch = Watch()
        watch.subscribe(self.view.forget)
        return watch

    async def put(self, name: str, data: bytes, persistent: bool, replaces: bool = True) -> bool:
        """The name leads to ``data``. False: it is somebody else's, and nothing was done."""
        before = await self._begin(name)
        try:
            outcome = await self._write(name, data, persistent, before, replaces)
            if outcome is not None and not persistent:
                await Background(self._kept(name, data, outcome.session_id).maintain())
            return outcome is not None
        except BaseException:
            await self._find_out(name, data, before)
            raise
        finally:
            self._end(name)

    async def _write(
        self, name: str, data: bytes, persistent: bool, before: OwnedEntry | None, replaces: bool
    ) -> CommitOutcome | None:
        path = f"{self.path}/{name}"
        create = Create(path, data, ephemeral=not persistent, after=True)
        operations: list[Operation] = [create]
        while True:
            try:
                return await self.receipts.commit(*operations, reads=(Exists(path),))
            except NodeExistsError:
                stat = await read(Exists(path))
                if stat is not None and not replaces and not (before and before.owns(stat)):
                    return None
                operations = [create] if stat is None else [Delete(path, stat.version), create]
            except BadVersionError:
                operations = [create]
            except NoNodeError:
                operations = [create]
                await ensure(self.path, container=not persistent)

    async def remove(self, name: str) -> bool:
        """Nobody is called so, whoever had registered it. False: nobody was."""
        before = await self._begin(name)
        try:
            await self.receipts.commit(Delete(f"{self.path}/{name}"))
            return True
        except NoNodeError:
            return False
        except BaseException:
            if before is not None:
                await self._find_out(name, before.data, before)
            raise
        finally:
            self._end(name)

    async def _begin(self, name: str) -> OwnedEntry | None:
        """The threads of a process change a name one after the other. Our entry of this name, if there is one, does
        not come back any more."""
        while (busy := self._busy.get(name)) is not None:
            if await Wait(busy) is WakeReason.DEADLINE:
                raise DeadlineError(f"another change of {self.path}/{name}")
        self._busy[name] = Signal()
        self.kept = {one: kept for one, kept in self.kept.items() if kept.wanted}
        kept = self.kept.pop(name, None)
        if kept is None:
            return None
        try:
            kept.withdraw()
            await kept.settled()
            return kept
        except BaseException:
            await self._find_out(name, kept.data, kept)
            self._end(name)
            raise

    def _end(self, name: str) -> None:
        self._forget(name)
        self._busy.pop(name).fire()

    async def _find_out(self, name: str, data: bytes, before: OwnedEntry | None) -> None:
        """We were interrupted: our entry is as it was, or as it was to be."""
        made = self.kept.pop(name, None)
        if made is not None:
            made.withdraw()
        kept = self._kept(name, before.data if before else data, before.session_id if before else 0)
        await Background(kept.keep_what_is(before is not None))

    def _kept(self, name: str, data: bytes, session_id: int) -> OwnedEntry:
        """Our entry, which is to come back with each next session."""
        kept = self.kept[name] = OwnedEntry(f"{self.path}/{name}", data, self.view.forget)
        kept.session_id = session_id
        return kept

    async def find(self, name: str) -> Node | None:
        """The entry, as soon as there is one; None at the deadline. Watches this name alone."""
        path = f"{self.path}/{name}"
        try:
            while True:
                watch = Watch()
                try:
                    return await read(GetData(path))
                except NoNodeError:
                    if await read(Exists(path, watch)) is None and await Wait(watch) is WakeReason.DEADLINE:
                        return None
        except DeadlineError:
            return None
