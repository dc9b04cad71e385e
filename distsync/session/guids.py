"""Names that nobody else gives: random UUIDs, made many at a time.

Rules for this file: one of these belongs to one client in one process; a forked child has clients, and so guids, of its
own. Chance is asked for rarely: each question lets other threads run in between, which costs more than the answer.
"""

from __future__ import annotations

import os

BATCH_SIZE = 64
DIGITS = 32
_VARIANT = "89ab"


class Guids:
    """Any thread may take one."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def take(self) -> str:
        """Another one, as ``str(uuid.uuid4())`` writes it."""
        while True:
            try:
                return self._made.pop()
            except IndexError:
                digits = os.urandom(BATCH_SIZE * DIGITS // 2).hex()
                self._made += [written(digits[at : at + DIGITS]) for at in range(0, len(digits), DIGITS)]


def written(digits: str) -> str:
    """With the marks of version 4, RFC 4122, 4.4."""
    variant = _VARIANT[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
