"""Signals that tell a command to end.

Rules for this file: it notes them; what is done then, its command knows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any


class SignalListener:
    """What signals have told this process. One may strike while another one is noted: what notes it takes no lock."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self.signals.append(number))

    @property
    def twice(self) -> bool:
        """Whether Ctrl-C came after it was told to go. Who sends SIGTERM may send it to the group as well."""
        return signal.SIGINT in self.signals[1:]

    def wait(self, others: Sequence[Any] = (), seconds: float | None = None) -> None:
        """Something was told, or one of ``others`` is ready, or so much time is over."""
        if self._reader in connection.wait([*others, self._reader], seconds):
            os.read(self._reader, 4096)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)
