"""Java's ZooKeeper, as processes that end when this one does, however that one ends.

Rules for this file: how a process of Java is found, started and ended; what a server is told, ensemble_server.py knows.

A `ProcessGuard` is a process too, ``python -m distsync.testing.java_process``: it is told who is to end with us, and
reads until we are gone. A server begins as a shell that waits until the guardian knows it, and becomes Java then.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from distsync._server.autostart.find_or_start import server_environment
from distsync._server.file_lock import open_private
from distsync.errors import ServerStartError

LOOPBACK = "127.0.0.1"
DEBIAN = Path("/usr/share/java")
"""Where Debian's packages keep jars."""

CLASSPATH = "ZOOKEEPER_CLASSPATH"

SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Servers of tests start fast, and five of them fit on two cores."""

WAITS = 'read -r _ && exec "$@" </dev/null'


class EnsembleError(ServerStartError):
    """An ensemble does not do what is waited for. Fields: what is the matter, the log of the server."""

    template = "the ensemble is not ready: {0}. See the log, {1}"


def missing() -> str:
    """Why no ZooKeeper can be started here; empty if one can."""
    if not shutil.which("java"):
        return "there is no java here"
    if not os.environ.get(CLASSPATH) and not (DEBIAN / "zookeeper.jar").exists():
        return f"no ZooKeeper: install Debian's package zookeeper or set {CLASSPATH}"
    return ""


def classpath() -> str:
    """ZOOKEEPER_CLASSPATH, else Debian's jars, which name those that they need."""
    return os.environ.get(CLASSPATH) or f"{DEBIAN / 'zookeeper.jar'}:{DEBIAN / 'slf4j-simple.jar'}"


def command(properties: Mapping[str, object], main: str, *arguments: str) -> list[str]:
    """What to run."""
    flags = [f"-D{key}={value}" for key, value in properties.items()]
    return ["java", *SMALL, *flags, "-cp", classpath(), main, *arguments]


def reserved_port(port: int = 0) -> socket.socket:
    """A socket that keeps a port of loopback, 0 is any, for a server that binds it with SO_REUSEADDR, as Java does."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((LOOPBACK, port))
    return kept


class ProcessGuard:
    """Ends, with this process, the children that it was told of, and removes ``folder``."""

    def __init__(self, folder: Path | None = None) -> None:
        words = [sys.executable, "-m", __name__, *([str(folder)] if folder else [])]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, env=server_environment(), start_new_session=True)

    def spawn(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        """A child that ends with us. What it prints goes to ``log``."""
        with open(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
            child = subprocess.Popen(
                ["sh", "-c", WAITS, "sh", *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                start_new_session=True,
            )
        assert child.stdin is not None
        self._send(f"+{child.pid}")
        with suppress(BrokenPipeError), child.stdin:
            child.stdin.write(b"\n")
        return child

    def after_fork_in_child(self, pid: int) -> None:
        """This child is about to end, and its number may soon be another one's."""
        self._send(f"-{pid}")

    def close(self) -> None:
        """The children that are left are dead."""
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EnsembleError("the process that ends it with us is gone", "its standard error") from None


def guard(lines: Iterable[str]) -> Iterator[int]:
    """Who is left when there is nothing more to read: each line is ``+PID`` or ``-PID``."""
    remaining: set[int] = set()
    for line in lines:
        change = remaining.add if line.startswith("+") else remaining.discard
        change(int(line[1:]))
    yield from remaining


def main(*folders: str) -> None:
    """The guardian."""
    for pid in guard(sys.stdin):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
