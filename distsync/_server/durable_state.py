"""What survives a restart: znodes, sessions, the last zxid; and how a transaction changes it.

Rules for this file: no connection, watch or clock. Applying needs no check: the same transactions in the same order
lead to the same state, which is what the journal lives on.
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

PIECE_BYTES = 256 * 1024
"""A snapshot's piece is at least this long, but for the last; a piece more than one record longer never is."""


class DurableState:
    """The tree, the sessions and the last zxid."""

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
        """The record of changes that were applied under this zxid."""
        return Commit(zxid, pack_transaction(zxid, time_ms, changes))

    def apply_and_commit(self, change: Change, zxid: int, time_ms: int) -> Commit:
        """One change, and its record."""
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
            raise UnreadableStateError(f"transaction {zxid:#x} changes {error}, which is not there") from None
        self.zxid = zxid

    def snapshot(self) -> Iterator[bytes]:
        piece = bytearray()
        for record in self._records():
            piece += pack(record)
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        if piece:
            yield bytes(piece)

    def restore(self, pieces: Iterable[bytes]) -> None:
        records = (record for piece in pieces for record in unpack(piece))
        head = next(records, None)
        if not isinstance(head, StoredHead):
            raise UnreadableStateError("a snapshot without its head")
        self.zxid, self.last_session_id = head.zxid, head.last_session_id
        self.tree.clear()
        self._load(records)
        if (len(self.sessions), len(self.tree.nodes)) != (head.sessions, head.nodes):
            raise UnreadableStateError(f"a snapshot of {head.nodes} znodes has {len(self.tree.nodes)}")

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
                    raise UnreadableStateError(f"{record!r} in a snapshot")
        except KeyError as error:
            raise UnreadableStateError(f"a snapshot without {error}") from None

    def _open(self, change: OpenSession, zxid: int, time_ms: int) -> None:
        """Its time-out starts when the engine touches it."""
        self.last_session_id = max(self.last_session_id, change.id)
        self.sessions.open(change.id, change.timeout_ms, 0)

    def _resize(self, change: ResizeSession, zxid: int, time_ms: int) -> None:
        self.sessions[change.id].timeout_ms = change.timeout_ms

    def _close(self, change: CloseSession, zxid: int, time_ms: int) -> None:
        self.tree.delete_owned(change.id, zxid)
        self.sessions.close(change.id)


def _without_zxid(changes: Sequence[Change]) -> bool:
    """They stand under the zxid of the transaction before them, and may be applied again."""
    return bool(changes) and all(isinstance(change, ResizeSession) for change in changes)
