"""Errors of the journal."""

from __future__ import annotations

from distsync.errors import UnavailableError


class JournalError(UnavailableError):
    """The journal cannot be used, and the server stops. Its ``args`` are the file and the reason."""


class JournalUnreadableError(JournalError):
    """The journal cannot be opened or read, or another server uses it."""

    template = (
        "cannot read the journal {0} ({1}): this user needs read and write access, and no other server may use it"
    )


class JournalCorruptError(JournalError):
    """The content of the journal is not what was written."""

    template = (
        "the journal {0} is corrupt ({1}): restore its folder from a backup, "
        "or move the folder away to start with an empty tree"
    )


class JournalWriteError(JournalError):
    """Records could not be written. None of them was written, and none may be acknowledged."""

    template = (
        "cannot write to the journal {0} ({1}): free space on the disk, give this user write access, "
        "raise a limit of file sizes (ulimit -f), and start the server again"
    )
