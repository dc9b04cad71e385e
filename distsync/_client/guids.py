"""GUIDs, made many at a time: each request for random bytes lets other threads run, which costs more than the bytes."""

from __future__ import annotations

import os

GUID_BATCH_SIZE = 64
GUID_DIGITS = 32
_GUID_VARIANT = "89ab"


class Guids:
    """The GUIDs of one client in one process. Any thread may take one."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def take(self) -> str:
        """Return a new one, as ``str(uuid.uuid4())`` writes it."""
        while True:
            try:
                return self._made.pop()
            except IndexError:
                digits = os.urandom(GUID_BATCH_SIZE * GUID_DIGITS // 2).hex()
                self._made += [format_guid(digits[at : at + GUID_DIGITS]) for at in range(0, len(digits), GUID_DIGITS)]


def format_guid(digits: str) -> str:
    """Return ``digits``, 32 hexadecimal ones, with the marks of version 4 (RFC 4122, 4.4)."""
    variant = _GUID_VARIANT[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
