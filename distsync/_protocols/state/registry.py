"""Registry: a znode for each name, whose data contains the address.

Source: recipes.txt, "Out of the Box Applications: Name Service ...".

A name is one component of a path. A persistent entry is a persistent znode. Any other entry is
ephemeral and is created again in the next session of its process (persistent_ephemeral.py), unless
another client has taken the name since. A name is taken over in one transaction: it always has an
entry.

Znodes:
  ``<path>/<name>``  ephemeral or persistent, data: JSON of address, metadata and the registering process
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
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import BadVersionError, DeadlineError, DistsyncError, NodeExistsError, NoNodeError

Entries = dict[str, Node]
"""Entries by name."""


class OwnedEntry(Presence):
    """An entry of ours that is removed when this process exits."""

    async def _delete_predecessor(self, stat: Stat) -> None:
        """Withdraw our entry if another client has registered the name while our session was lost."""
        if self.owns(stat):
            await super()._delete_predecessor(stat)
        else:
            self.withdraw()
            self.session_id = 0

    def owns(self, stat: Stat) -> bool:
        """Return whether the znode belongs to a session in which we have created it, or may have."""
        return stat.ephemeral_owner != 0 and stat.ephemeral_owner in (self.session_id, *self.create_sessions)

    async def maintain_existing(self, was_there: bool) -> None:
        """Maintain the entry after an interrupted change that may have taken place."""
        self._creating = making = Signal()
        try:
            _, node = await read_all(Sync(self.path), GetData(self.path))
            session_id = (await Connected()).session_id
            if isinstance(node, Node) and node.stat.ephemeral_owner == session_id:
                self.data, self.session_id = node.data, session_id
            elif not was_there:
                self.withdraw()
        except DistsyncError:  # it cannot be read, for example
            if not was_there:
                self.withdraw()
        finally:
            self._creating = None
            making.fire()
        await self.maintain()


class RegistryCore:
    """In-process state of a registry, shared by all its threads."""

    def __init__(self, path: str, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.view: WatchCache[Entries] = WatchCache(path, self._read_state)
        self.owned: dict[str, OwnedEntry] = {}
        self._known: dict[str, tuple[Node, Watch]] = {}
        self._busy: dict[str, Signal] = {}

    @property
    def idle(self) -> bool:
        """Whether this process has neither entries nor listeners."""
        return self.view.idle and not self.mine

    @property
    def mine(self) -> list[str]:
        """Names of this process's ephemeral entries.

        Threads outside of a protocol read it too, so it changes nothing.
        """
        return [name for name, entry in self.owned.copy().items() if entry.is_maintained]

    async def _read_state(self, watch: Watch) -> Entries:
        """Return all entries. Each has its own watch, and is read again only after that has fired."""
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
        """Return the entry as a quorum has it; None if there is none.

        If it differs from the watched copy, the copy is dropped: a change made while we may not
        read fires no watch.
        """
        _, reply = await read_all(Sync(self.path), GetData(f"{self.path}/{name}"))
        found = reply if isinstance(reply, Node) else None
        known, _ = self._known.get(name, (None, None))
        if found != known:
            self._forget(name)
        return found

    def _forget(self, name: str) -> None:
        """Drop the copy, and the result of a read in progress, after a write of ours."""
        if name in self._known:
            self._known[name][1].fire()
        self.view.forget()

    def _watch(self) -> Watch:
        watch = Watch()
        watch.subscribe(self.view.forget)
        return watch

    async def put(self, name: str, data: bytes, persistent: bool, replaces: bool = True) -> bool:
        """Register a name. Return False, without a change, if another client has registered it."""
        before = await self._begin(name)
        try:
            outcome = await self._write(name, data, persistent, before, replaces)
            if outcome is not None and not persistent:
                await Background(self._own(name, data, outcome.session_id).maintain())
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
        create = Create(path, data, ephemeral=not persistent, own_cleanup=True)
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
        """Remove the entry of a name, whichever client registered it. Return False if there was none."""
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
        """Begin a change of a name, one at a time in this process, and stop maintaining our entry of
        it, which is returned.
        """
        while (busy := self._busy.get(name)) is not None:
            if await Wait(busy) is WakeReason.DEADLINE:
                raise DeadlineError(f"another change of {self.path}/{name}")
        self._busy[name] = Signal()
        self.owned = {one: entry for one, entry in self.owned.items() if entry.is_maintained}
        owned = self.owned.pop(name, None)
        if owned is None:
            return None
        try:
            owned.withdraw()
            await owned.settled()
            return owned
        except BaseException:
            await self._find_out(name, owned.data, owned)
            self._end(name)
            raise

    def _end(self, name: str) -> None:
        self._forget(name)
        self._busy.pop(name).fire()

    async def _find_out(self, name: str, data: bytes, before: OwnedEntry | None) -> None:
        """Maintain our entry after an interrupt, as it is or as it was to be."""
        made = self.owned.pop(name, None)
        if made is not None:
            made.withdraw()
        owned = self._own(name, before.data if before else data, before.session_id if before else 0)
        await Background(owned.maintain_existing(before is not None))

    def _own(self, name: str, data: bytes, session_id: int) -> OwnedEntry:
        """Add an entry of ours that is created again in each new session."""
        owned = self.owned[name] = OwnedEntry(f"{self.path}/{name}", data, self.view.forget)
        owned.session_id = session_id
        return owned

    async def find(self, name: str) -> Node | None:
        """Wait for the entry of a name, watching only this name. Return None at the deadline."""
        path = f"{self.path}/{name}"
        try:
            while True:
                watch = Watch()
                try:
                    return await read(GetData(path))
                except NoNodeError:
                    if await read(Exists(path, watch)) is None and await Wait(watch) is WakeReason.DEADLINE:
                        return None
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None
