"""A pool's callers: where their answers arrive, and what becomes of what a dead one leaves.

Source: ours; stdlib ``multiprocessing.pool``.

Rules for this file: pure; it knows answers by their names, and does not look into them.

Picture: ``<path>/callers/<caller>``                              data: a JSON of who it is
         ``<path>/callers/<caller>/alive``                        ephemeral; of one that is being removed: persistent
         ``<path>/callers/<caller>/doubt``                        of whoever missed ``alive``; written to see the time
         ``<path>/callers/<caller>/parts/<group>.<number>``       see payload_chunks.py
         ``<path>/callers/<caller>/answers/<job>.<part>.<kind>``  see tasks.py

There is one reader of a caller's answers, so they need no order and no taking: what was read is deleted with the next
look. A caller whose ``alive`` is missing for longer than its session's time-out is dead: its tasks, its parts and its
answers are removed, and the pool if it had no name of its own. A caller whose session has ended makes ``alive`` again.
Who removes one makes a persistent ``alive`` first: what is begun then is ended by the next sweep, whoever dies, and a
caller that lives after all learns by it, or by the answers, which go before its tasks do, that it was taken for dead.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from distsync._protocols import payload_chunks
from distsync._protocols.delete_tree import remove_tree
from distsync._protocols.pool.tasks import DONE, PoolCore
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, read, read_all
from distsync._protocols.steps import (
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    SessionInfo,
    SetData,
    Signal,
    Together,
    Wait,
    Watch,
)
from distsync.errors import CorruptNodeError, DistsyncError, NodeExistsError, NoNodeError

#: Answers that are read with one look, and those whose data are on their way at the same time.
MAX_REPLIES, BATCH_SIZE = 200, 20
#: Answers and parts that are deleted with one request, apart from those of the last `BATCH_SIZE` answers.
MAX_DELETES = 1000


class TaskReply(NamedTuple):
    """An answer: to which task, what it is, and its data."""

    job: int
    part: int
    kind: str
    data: bytes


class Caller:
    """One who puts tasks into a pool; ``caller`` is its GUID, ``is_private``: the pool has and gets no other one."""

    def __init__(self, core: PoolCore, caller: str, is_private: bool) -> None:
        self.core, self.caller, self.is_private = core, caller, is_private
        self.folder = core.znodes.folder(caller)
        self.parts = core.znodes.parts_folder(caller)
        self.answers = core.znodes.answers(caller)
        #: Fires when nothing is to be received any more.
        self.stop = Signal()
        self._session_id = 0
        self._read: list[str] = []

    async def begin(self) -> None:
        """Tasks can be put, and their answers will arrive."""
        session = await Connected()
        record = json.dumps({"alone": self.is_private, "timeout_ms": session.timeout_ms}).encode()
        await self.core.znodes.make()
        await ensure(self.core.znodes.callers)
        for path, data in ((self.folder, record), (self.parts, b""), (self.answers, b"")):
            await ensure(path, data)
        await self._announce(session)

    async def _announce(self, session: SessionInfo) -> None:
        """That we are there is to be seen. Raises NoNodeError if we were taken for dead."""
        alive = f"{self.folder}/alive"
        while self._session_id != session.session_id:
            made, _ = await Together(Create(alive, ephemeral=True), Delete(f"{self.folder}/doubt"))
            if isinstance(made, INTERRUPTED):
                session = await Connected()
            elif isinstance(made, NodeExistsError):
                stat = await read(Exists(alive))
                if stat is not None and stat.ephemeral_owner == session.session_id:
                    self._session_id = session.session_id
                elif stat is not None and not stat.ephemeral_owner:  # we are being removed
                    raise NoNodeError(alive)
                else:  # of our session before, which ends soon
                    await Together(Delete(alive))
            elif isinstance(made, BaseException):
                raise made
            else:
                self._session_id = session.session_id

    async def receive(self) -> list[TaskReply] | None:
        """The next answers; None when `stop` has fired. Raises NoNodeError if we were taken for dead."""
        while not self.stop.fired:
            await self._announce(await Connected())
            watch = Watch()
            deletes = (Multi(tuple(map(Delete, self._read))),) if self._read else ()
            *deleted, listing = await Together(*deletes, Children(self.answers, watch))
            if isinstance(listing, INTERRUPTED):
                continue
            if isinstance(listing, BaseException):
                raise listing
            if any(isinstance(answer, BaseException) for answer in deleted):  # one of a request whose answer was lost
                await read_all(*map(Delete, self._read))
            names = sorted(set(listing.names) - {path.rpartition("/")[2] for path in self._read})[:MAX_REPLIES]
            self._read = []
            if names:
                return await self._fetch(names)
            await Wait(watch, self.stop)
        return None

    async def _fetch(self, names: list[str]) -> list[TaskReply]:
        found: list[TaskReply] = []
        for start in range(0, len(names), BATCH_SIZE):
            if len(self._read) >= MAX_DELETES:
                break
            some = names[start : start + BATCH_SIZE]
            nodes = await read_all(*(GetData(f"{self.answers}/{name}") for name in some))
            for name, node in zip(some, nodes, strict=True):
                self._read.append(f"{self.answers}/{name}")
                said = _said(name)
                if said is not None and isinstance(node, Node):
                    found.append(said._replace(data=await self._payload(said.kind, node.data)))
        return found

    async def _payload(self, kind: str, data: bytes) -> bytes:
        """What the answer says, also where it was split; empty where that is not to be had."""
        if kind != DONE:
            return data
        try:
            payload = await payload_chunks.joined(self.parts, data)
            self._read += payload_chunks.parts_of(self.parts, data)
            return payload
        except (CorruptNodeError, NoNodeError):
            return b""

    async def end(self) -> None:
        """Nothing of this caller's is left; of a pool that only it had, nothing at all."""
        await remove_caller(self.core, self.caller, self.is_private)


