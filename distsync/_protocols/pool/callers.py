"""Callers of a pool: where their answers arrive, and the clean-up after one that has exited.

Source: ours; stdlib ``multiprocessing.pool``.

Znodes:
  ``<path>/callers/<caller>``                              data: JSON about the caller
  ``<path>/callers/<caller>/alive``                        ephemeral; persistent during removal
  ``<path>/callers/<caller>/doubt``                        created and written when ``alive`` is missing
  ``<path>/callers/<caller>/initializer``                  the encoded call of its initializer, if it has one
  ``<path>/callers/<caller>/parts/<group>.<number>``       see payload_chunks.py
  ``<path>/callers/<caller>/answers/<job>.<part>.<kind>``  see tasks.py

Only the caller reads its answers, so they need no order: those that were read are deleted with the
next listing. If a caller's ``alive`` is missing for longer than its session timeout, the caller
counts as dead: its tasks, parts and answers are removed, and the pool too if it has no name. A
caller whose session has ended creates ``alive`` again. Removal begins with a persistent ``alive``:
the next sweep completes a removal whose process exits, and a caller that still runs notices the
removal by it, or by the missing ``answers``, which is deleted before its tasks.

The callers of a pool with a name use the same initializer, because their workers run each other's
tasks. A caller that has just created ``alive`` reads those of the others: it is refused if an older
one uses another initializer. Workers compare the initializer of each caller with their own, because
the session of a caller can end while its workers run.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from distsync._protocols import payload_chunks
from distsync._protocols.pool.tasks import DONE, PoolCore
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, read, read_all, remove_tree_by_deadline
from distsync._protocols.steps import (
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    Node,
    Pipeline,
    SessionInfo,
    SetData,
    Signal,
    Wait,
    Watch,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import CorruptNodeError, DistsyncError, MismatchError, NodeExistsError, NoNodeError

#: Maximum number of answers read per listing, and of those requested at the same time.
MAX_REPLIES, BATCH_SIZE = 200, 20
#: Maximum number of znodes deleted with one request, apart from those of the last `BATCH_SIZE`
#: answers.
MAX_DELETES = 1000


class TaskReply(NamedTuple):
    """An answer: its task, its kind and its data."""

    job: int
    part: int
    kind: str
    data: bytes


class Initializer(NamedTuple):
    """An initializer of workers: its description, and its encoded call if it can be encoded.

    Callers of one pool have the same description, unless it is None: such a caller accepts any.
    """

    text: str | None = None
    call: bytes | None = None


ANY_INITIALIZER = Initializer()


class CallerRecord(NamedTuple):
    """The data of a caller's znode."""

    timeout_ms: int = 60_000
    initializer: str | None = None


class Caller:
    """A caller of a pool. ``caller`` is its GUID."""

    def __init__(self, core: PoolCore, caller: str, initializer: Initializer = ANY_INITIALIZER) -> None:
        self.core, self.caller, self.initializer = core, caller, initializer
        self.path = core.znodes.caller_path(caller)
        self.parts = core.znodes.parts_path(caller)
        self.answers = core.znodes.answers(caller)
        #: Fires when no more answers are to be received.
        self.stop = Signal()
        self._session_id = 0
        self._read: list[str] = []
        #: Whether the next listing sets no watch, because it is expected to find answers. Their deletion
        #: would fire the watch, and look like the arrival of others.
        self._expects_answers = False

    async def begin(self) -> None:
        """Create the caller's znodes, so that tasks can be put and answers can arrive."""
        session = await Connected()
        record = CallerRecord(session.timeout_ms, self.initializer.text)
        await self.core.znodes.make()
        await ensure(self.core.znodes.callers)
        encoded = json.dumps(record._asdict()).encode()
        for path, data in ((self.path, encoded), (self.parts, b""), (self.answers, b"")):
            await ensure(path, data)
        if self.initializer.call is not None:
            await self.core.put_initializer(self.caller, self.initializer.call)
        try:
            await self._announce(session)
        except MismatchError:
            await self.end()
            raise

    async def _announce(self, session: SessionInfo) -> None:
        """Create ``alive`` for the current session.

        Raises NoNodeError if this caller is being removed, and MismatchError if an older one uses
        another initializer.
        """
        while self._session_id != session.session_id:
            session = await self._create_alive(session)
            if await self._compare_initializers():
                self._session_id = session.session_id
            else:
                session = await Connected()

    async def _create_alive(self, session: SessionInfo) -> SessionInfo:
        """Return the session whose ``alive`` exists."""
        alive = f"{self.path}/alive"
        while True:
            made, _ = await Pipeline(Create(alive, ephemeral=True), Delete(f"{self.path}/doubt"))
            if isinstance(made, INTERRUPTED):
                session = await Connected()
            elif isinstance(made, NodeExistsError):
                stat = await read(Exists(alive))
                if stat is not None and stat.ephemeral_owner == session.session_id:
                    return session
                if stat is not None and not stat.ephemeral_owner:  # another process is removing us
                    raise NoNodeError(alive)
                await Pipeline(Delete(alive))  # of our previous session, which ends soon
            elif isinstance(made, BaseException):
                raise made
            else:
                return session

    async def _compare_initializers(self) -> bool:
        """Return False if ``alive`` does not exist any more. Raises MismatchError."""
        ours = self.initializer.text
        if ours is None:
            return True
        callers = await read_callers(self.core)
        since = next((each.since for each in callers if each.caller == self.caller), None)
        if since is None:
            return False
        for other in callers:
            theirs = other.record.initializer
            if theirs not in (None, ours) and other.since < since:
                raise MismatchError("the initializer", self.core.znodes.path, theirs, ours)
        return True

    async def receive(self) -> list[TaskReply] | None:
        """Return the next answers; None when `stop` has fired. Raises NoNodeError if this caller was
        removed.
        """
        while not self.stop.fired:
            await self._announce(await Connected())
            watch = None if self._expects_answers else Watch()
            deletes = (Multi(tuple(map(Delete, self._read))),) if self._read else ()
            *deleted, listing = await Pipeline(*deletes, Children(self.answers, watch))
            if isinstance(listing, INTERRUPTED):
                continue
            if isinstance(listing, BaseException):
                raise listing
            # one was deleted by a request whose reply was lost
            if any(isinstance(answer, BaseException) for answer in deleted):
                await read_all(*map(Delete, self._read))
            names = sorted(set(listing.names) - {path.rpartition("/")[2] for path in self._read})[:MAX_REPLIES]
            self._read = []
            self._expects_answers = watch is not None
            if names:
                return await self._fetch(names)
            if watch is not None:
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
                said = _parse_reply(name)
                if said is not None and isinstance(node, Node):
                    found.append(said._replace(data=await self._payload(said.kind, node.data)))
        return found

    async def _payload(self, kind: str, data: bytes) -> bytes:
        """Return the payload of an answer, joined if it was split; empty if it is not available."""
        if kind != DONE:
            return data
        try:
            payload = await payload_chunks.join(self.parts, data)
            self._read += payload_chunks.parts_of(self.parts, data)
            return payload
        except (CorruptNodeError, NoNodeError):
            return b""

    async def end(self) -> None:
        """Delete all znodes of this caller."""
        await remove_caller(self.core, self.caller)


