"""The state that survives a restart (znodes, sessions, last zxid), and how transactions change it.

Invariant: the same transactions in the same order produce the same state. The journal relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from distsync._server.data_tree import Tree
from distsync._server.effects import Commit
from distsync._server.journal.change_records import (
    Change,
    CloseSession,
    CreateNode,
    DeleteNode,
    OpenSession,
    ResizeSession,
    SetNodeAcl,
    SetNodeData,
    Stored,
    StoredHead,
    StoredNode,
    UnreadableStateError,
    pack,
    pack_change,
    pack_transaction,
    unpack,
    unpack_transaction,
)
from distsync._server.session_table import Sessions

_new: Callable[[type, tuple[Any, ...]], Any] = tuple.__new__

CHUNK_BYTES = 256 * 1024
"""Minimum size of a snapshot chunk, except the last. A chunk exceeds it by less than one record."""


class DurableState:
    def __init__(self, expiry_ms: int, zxid: int) -> None:
        self.zxid = zxid
        self.last_session_id = 0
        self.tree = Tree()
        self.sessions = Sessions(expiry_ms)
        self._apply: dict[type, Callable[[Any, int, int], object]] = {
            CreateNode: self.tree.create,
            DeleteNode: self.tree.delete,
            SetNodeData: self.tree.set_data,
            SetNodeAcl: self.tree.set_acl,
            OpenSession: self._open,
            ResizeSession: self._resize,
            CloseSession: self._close,
        }

    def apply(self, change: Change, zxid: int, time_ms: int) -> None:
        self._apply[type(change)](change, zxid, time_ms)

    def commit(self, zxid: int, time_ms: int, changes: Sequence[Change]) -> Commit:
        """Return the commit of changes that were already applied."""
        return Commit(zxid, pack_transaction(zxid, time_ms, changes))

    def apply_and_commit(self, change: Change, zxid: int, time_ms: int) -> Commit:
        self._apply[type(change)](change, zxid, time_ms)
        commit: Commit = _new(Commit, (zxid, pack_change(zxid, time_ms, change)))
        return commit

    def replay(self, payload: bytes) -> None:
        zxid, time_ms, changes = unpack_transaction(payload)
        if zxid < self.zxid or (zxid == self.zxid and not _without_zxid(changes)):
            return
        try:
            for change in changes:
                self.apply(change, zxid, time_ms)
        except KeyError as error:
            raise UnreadableStateError(f"transaction {zxid:#x} changes {error}, which does not exist") from None
        self.zxid = zxid

    def snapshot(self) -> Iterator[bytes]:
        chunk = bytearray()
        for record in self._records():
            chunk += pack(record)
            if len(chunk) >= CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
        if chunk:
            yield bytes(chunk)

    def restore(self, chunks: Iterable[bytes]) -> None:
        records = (record for chunk in chunks for record in unpack(chunk))
        head = next(records, None)
        if not isinstance(head, StoredHead):
            raise UnreadableStateError("the snapshot has no head")
        self.zxid, self.last_session_id = head.zxid, head.last_session_id
        self.tree.clear()
        self._load(records)
        if (len(self.sessions), len(self.tree.nodes)) != (head.sessions, head.nodes):
            raise UnreadableStateError(f"the snapshot has {len(self.tree.nodes)} of {head.nodes} znodes")

    def _records(self) -> Iterator[Stored]:
        yield StoredHead(self.zxid, self.last_session_id, len(self.sessions), len(self.tree.nodes))
        for session in self.sessions.values():
            yield OpenSession(session.id, session.timeout_ms)
        yield from self.tree.stored()

    def _load(self, records: Iterator[object]) -> None:
        load = self.tree.load
        try:
            for record in records:
                if isinstance(record, StoredNode):
                    load(record)
                elif isinstance(record, OpenSession):
                    self.sessions.open(record.id, record.timeout_ms, 0)
                else:
                    raise UnreadableStateError(f"unexpected {record!r} in the snapshot")
        except KeyError as error:
            raise UnreadableStateError(f"the snapshot lacks {error}") from None

    def _open(self, change: OpenSession, zxid: int, time_ms: int) -> None:
        """Open a session. Its timeout starts when the engine touches it."""
        self.last_session_id = max(self.last_session_id, change.id)
        self.sessions.open(change.id, change.timeout_ms, 0)

    def _resize(self, change: ResizeSession, zxid: int, time_ms: int) -> None:
        self.sessions[change.id].timeout_ms = change.timeout_ms

    def _close(self, change: CloseSession, zxid: int, time_ms: int) -> None:
        self.tree.delete_owned(change.id, zxid)
        self.sessions.close(change.id)


def _without_zxid(changes: Sequence[Change]) -> bool:
    """Whether the changes reuse the zxid of the transaction before them. They may be applied twice."""
    return bool(changes) and all(isinstance(change, ResizeSession) for change in changes)
