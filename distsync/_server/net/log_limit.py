"""Logging to standard error with a rate limit, because any client that can connect can cause log lines."""

from __future__ import annotations

import logging
import time

LINES = 100
SECONDS = 60.0


class RateLimitFilter(logging.Filter):
    """Passes at most LINES records below ERROR in SECONDS. The next record then reports how many were suppressed."""

    def __init__(self) -> None:
        super().__init__()
        self._period_start = 0.0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        suppressed = self._start_period(time.monotonic())
        if suppressed > 0:
            record.msg = f"({suppressed} lines suppressed) {record.msg}"
        self._count += 1
        return self._count <= LINES

    def _start_period(self, now: float) -> int:
        if now - self._period_start < SECONDS:
            return 0
        suppressed, self._period_start, self._count = self._count - LINES, now, 0
        return suppressed


def log_to_standard_error() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s", handlers=[handler])
