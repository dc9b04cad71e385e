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
the mark names the boot in which it was written, and a later boot may find the journal shorter: see ``Contents.lost``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from distsync.errors import WorldError
from distsync.server.entries import GROUP, PART, SECRET, WHOLE, Entry, join, pack_entry, read_entries, split

NAME = "journal.log"
HEADER = b"distsync journal, format 3\n"
BOOT = Path("/proc/sys/kernel/random/boot_id")
COMPACT_BYTES = 4 << 20  # records smaller than this are not worth a snapshot; ZooKeeper: 100,000 records or 4 GB


class JournalError(WorldError):
    """The journal cannot be used; the server stops. Fields: the file, what is wrong with it."""


class JournalUnreadableError(JournalError):
    """The operating system or another program keeps us from reading it."""

    template = "cannot read the journal {0} ({1}): let this user read and write it, and nobody else use it"


class JournalCorruptError(JournalError):
    """What was written is not what is read."""

    template = (
        "the journal {0} is corrupt ({1}): restore its folder from a backup, "
        "or move the folder away to start with nothing"
    )


class JournalWriteError(JournalError):
    """A record could not be written: none of its transaction was, and none of it may be acknowledged."""

    template = "cannot write to the journal {0} ({1}): make room on the disk and start the server again"


class Contents(NamedTuple):
    """What a journal holds: records are pairs of zxid and payload, in the order in which they were appended."""

    secret: bytes
    snapshot: list[bytes]
    records: list[tuple[int, bytes]]
    lost: int = 0
    """At least so many records at the end went with the machine, which had not been asked to keep them."""


class Journal:
    """Records that survive the death of the process and of the machine."""

    def __init__(self, folder: Path, *, sync_full: bool = False) -> None:
        self.path = folder / NAME
        self.sync_full = sync_full
        self.snapshot_bytes = 0
        self.record_bytes = 0
        self._mark = Mark(folder / "journal.mark")
        self._number = 0
        self._end = 0
        self._secret = b""
        self._whole = False
        self._file = -1
        self._loaded = False
        if not self.path.exists():
            self._begin()
        with _reading(self.path):
            self._file = os.open(self.path, os.O_RDWR)

    def _begin(self) -> None:
        """A new journal, unless there are signs of an old one."""
        if self._mark.path.exists() and self._mark.read().number > 0:
            raise JournalCorruptError(self.path, f"it is missing, though {self._mark.path.name} is there")
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._mark.write(0, synced=True)
            self._mark.sync()
            self._replace(secrets.token_bytes(32), ())

    def load(self) -> Contents:
        """All that was written and not yet superseded. What is torn at the end is cut off.

        Raises JournalCorruptError when anything is missing or altered."""
        with _reading(self.path):
            contents = self._read()
        marked = self._mark.read()
        lost = max(0, marked.number - self._number)
        if lost and not marked.may_be_lost:
            told = f"it ends with record {self._number}, but {marked.number} were acknowledged"
            raise JournalCorruptError(self.path, told)
        with _writing(self.path):
            os.ftruncate(self._file, self._end)
            self._mark.write(self._number, synced=self.sync_full)
        self._loaded = True
        return contents._replace(lost=lost)

    def _read(self) -> Contents:
        contents = Contents(b"", [], [])
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

    def _take(self, contents: Contents, entry: Entry) -> None:
        """The next entry of the file."""
        kind, number, payload = entry
        if kind == SECRET:
            self._secret, self._number = payload, number
        if number != self._number + (kind == GROUP):
            raise JournalCorruptError(self.path, f"record {self._number + 1} is missing")
        self._number = number
        self._whole = self._whole or kind == WHOLE
        if kind == PART:
            contents.snapshot.append(payload)
            self.snapshot_bytes += len(payload)
        elif kind == GROUP:
            contents.records.extend(split(payload))
            self.record_bytes += len(payload)

    def append(self, records: Sequence[tuple[int, bytes]]) -> None:
        """All of ``records`` are safe, or none.

        Raises JournalWriteError: then none of them is."""
        if not records:
            return
        number, group = self._number + 1, join(records)
        try:
            size = _write_all(self._file, pack_entry(GROUP, number, group), self._end)
            if self.sync_full:
                os.fdatasync(self._file)
            self._mark.advance(number)
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
            old, self._file = self._file, os.open(self.path, os.O_RDWR)
            os.close(old)

    def _replace(self, secret: bytes, snapshot: Iterable[bytes]) -> None:
        """A new file takes the place of the old one when it is complete, and on the disk."""
        draft, size = self.path.with_name("journal.new"), 0
        with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(HEADER + pack_entry(SECRET, self._number, secret))
            for part in snapshot:
                file.write(pack_entry(PART, self._number, part))
                size += len(part)
            file.write(pack_entry(WHOLE, self._number, b""))
            file.flush()
            os.fsync(file.fileno())
            end = file.tell()
        os.replace(draft, self.path)
        _sync_folder(self.path.parent)
        self.snapshot_bytes, self.record_bytes, self._end = size, 0, end

    def close(self) -> None:
        """All is on the disk; calling again is allowed."""
        with suppress(OSError):
            if self._loaded:
                os.fsync(self._file)
                self._mark.write(self._number, synced=True)
                self._mark.sync()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._loaded = False
        self._mark.close()


SYNCED = b"synced"  # in the place of a boot: the disk has it


class Marked(NamedTuple):
    """What the mark says. ``may_be_lost``: the machine has died since, and the disk had not been waited for."""

    number: int
    may_be_lost: bool


class Mark:
    """The number of the last record, in a file of its own: 20 digits and SYNCED or a boot, overwritten in place.

    It is synced at the beginning and the end, so that it never is empty beside a journal that is there. In between it
    is not: when the machine dies it may be too low, which only makes the check weaker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._boot = _boot()

    def read(self) -> Marked:
        try:
            number, *where = self.path.read_bytes().split()
            return Marked(int(number), where not in ([], [SYNCED], [self._boot]))
        except (OSError, ValueError) as error:
            raise JournalCorruptError(self.path, error) from error

    def write(self, number: int, *, synced: bool) -> None:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._file, b"%020d %-36s\n" % (number, SYNCED if synced else self._boot), 0)

    def advance(self, number: int) -> None:
        """Another number, on the same terms."""
        assert self._file is not None
        os.pwrite(self._file, b"%020d" % number, 0)

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


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
    done = os.pwrite(file, entry, at)
    while done < len(entry):
        done += os.pwrite(file, entry[done:], at + done)
    return done


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _boot() -> bytes:
    """Another one after each start of the machine; the same for ever where the system does not tell."""
    return BOOT.read_bytes().strip()[:36] if BOOT.exists() else b"unknown"
