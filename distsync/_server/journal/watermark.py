"""The watermark beside the journal: how far it was written, and whether that is on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from distsync._server.journal.journal_errors import JournalCorruptError, JournalUnreadableError

BOOT = Path("/proc/sys/kernel/random/boot_id")
SYNCED = b"synced"  # instead of a boot id: the journal is on disk
UNKNOWN = b"unknown"  # no boot id is available: the machine may have rebooted


class WatermarkState(NamedTuple):
    """The content of the watermark.

    Attributes:
        number: Number of the last append.
        may_be_lost: Whether the machine may have crashed since, with appends not yet on disk.
    """

    number: int
    may_be_lost: bool


class Watermark:
    """The number of the last append, in its own file: 20 digits, then SYNCED or the boot id.

    It is overwritten in place. It is synced when it is created and closed, and when a boot id is
    first written, so that it is never empty beside an existing journal. Other updates are not
    synced: after a crash of the machine, the number may be too low.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._boot = _boot()

    @property
    def is_empty(self) -> bool:
        """Whether the file is missing, or the process or machine crashed while creating it."""
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
        """Update the number only."""
        assert self._file is not None
        os.pwrite(self._file, b"%020d" % number, 0)

    def content(self) -> bytes:
        return self.path.read_bytes()

    def restore(self, content: bytes) -> None:
        """Restore the content from before a failed write."""
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
    """Return the id of the current boot of the machine."""
    try:
        return BOOT.read_bytes().strip()[:36] or UNKNOWN
    except OSError:
        return UNKNOWN
