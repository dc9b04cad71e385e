"""The journal: every change of the server's state on disk, in the order of their zxids, before anybody hears of it.

Rules for this file: the one file that knows SQLite. It knows no engine and no socket: a record is a zxid and bytes.

What the folder holds::

    journal.sqlite        a snapshot (maybe), the groups of records after it, numbered without gaps, each with a CRC,
                          and a random secret that lives as long as they do
    journal.sqlite-wal    SQLite's write-ahead log
    journal.mark          the number of the last group written, and whether the disk has it, or who has it

A group is what was appended together: one row, for rows are what costs. The mark is what tells a torn tail from a
loss. SQLite forgives a write-ahead log that is cut, damaged or missing: it silently goes back to an older state. The
mark is written after the group is safe and before anybody is told, so a journal that ends before its mark has lost
something that was acknowledged, and is refused.

Safe is what the journal was opened for. ``sync_full``: the disk has it; one fsync for all records of an append.
Otherwise the operating system has it, which no death of this process undoes, but the death of the machine does: then
the mark names the boot in which it was written, and a later boot may find the journal shorter: see ``Contents.lost``.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from distsync.errors import WorldError
from distsync.server.groups import join, split

NAME = "journal.sqlite"
FORMAT = 2
BOOT = Path("/proc/sys/kernel/random/boot_id")
APPLICATION_ID = 0x64737963  # "dsyc": SQLite keeps it in the file's header, where `file` shows it
PAGE_BYTES = 1024  # a small page is written sooner: a transaction writes one or two
LOG_PAGES = 16000  # of PAGE_BYTES: then the log is folded into the file, which waits for the disk; SQLite: 4 MB
COMPACT_BYTES = 4 << 20  # records smaller than this are not worth a snapshot; ZooKeeper: 100,000 records or 4 GB

SCHEMA = f"""
    PRAGMA page_size = {PAGE_BYTES};
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {FORMAT};
    CREATE TABLE secret (value BLOB NOT NULL);
    CREATE TABLE records (number INTEGER PRIMARY KEY, zxid INTEGER, crc INTEGER, payload BLOB NOT NULL);
    CREATE TABLE snapshot (part INTEGER PRIMARY KEY, number INTEGER, crc INTEGER, payload BLOB NOT NULL);
