"""GUIDs, generated in batches: os.urandom() releases the GIL, which costs more than the bytes."""

from __future__ import annotations

import os

from distsync._signal_handlers import raise_if_from_handler

GUID_BATCH_SIZE = 64
GUID_DIGITS = 32
_GUID_VARIANT = "89ab"


class Guids:
    """Source of GUIDs for one client in one process. Thread-safe."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def take(self) -> str:
        """Return a new GUID in the format of ``str(uuid.uuid4())``."""
        while True:
            try:
                return self._made.pop()
            except IndexError as error:
                raise_if_from_handler(error)
                digits = os.urandom(GUID_BATCH_SIZE * GUID_DIGITS // 2).hex()
                self._made += [format_guid(digits[at : at + GUID_DIGITS]) for at in range(0, len(digits), GUID_DIGITS)]


def format_guid(digits: str) -> str:
    """Return 32 hexadecimal digits as a GUID of version 4 (RFC 4122, 4.4)."""
    variant = _GUID_VARIANT[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
