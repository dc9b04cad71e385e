"""The mark beside the journal: how far it was written, and in whose keeping that is.

Rules for this file: one small file, read and overwritten; it knows no records.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from distsync._server.journal.journal_errors import JournalCorruptError, JournalUnreadableError

BOOT = Path("/proc/sys/kernel/random/boot_id")
SYNCED = b"synced"  # in the place of a boot: the disk has it
UNKNOWN = b"unknown"  # the system does not tell: any boot may be another one


class WatermarkState(NamedTuple):
    """What the mark says. ``may_be_lost``: the machine has died since, and the disk had not been waited for."""

    number: int
    may_be_lost: bool


class Watermark:
    """The number of the last append, in a file of its own: 20 digits and SYNCED or a boot, overwritten in place.

    It is synced at the beginning and the end, and when it first names a boot, so that it never is empty beside a
    journal that is there. In between it is not: when the machine dies it may be too low, but not of this boot."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._boot = _boot()

    @property
    def is_empty(self) -> bool:
        """There is none, or the process or the machine died as it made it."""
        try:
            return not self.path.read_bytes().strip(b"\0")
        except FileNotFoundError:
            return True
        except OSError as error:
            raise JournalUnreadableError(self.path, error) from error

    def read(self) -> WatermarkState:
        try:
            number, *where = self.path.read_bytes().split()
            certain = not where or (where[0] in (SYNCED, self._boot) and where[0] != UNKNOWN)
            return WatermarkState(int(number), not certain)
        except (FileNotFoundError, ValueError) as error:
            raise JournalCorruptError(self.path, error) from error
        except OSError as error:
            raise JournalUnreadableError(self.path, error) from error

    def write(self, number: int, *, synced: bool) -> None:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._file, b"%020d %-36s\n" % (number, SYNCED if synced else self._boot), 0)

    def advance(self, number: int) -> None:
        """Another number, on the same terms."""
        assert self._file is not None
        os.pwrite(self._file, b"%020d" % number, 0)

    def content(self) -> bytes:
        """As it stands in the file."""
        return self.path.read_bytes()

    def restore(self, content: bytes) -> None:
        """What it was before a write that failed."""
        if self._file is not None:
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _boot() -> bytes:
    """Another one after each start of the machine."""
    try:
        return BOOT.read_bytes().strip()[:36] or UNKNOWN
    except OSError:
        return UNKNOWN