"""


INSERT = "INSERT INTO records VALUES (?, ?, ?, ?)"


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
        self._loaded = False
        if not self.path.exists():
            self._begin()
        with _reading(self.path):
            self._database = _open(self.path, sync_full)

    def _begin(self) -> None:
        """A new journal, unless there are signs of an old one."""
        log = self.path.with_name(NAME + "-wal")
        for sign in (self._mark.path, log):
            if sign.exists() and (sign == log or self._mark.read().number > 0):
                raise JournalCorruptError(self.path, f"it is missing, though {sign.name} is there")
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._mark.write(0, synced=True)
            self._mark.sync()
            _create(self.path)

    def load(self) -> Contents:
        """All that was written and not yet superseded.

        Raises JournalCorruptError when anything is missing or altered."""
        with _reading(self.path):
            self._check_database()
            (secret,) = self._database.execute("SELECT value FROM secret").fetchone()
            contents = Contents(secret, list(self._load_snapshot()), list(self._load_groups()))
        marked = self._mark.read()
        lost = max(0, marked.number - self._number)
        if lost and not marked.may_be_lost:
            told = f"it ends with record {self._number}, but {marked.number} were acknowledged"
            raise JournalCorruptError(self.path, told)
        with _writing(self._mark.path):
            self._mark.write(self._number, synced=self.sync_full)
        self._loaded = True
        return contents._replace(lost=lost)

    def _check_database(self) -> None:
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, FORMAT):
            raise JournalCorruptError(self.path, f"it is not a journal of format {FORMAT}")
        (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise JournalCorruptError(self.path, " ".join(verdict.split()))

    def _load_snapshot(self) -> Iterator[bytes]:
        rows = self._database.execute("SELECT part, number, crc, payload FROM snapshot ORDER BY part")
        for expected, (part, number, crc, payload) in enumerate(rows):
            if part != expected or crc != _crc(part, number, payload):
                raise JournalCorruptError(self.path, f"part {expected} of the snapshot is not what was written")
            self._number = number
            self.snapshot_bytes += len(payload)
            yield payload

    def _load_groups(self) -> Iterator[tuple[int, bytes]]:
        rows = self._database.execute("SELECT number, zxid, crc, payload FROM records ORDER BY number")
        for number, zxid, crc, payload in rows:
            if number != self._number + 1:
                raise JournalCorruptError(self.path, f"record {self._number + 1} is missing")
            if crc != _crc(number, zxid, payload):
                raise JournalCorruptError(self.path, f"record {number} is not what was written")
            self._number = number
            self.record_bytes += len(payload)
            yield from split(payload)

    def append(self, records: Sequence[tuple[int, bytes]]) -> None:
        """All of ``records`` are on disk, as one transaction.

        Raises JournalWriteError: then none of them is."""
        if not records:
            return
        number, zxid, payload = self._number + 1, records[-1][0], join(records)
        with _writing(self.path):
            self._database.execute(INSERT, (number, zxid, _crc(number, zxid, payload), payload))  # commits, too
            self._mark.write(number, synced=self.sync_full)
        self._number = number
        self.record_bytes += len(payload)

    @property
    def wants_compaction(self) -> bool:
        """Whether there is so much after the snapshot that a new one pays: each byte is copied twice at most."""
        return self.record_bytes > max(COMPACT_BYTES, self.snapshot_bytes)

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """``snapshot``, the state after the last record in pieces, stands for all records so far.

        Raises JournalWriteError: then the old snapshot and its records are still there."""
        with _writing(self.path):
            self._transact(
                ("DELETE FROM snapshot", [()]),
                ("DELETE FROM records", [()]),
                ("INSERT INTO snapshot VALUES (?, ?, ?, ?)", self._parts(snapshot)),
            )
            (size,) = self._database.execute("SELECT total(length(payload)) FROM snapshot").fetchone()
        self.snapshot_bytes, self.record_bytes = int(size), 0

    def _parts(self, snapshot: Iterable[bytes]) -> Iterator[tuple[object, ...]]:
        for part, payload in enumerate(snapshot):
            yield part, self._number, _crc(part, self._number, payload), payload

    def _transact(self, *statements: tuple[str, Iterable[tuple[object, ...]]]) -> None:
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for statement, rows in statements:
                self._database.executemany(statement, rows)

    def close(self) -> None:
        """The write-ahead log is folded into the main file; calling again is allowed."""
        with suppress(sqlite3.Error, OSError):  # a full disk: the log stays beside the file, for the next start
            self._database.close()
            if self._loaded and not self.path.with_name(NAME + "-wal").exists():  # all is in the file, and synced
                self._mark.write(self._number, synced=True)
                self._mark.sync()
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
    except (sqlite3.OperationalError, OSError) as error:
        raise JournalUnreadableError(path, error) from error
    except sqlite3.DatabaseError as error:
        raise JournalCorruptError(path, error) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalWriteError(path, error) from error


def _crc(number: int, other: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(b"%d %d" % (number, other)))


def _create(path: Path) -> None:
    """The journal appears under its name only when it is complete: an empty file is never taken for a new one."""
    draft = path.with_name(NAME + ".new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(draft)) as database:
        database.executescript(SCHEMA)
        database.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
        database.commit()
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _boot() -> bytes:
    """Another one after each start of the machine; the same for ever where the system does not tell."""
    return BOOT.read_bytes().strip()[:36] if BOOT.exists() else b"unknown"


def _open(path: Path, sync_full: bool) -> sqlite3.Connection:
    """Exclusive locking keeps SQLite's index of the log in memory, and every other process out."""
    if path.stat().st_size == 0:  # SQLite takes an empty file for a new database
        raise JournalCorruptError(path, "it is empty")
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        database.execute(f"PRAGMA synchronous = {'FULL' if sync_full else 'NORMAL'}")
    except sqlite3.Error:
        database.close()
        raise
    return database
