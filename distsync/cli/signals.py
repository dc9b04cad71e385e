"""Signals that end a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any


class SignalListener:
    """Collects SIGTERM and SIGINT. It takes no lock, because a signal may arrive while another one is
    handled.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self.signals.append(number))

    @property
    def twice(self) -> bool:
        """Whether Ctrl-C followed the first signal. A repeated SIGTERM does not count: it may be sent
        to the whole group.
        """
        return signal.SIGINT in self.signals[1:]

    def wait(self, others: Sequence[Any] = (), seconds: float | None = None) -> None:
        """Wait for a signal, for one of ``others`` to become ready, or until ``seconds`` have passed."""
        if self._reader in connection.wait([*others, self._reader], seconds):
            os.read(self._reader, 4096)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)
