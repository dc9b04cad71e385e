"""The journal: every change of the server's state on disk, in the order of their zxids, before anybody hears of it.

Rules for this file: it knows no engine and no socket: a record is a zxid and bytes.

What the folder holds::

    journal.log     a line that says what it is; then entries (entries.py), each with a CRC: a random secret, a snapshot
                    in parts (maybe), and the groups of records after it, numbered without gaps
    journal.new     the same, while a new snapshot is written; it takes the other's name when it is complete
    journal.mark    the number of the last group written, and whether the disk has it, or who has it

A group is what was appended together. A process that dies while it writes leaves a torn one at the end, which nobody
was told of: it is dropped. The mark tells that from a loss: it is written after the group is safe and before anybody
is told, so a journal that ends before its mark has lost something that was acknowledged, and is refused.

Safe is what the journal was opened for. ``sync_full``: the disk has it; one fsync for all records of an append.
Otherwise the operating system has it, which no death of this process undoes, but the death of the machine does: then
the mark, which is synced when it first names a boot, names another one, and the journal may be shorter than it was, by
more than the mark tells: see ``JournalContents.died``. The mark names this boot only once something was appended to say
so.

One journal at a time has the folder: its descriptor is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from distsync._server.journal.entries import (
    GROUP,
    PART,
    SECRET,
    WHOLE,
    JournalEntry,
    join,
    pack_entry,
    read_entries,
    split,
)
from distsync._server.journal.journal_errors import JournalCorruptError, JournalUnreadableError, JournalWriteError
from distsync._server.journal.watermark import Watermark

NAME = "journal.log"
OLD_NAME = "journal.sqlite"
HEADER = b"distsync journal, format 3\n"
COMPACT_BYTES = 4 << 20  # records smaller than this are not worth a snapshot; ZooKeeper: 100,000 records or 4 GB


class JournalContents(NamedTuple):
    """What a journal holds: records are pairs of zxid and payload, in the order in which they were appended."""

    secret: bytes
    snapshot: list[bytes]
    records: list[tuple[int, bytes]]
    died: bool = False
    """The machine has died, and the disk had not been waited for: what was written last may be gone."""
    lost: int = 0
    """At least so many appends are gone with it."""


class Journal:
    """Records that survive the death of the process and of the machine."""

    def __init__(self, folder: Path, *, sync_full: bool = False) -> None:
        self.path = folder / NAME
        self.sync_full = sync_full
        self.snapshot_bytes = 0
        self.record_bytes = 0
        self._draft = folder / "journal.new"
        self._mark = Watermark(folder / "journal.mark")
        self._marked = False
        self._number = 0
        self._end = 0
        self._secret = b""
        self._whole = False
        self._file = -1
        with _writing(self.path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._guard = _guard(self.path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with _writing(self.path):
            self._draft.unlink(missing_ok=True)
        if not self.path.exists():
            self._begin()
        if self._file < 0:
            with _reading(self.path):
                self._file = os.open(self.path, os.O_RDWR)

    def _begin(self) -> None:
        """A new journal, unless there are signs of an old one."""
        old = self.path.with_name(OLD_NAME)
        if old.exists():
            raise JournalCorruptError(self.path, f"it is missing, and {old.name} is of a version that is too old")
        if not self._mark.is_empty and self._mark.read().number > 0:
            raise JournalCorruptError(self.path, f"it is missing, though {self._mark.path.name} is there")
        with _writing(self.path):
            self._mark.write(0, synced=True)
            self._mark.sync()
            self._replace(secrets.token_bytes(32), ())
            with suppress(OSError):  # it may not be ours to read, and then was there before
                _sync_folder(self.path.parent.parent)

    def load(self) -> JournalContents:
        """All that was written and not yet superseded. What is torn at the end is cut off. What the machine took along
        is told of until something is appended.

        Raises JournalCorruptError when anything is missing or altered."""
        with _reading(self.path):
            contents = self._read()
        marked = self._mark.read()
        lost = max(0, marked.number - self._number)
        if lost and not marked.may_be_lost:
            reason = f"it ends with append {self._number}, but {marked.number} were acknowledged"
            raise JournalCorruptError(self.path, reason)
        with _writing(self.path):
            os.ftruncate(self._file, self._end)
            if self.sync_full:
                os.fdatasync(self._file)
                _sync_name(self._guard)
            if not marked.may_be_lost:
                self._begin_mark(self._number)
        return contents._replace(died=marked.may_be_lost, lost=lost)

    def _begin_mark(self, number: int) -> None:
        """From now on it says how this journal writes; or, if it cannot be written, what it said."""
        before = self._mark.content()
        try:
            self._mark.write(number, synced=self.sync_full)
            self._mark.sync()
        except OSError:
            with suppress(OSError):
                self._mark.restore(before)
            raise
        self._marked = True

    def _read(self) -> JournalContents:
        contents = JournalContents(b"", [], [])
        with open(self._file, "rb", closefd=False) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if file.read(len(HEADER)) != HEADER:
                raise JournalCorruptError(self.path, "it is no journal of format 3" if size else "it is empty")
            for entry in read_entries(file, size):
                self._take(contents, entry)
                self._end = file.tell()
        if not self._whole:
            raise JournalCorruptError(self.path, "its snapshot is not what was written")
        return contents._replace(secret=self._secret)

    def _take(self, contents: JournalContents, entry: JournalEntry) -> None:
        """The next entry of the file."""
        kind, number, payload = entry
        if kind == SECRET:
            self._secret, self._number = payload, number
        if number != self._number + (kind == GROUP):
            raise JournalCorruptError(self.path, f"append {self._number + 1} is missing")
        self._number = number
        self._whole = self._whole or kind == WHOLE
        if kind == PART:
            contents.snapshot.append(payload)
            self.snapshot_bytes += len(payload)
        elif kind == GROUP:
            contents.records.extend(split(payload))
            self.record_bytes += len(payload)

    def append(self, records: Sequence[tuple[int, bytes]], *, synced: bool = False) -> None:
        """All of ``records`` are safe, or none. ``synced``: the disk has them in any case.

        Raises JournalWriteError: then none of them is."""
        if not records:
            return
        number, group = self._number + 1, join(records)
        try:
            size = _write_all(self._file, pack_entry(GROUP, number, group), self._end)
            if synced or self.sync_full:
                os.fdatasync(self._file)
            if self._marked:
                self._mark.advance(number)
            else:
                self._begin_mark(number)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise JournalWriteError(self.path, error) from error
        self._number = number
        self._end += size
        self.record_bytes += len(group)

    @property
    def wants_compaction(self) -> bool:
        """Whether there is so much after the snapshot that a new one pays: each byte is copied twice at most."""
        return self.record_bytes > max(COMPACT_BYTES, self.snapshot_bytes)

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """``snapshot``, the state after the last record in pieces, stands for all records so far.

        Raises JournalWriteError: then the old snapshot and its records are still there."""
        with _writing(self.path):
            self._replace(self._secret, snapshot)
            _sync_folder(self.path.parent)

    def _replace(self, secret: bytes, snapshot: Iterable[bytes]) -> None:
        """A new file takes the place of the old one when it is complete, and on the disk."""
        file = os.open(self._draft, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        try:
            size, end = self._write_draft(file, secret, snapshot)
            os.replace(self._draft, self.path)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)
            raise
        old, self._file = self._file, file
        self.snapshot_bytes, self.record_bytes, self._end = size, 0, end
        if old >= 0:
            os.close(old)

    def _write_draft(self, file: int, secret: bytes, snapshot: Iterable[bytes]) -> tuple[int, int]:
        """The bytes of the snapshot, and of all."""
        size = 0
        with open(file, "wb", closefd=False) as draft:
            draft.write(HEADER + pack_entry(SECRET, self._number, secret))
            for part in snapshot:
                draft.write(pack_entry(PART, self._number, part))
                size += len(part)
            draft.write(pack_entry(WHOLE, self._number, b""))
            draft.flush()
            os.fsync(file)
            return size, draft.tell()

    def close(self) -> None:
        """All is on the disk; calling again is allowed."""
        with suppress(OSError):
            if self._marked:
                os.fsync(self._file)
                _sync_name(self._guard)
                self._mark.write(self._number, synced=True)
                self._mark.sync()
        for descriptor in (self._file, self._guard):
            if descriptor >= 0:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child has the descriptor too
                os.close(descriptor)
        self._file = self._guard = -1
        self._marked = False
        self._mark.close()


def _guard(path: Path) -> int:
    """A descriptor of the folder, locked against other servers; where the file system has no locks, only that."""
    with _reading(path):
        folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise JournalUnreadableError(path, "another server has its folder") from None
    except OSError:
        pass
    return folder


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalUnreadableError(path, error) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalWriteError(path, error) from error


def _write_all(file: int, entry: bytes, at: int) -> int:
    """How many bytes that were. The system writes less than it was given only when there is no room for all of it, and
    says so the next time."""
    written = os.pwrite(file, entry, at)
    while written < len(entry):
        written += os.pwrite(file, entry[written:], at + written)
    return written


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        _sync_name(folder)
    finally:
        os.close(folder)


def _sync_name(folder: int) -> None:
    """The names in this folder are on the disk, where its file system can be told so."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
