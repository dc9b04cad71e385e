"""Collect the statistics for four-letter words, from the engine, the connections and the process."""

from __future__ import annotations

import getpass
import os
import platform
import resource
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from distsync._server.admin.four_letter_words import ALL, CHANGING, ConnectionRow, DetailLists, Metrics, answer_to
from distsync._server.autostart.address_file import NONCE_BYTES, PROVE, prove
from distsync._server.engine import Engine

WORD_BYTES = 4
NAMES = frozenset(word.encode() for word in ALL)


class ConnectionStatistics(Protocol):
    """The statistics of a connection."""

    received: int
    sent: int

    def metrics(self) -> ConnectionRow: ...


class ServerStatistics:
    """The statistics of a server, and its answers to four-letter words."""

    def __init__(self, engine: Engine, data_dir: Path, allowed: frozenset[str], secret: str | None) -> None:
        self.port = 0
        self.connections: Collection[ConnectionStatistics] = ()
        self._engine = engine
        self._data_dir = data_dir
        self._allowed = ALL if "*" in allowed else allowed
        self._secret = secret
        self._started = time.monotonic()
        self.reset()

    def reset(self) -> None:
        """Reset the counters of the server."""
        self._received = self._sent = self._turns = 0
        self._shortest = self._longest = self._all_turns = 0.0

    def on_close(self, connection: ConnectionStatistics) -> None:
        self._received += connection.received
        self._sent += connection.sent

    def record_latency(self, seconds: float) -> None:
        """Record the time from the first request of a turn of the loop until its replies were sent."""
        self._shortest = min(self._shortest, seconds) if self._turns else seconds
        self._longest = max(self._longest, seconds)
        self._all_turns += seconds
        self._turns += 1

    def answer(self, head: bytes) -> bytes | None:
        """Return the answer to a four-letter word at the start of a connection.

        None if it is not one; empty if more input is needed.
        """
        if head.startswith(PROVE) and self._secret is not None:
            nonce = head[len(PROVE) :]
            return prove(self._secret, nonce, self.port) if len(nonce) >= NONCE_BYTES else b""
        if head[:WORD_BYTES] not in NAMES:
            return None
        word = head[:WORD_BYTES].decode()
        if word not in self._allowed:
            return f"{word} is not executed because it is not in the whitelist.\n".encode()
        text = answer_to(word, self._metrics, self._details)
        if word in CHANGING:
            self._reset_counters(server=word == "srst")
        return text.encode()

    def _reset_counters(self, server: bool) -> None:
        for connection in self.connections:
            connection.received = connection.sent = 0
        if server:
            self.reset()

    def _connection_rows(self) -> tuple[ConnectionRow, ...]:
        return tuple(connection.metrics() for connection in self.connections)

    def _metrics(self) -> Metrics:
        config, rows = self._engine.config, self._connection_rows()
        counts = self._engine.statistics(time.time_ns() // 1_000_000)
        average = self._all_turns / self._turns if self._turns else 0.0
        return Metrics(
            port=self.port,
            data_dir=str(self._data_dir),
            zxid=counts.zxid,
            nodes=counts.znodes,
            watches=counts.watches,
            ephemerals=counts.ephemerals,
            data_bytes=counts.data_bytes,
            sessions=counts.sessions,
            received=self._received + sum(row.received for row in rows),
            sent=self._sent + sum(row.sent for row in rows),
            latency=(self._shortest * 1000, average * 1000, self._longest * 1000),
            uptime_ms=int((time.monotonic() - self._started) * 1000),
            tick_ms=config.tick_time_ms,
            min_timeout_ms=config.min_session_timeout_ms,
            max_timeout_ms=config.max_session_timeout_ms,
            jute_maxbuffer=config.jute_maxbuffer,
            descriptors=(_open_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            connections=rows,
            environment=_environment(),
        )

    def _details(self) -> DetailLists:
        engine = self._engine
        owned = {id: list(paths) for id, paths in engine.tree.ephemerals.items() if paths}
        expiries = [(_date(at_ms), ids) for at_ms, ids in sorted(engine.expiries().items())]
        return DetailLists(expiries, owned, engine.data_watches(), self._connection_rows())


def _date(at_ms: int) -> str:
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(at_ms // 1000))


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1


def _environment() -> dict[str, str]:
    """Return the versions and the host for ``envi``. Contains no environment variables."""
    return {
        "host.name": platform.node(),
        "python.version": platform.python_version(),
        "python.executable": sys.executable,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": _user(),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