def _said(name: str) -> TaskReply | None:
    try:
        job, part, kind = name.split(".")
        return TaskReply(int(job), int(part), kind, b"")
    except ValueError:
        return None


async def remove_caller(core: PoolCore, caller: str, is_private: bool) -> None:
    """Its tasks that nobody has, its parts and its answers are gone; with the pool, if that is ``is_private`` its
    own."""
    await remove_tree(core.znodes.answers(caller))
    if not is_private:
        await core.withdraw_tasks(caller)
    await remove_tree(core.znodes.path if is_private else core.znodes.folder(caller))


async def sweep(core: PoolCore) -> None:
    """Callers that are dead are doubted, those that were doubted long enough are removed with all that is theirs."""
    try:
        (listing,) = await read_all(Children(core.znodes.callers))
        for caller in () if isinstance(listing, NoNodeError) else listing.names:
            await _sweep_one(core, caller)
    except DistsyncError:  # somebody else removes the same, or we may not: there will be another sweep
        pass


async def _sweep_one(core: PoolCore, caller: str) -> None:
    folder = core.znodes.folder(caller)
    alive, doubt = f"{folder}/alive", f"{folder}/doubt"
    node, stat = await read_all(GetData(folder), Exists(alive))
    if not isinstance(node, Node) or (stat is not None and stat.ephemeral_owner):
        return
    alone, timeout_ms = _wills(node.data)
    if stat is not None:  # somebody has begun to remove it
        await remove_caller(core, caller, alone)
        return
    try:
        try:
            await read(Create(doubt))
        except NodeExistsError:
            pass
        stat = await read(SetData(doubt))
    except NoNodeError:  # it has ended, or others have removed it; nothing is made anew here
        return
    if await read(Exists(alive)) is not None:  # it had just begun: the next doubt must begin anew
        await read_all(Delete(doubt))
    elif stat.mtime - stat.ctime >= timeout_ms:
        try:
            await read(Create(alive))
        except NodeExistsError:  # it is back, or what we made is there: the next sweep sees which
            return
        await remove_caller(core, caller, alone)


def _wills(data: bytes) -> tuple[bool, int]:
    try:
        record = json.loads(data)
        return bool(record["alone"]), int(record["timeout_ms"])
    except DECODE_ERRORS:
        return False, 60_000


async def sweep_all(core: PoolCore, top: str) -> None:
    """The same for every pool under ``top``: one without a name has nobody else who would."""
    (listing,) = await read_all(Children(top))
    for name in () if isinstance(listing, NoNodeError) else listing.names:
        other = PoolCore(f"{top}/{name}", core.receipts)
        other.znodes.may_make = False
        await sweep(other)