class LiveCaller(NamedTuple):
    """A caller with ``alive``, and the transaction that created it."""

    caller: str
    record: CallerRecord
    since: int


async def read_callers(core: PoolCore) -> list[LiveCaller]:
    """Return the callers that are alive."""
    (listing,) = await read_all(Children(core.znodes.callers))
    found: list[LiveCaller] = []
    for caller in () if isinstance(listing, NoNodeError) else listing.names:
        path = core.znodes.caller_path(caller)
        node, stat = await read_all(GetData(path), Exists(f"{path}/alive"))
        if isinstance(node, Node) and stat is not None and stat.ephemeral_owner:
            found.append(LiveCaller(caller, _parse_caller(node.data), stat.czxid))
    return found


async def find_initializer(core: PoolCore, caller: str) -> tuple[str, str] | None:
    """Return the description of the initializer for the tasks of ``caller``, and whose it is.

    That is its own one or, if it accepts any, that of another caller. Return None if there is none.
    """
    (node,) = await read_all(GetData(core.znodes.caller_path(caller)))
    own = _parse_caller(node.data).initializer if isinstance(node, Node) else None
    if own is not None:
        return own, caller
    for other in await read_callers(core):
        if other.record.initializer is not None:
            return other.record.initializer, other.caller
    return None


def _parse_reply(name: str) -> TaskReply | None:
    try:
        job, part, kind = name.split(".")
        return TaskReply(int(job), int(part), kind, b"")
    except ValueError as error:
        raise_if_from_handler(error)
        return None


async def remove_caller(core: PoolCore, caller: str) -> None:
    """Delete a caller's unclaimed tasks, parts and answers. Raises the errors of a deadline."""
    await remove_tree_by_deadline(core.znodes.answers(caller))
    await core.withdraw_tasks(caller)
    await remove_tree_by_deadline(core.znodes.caller_path(caller))


async def sweep(core: PoolCore) -> None:
    """Doubt callers without ``alive``, and remove those that were doubted for their session timeout."""
    try:
        (listing,) = await read_all(Children(core.znodes.callers))
        for caller in () if isinstance(listing, NoNodeError) else listing.names:
            await _sweep_one(core, caller)
    except DistsyncError:  # another process removes the same, or access is denied: a later sweep tries again
        pass


async def _sweep_one(core: PoolCore, caller: str) -> None:
    path = core.znodes.caller_path(caller)
    alive, doubt = f"{path}/alive", f"{path}/doubt"
    node, stat = await read_all(GetData(path), Exists(alive))
    if not isinstance(node, Node) or (stat is not None and stat.ephemeral_owner):
        return
    timeout_ms = _parse_caller(node.data).timeout_ms
    if stat is not None:  # its removal has begun
        await remove_caller(core, caller)
        return
    try:
        try:
            await read(Create(doubt))
        except NodeExistsError:
            pass
        stat = await read(SetData(doubt))
    except NoNodeError:  # ended or removed by another process; create nothing here
        return
    if await read(Exists(alive)) is not None:  # it had just started: the next doubt must start again
        await read_all(Delete(doubt))
    elif stat.mtime - stat.ctime >= timeout_ms:
        try:
            await read(Create(alive))
        except NodeExistsError:  # it is back, or the reply to our create was lost: the next sweep will see
            return
        await remove_caller(core, caller)


def _parse_caller(data: bytes) -> CallerRecord:
    try:
        record = json.loads(data)
        text = record.get("initializer")
        return CallerRecord(int(record["timeout_ms"]), text and str(text))
    except (*DECODE_ERRORS, AttributeError) as error:
        raise_if_from_handler(error)
        return CallerRecord()


async def sweep_all(core: PoolCore, top: str) -> None:
    """Sweep all pools under ``top``, of which some may have no other process that sweeps."""
    (listing,) = await read_all(Children(top))
    for name in () if isinstance(listing, NoNodeError) else listing.names:
        other = PoolCore(f"{top}/{name}", core.receipts)
        other.znodes.may_make = False
        await sweep(other)
