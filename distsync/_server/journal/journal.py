"""The journal: a write-ahead log of all changes of the server's state, in order of their zxids.

Files in the folder::

    journal.log     a header line; then entries (entries.py): the secret from which session passwords are
                    derived, a snapshot in chunks, and the groups of records after it, numbered without gaps
    journal.new     the same, while a new snapshot is written; renamed to journal.log when complete
    journal.mark    the watermark: the number of the last group, and whether it is on disk

A group consists of the records that were appended together. If the process crashes during an
append, the journal ends with a torn group, which is dropped because it was not acknowledged. The
watermark is updated after the group is written and before it is acknowledged. A journal that ends
before its watermark has therefore lost acknowledged writes, and is refused.

With ``sync_full``, a group counts as written when it is on disk (one sync for each append).
Otherwise it is written when the operating system has it, which survives a crash of the process but
not of the machine. After a crash of the machine, the watermark contains another boot id, and more
groups may be lost than it shows (see ``JournalContents.may_have_lost_appends``). The current boot
id is then written only with the next append.

The folder is locked, so that only one journal uses it at a time.
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
    SECRET,
    SNAPSHOT_CHUNK,
    SNAPSHOT_END,
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
COMPACT_BYTES = 4 << 20
"""Size of records below which no snapshot is written (ZooKeeper: 100,000 records or 4 GB)."""

SPACE_BYTES = 2 << 20
"""Free space without which no server starts: enough for any request, which is smaller than 1 MiB. With less, a server
could stop at its first write, only to be started again by its clients."""


class JournalContents(NamedTuple):
    """The content of a journal. Records are pairs of zxid and payload, in the order of the appends."""

    secret: bytes
    snapshot: list[bytes]
    records: list[tuple[int, bytes]]
    may_have_lost_appends: bool = False
    """Whether the machine crashed before the journal was synced, so that the last appends may be lost."""
    lost: int = 0
    """Minimum number of appends lost by that."""


class Journal:
    """A log of records that survive a crash of the process, and with ``sync_full`` of the machine."""

    def __init__(self, folder: Path, *, sync_full: bool = False) -> None:
        self.path = folder / NAME
        self.sync_full = sync_full
        self.snapshot_bytes = 0
        self.record_bytes = 0
        self._draft = folder / "journal.new"
        self._watermark = Watermark(folder / "journal.mark")
        self._watermark_is_current = False
        self._number = 0
        self._end_offset = 0
        self._secret = b""
        self._snapshot_complete = False
        self._file = -1
        with _wrap_write_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder_fd = _lock_folder(self.path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with _wrap_write_errors(self.path):
            self._draft.unlink(missing_ok=True)
        if not self.path.exists():
            self._create()
        if self._file < 0:
            with _wrap_read_errors(self.path):
                self._file = os.open(self.path, os.O_RDWR)

    def _create(self) -> None:
        """Create a journal, unless there are traces of an old one."""
        old = self.path.with_name(OLD_NAME)
        if old.exists():
            raise JournalCorruptError(self.path, f"missing, and the format of {old.name} is too old")
        if not self._watermark.is_empty and self._watermark.read().number > 0:
            raise JournalCorruptError(self.path, f"missing, but {self._watermark.path.name} exists")
        with _wrap_write_errors(self.path):
            self._watermark.write(0, synced=True)
            self._watermark.sync()
            self._replace(secrets.token_bytes(32), ())
            with suppress(OSError):  # if we may not read the parent folder, we did not create the folder
                _sync_folder(self.path.parent.parent)

    def check_space(self) -> None:
        """Raise JournalWriteError unless SPACE_BYTES can be written."""
        with _wrap_write_errors(self.path):
            file = os.open(self._draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            try:
                _write_all(file, bytes(SPACE_BYTES), 0)
            finally:
                os.close(file)
                with suppress(OSError):
                    self._draft.unlink(missing_ok=True)

    def load(self) -> JournalContents:
        """Return the snapshot and the records after it, and cut off a torn group at the end.

        Until something is appended, each load reports what a crash of the machine may have lost.
        Raises JournalCorruptError if anything is missing or altered.
        """
        with _wrap_read_errors(self.path):
            contents = self._read()
        marked = self._watermark.read()
        lost = max(0, marked.number - self._number)
        if lost and not marked.may_be_lost:
            reason = f"ends with append {self._number}, but {marked.number} were acknowledged"
            raise JournalCorruptError(self.path, reason)
        with _wrap_write_errors(self.path):
            os.ftruncate(self._file, self._end_offset)
            if self.sync_full:
                os.fdatasync(self._file)
                _fsync_directory(self._folder_fd)
            if not marked.may_be_lost:
                self._start_watermark(self._number)
        return contents._replace(may_have_lost_appends=marked.may_be_lost, lost=lost)

    def _start_watermark(self, number: int) -> None:
        """Write the number and the boot id or SYNCED to the watermark. On failure, restore its content."""
        before = self._watermark.content()
        try:
            self._watermark.write(number, synced=self.sync_full)
            self._watermark.sync()
        except OSError:
            with suppress(OSError):
                self._watermark.restore(before)
            raise
        self._watermark_is_current = True

    def _read(self) -> JournalContents:
        contents = JournalContents(b"", [], [])
        with open(self._file, "rb", closefd=False) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if file.read(len(HEADER)) != HEADER:
                raise JournalCorruptError(self.path, "not a journal of format 3" if size else "empty")
            for entry in read_entries(file, size):
                self._add_entry(contents, entry)
                self._end_offset = file.tell()
        if not self._snapshot_complete:
            raise JournalCorruptError(self.path, "incomplete or altered snapshot")
        return contents._replace(secret=self._secret)

    def _add_entry(self, contents: JournalContents, entry: JournalEntry) -> None:
        """Add the next entry of the file to ``contents``."""
        kind, number, payload = entry
        if kind == SECRET:
            self._secret, self._number = payload, number
        if number != self._number + (kind == GROUP):
            raise JournalCorruptError(self.path, f"append {self._number + 1} is missing")
        self._number = number
        self._snapshot_complete = self._snapshot_complete or kind == SNAPSHOT_END
        if kind == SNAPSHOT_CHUNK:
            contents.snapshot.append(payload)
            self.snapshot_bytes += len(payload)
        elif kind == GROUP:
            contents.records.extend(split(payload))
            self.record_bytes += len(payload)

    def append(self, records: Sequence[tuple[int, bytes]], *, synced: bool = False) -> None:
        """Write all of ``records``, or none. With ``synced``, wait until they are on disk.

        Raises JournalWriteError if none was written.
        """
        if not records:
            return
        number, group = self._number + 1, join(records)
        try:
            size = _write_all(self._file, pack_entry(GROUP, number, group), self._end_offset)
            if synced or self.sync_full:
                os.fdatasync(self._file)
            if self._watermark_is_current:
                self._watermark.advance(number)
            else:
                self._start_watermark(number)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end_offset)
            raise JournalWriteError(self.path, error) from error
        self._number = number
        self._end_offset += size
        self.record_bytes += len(group)

    @property
    def wants_compaction(self) -> bool:
        """Whether the records are larger than COMPACT_BYTES and than the snapshot."""
        return self.record_bytes > max(COMPACT_BYTES, self.snapshot_bytes)

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """Replace all records by ``snapshot``, the state after the last record in chunks.

        If it raises JournalWriteError, the journal still represents the same state.
        """
        with _wrap_write_errors(self.path):
            self._replace(self._secret, snapshot)
            _sync_folder(self.path.parent)

    def _replace(self, secret: bytes, snapshot: Iterable[bytes]) -> None:
        """Write a new file, and rename it over the old one once it is complete and on disk."""
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
        self.snapshot_bytes, self.record_bytes, self._end_offset = size, 0, end
        if old >= 0:
            os.close(old)

    def _write_draft(self, file: int, secret: bytes, snapshot: Iterable[bytes]) -> tuple[int, int]:
        """Write a new journal and return the sizes in bytes of its snapshot and of the file."""
        size = 0
        with open(file, "wb", closefd=False) as draft:
            draft.write(HEADER + pack_entry(SECRET, self._number, secret))
            for chunk in snapshot:
                draft.write(pack_entry(SNAPSHOT_CHUNK, self._number, chunk))
                size += len(chunk)
            draft.write(pack_entry(SNAPSHOT_END, self._number, b""))
            draft.flush()
            os.fsync(file)
            return size, draft.tell()

    def close(self) -> None:
        """Sync to disk, and close. Idempotent."""
        with suppress(OSError):
            if self._watermark_is_current:
                os.fsync(self._file)
                _fsync_directory(self._folder_fd)
                self._watermark.write(self._number, synced=True)
                self._watermark.sync()
        for descriptor in (self._file, self._folder_fd):
            if descriptor >= 0:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor too
                os.close(descriptor)
        self._file = self._folder_fd = -1
        self._watermark_is_current = False
        self._watermark.close()


def _lock_folder(path: Path) -> int:
    """Open the folder and lock it against other servers, if the file system supports locks."""
    with _wrap_read_errors(path):
        folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise JournalUnreadableError(path, "its folder is in use by another server") from None
    except OSError:
        pass
    return folder


@contextmanager
def _wrap_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalUnreadableError(path, error) from error


@contextmanager
def _wrap_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalWriteError(path, error) from error


def _write_all(file: int, entry: bytes, at: int) -> int:
    """Write ``entry`` at offset ``at`` and return its size.

    A partial write means that the disk is full, and the next write raises the error.
    """
    written = os.pwrite(file, entry, at)
    while written < len(entry):
        written += os.pwrite(file, entry[written:], at + written)
    return written


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        _fsync_directory(folder)
    finally:
        os.close(folder)


def _fsync_directory(folder: int) -> None:
    """Sync the directory entries of the folder, if its file system supports that."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
