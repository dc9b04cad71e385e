"""What the server says on standard error, or into server.log: lines, and not too many of them.

Rules for this file: whoever can connect can make the server say something; so what is said is bounded.
"""

from __future__ import annotations

import logging
import time

LINES = 100
SECONDS = 60.0


class RateLimitFilter(logging.Filter):
    """At most LINES in SECONDS below errors; then one that tells how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._began = 0.0
        self._said = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        left_out = self._begin_anew(time.monotonic())
        if left_out > 0:
            record.msg = f"({left_out} lines were left out) {record.msg}"
        self._said += 1
        return self._said <= LINES

    def _begin_anew(self, now: float) -> int:
        if now - self._began < SECONDS:
            return 0
        left_out, self._began, self._said = self._said - LINES, now, 0
        return left_out


def log_to_standard_error() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s", handlers=[handler])
