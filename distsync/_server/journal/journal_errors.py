"""What a journal raises.

Rules for this file: errors only.
"""

from __future__ import annotations

from distsync.errors import UnavailableError


class JournalError(UnavailableError):
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

    template = (
        "cannot write to the journal {0} ({1}): make room on the disk, let this user write there, "
        "and start the server again"
    )
