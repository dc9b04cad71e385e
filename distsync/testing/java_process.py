"""Processes of Java's ZooKeeper that end when this process ends, even if it is killed.

A `ProcessGuard` is a process too, ``python -m distsync.testing.java_process``. It gets the ids of
the processes to end, and reads until this process is gone. A server starts as a shell that becomes
Java once the guard knows its id.
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
"""Folder of the jars of Debian's packages."""

CLASSPATH = "ZOOKEEPER_CLASSPATH"

SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options for fast-starting servers, five of which fit on two cores."""

WAITS = 'read -r _ && exec "$@" </dev/null'


class EnsembleError(ServerStartError):
    """An ensemble is not ready. Arguments: the reason, the log of the server."""

    template = "the ensemble is not ready: {0}. See the log, {1}"


def missing() -> str:
    """Return why no ZooKeeper can be started here; empty if one can."""
    if not shutil.which("java"):
        return "no java executable in PATH"
    if not os.environ.get(CLASSPATH) and not (DEBIAN / "zookeeper.jar").exists():
        return f"no ZooKeeper: install Debian's package zookeeper or set {CLASSPATH}"
    return ""


def classpath() -> str:
    """Return ZOOKEEPER_CLASSPATH, or Debian's jars, whose manifests name the others."""
    return os.environ.get(CLASSPATH) or f"{DEBIAN / 'zookeeper.jar'}:{DEBIAN / 'slf4j-simple.jar'}"


def command(properties: Mapping[str, object], main: str, *arguments: str) -> list[str]:
    """Return the command line."""
    flags = [f"-D{key}={value}" for key, value in properties.items()]
    return ["java", *SMALL, *flags, "-cp", classpath(), main, *arguments]


def reserved_port(port: int = 0) -> socket.socket:
    """Return a socket that reserves a port of loopback (0 for any) for a server that binds it with
    SO_REUSEADDR, as Java does.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, port))
    return reserved


class ProcessGuard:
    """Kills its children when this process ends, and deletes ``folder``."""

    def __init__(self, folder: Path | None = None) -> None:
        words = [sys.executable, "-m", __name__, *([str(folder)] if folder else [])]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, env=server_environment(), start_new_session=True)

    def spawn(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a child that ends with this process, and append its output to ``log``."""
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
        """Forget a child that is about to end, because its process id may be reused."""
        self._send(f"-{pid}")

    def close(self) -> None:
        """Kill the remaining children."""
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EnsembleError("the process that guards its servers has exited", "its standard error") from None


def guard(lines: Iterable[str]) -> Iterator[int]:
    """Yield the remaining process ids at the end of the input. Each line is ``+PID`` or ``-PID``."""
    remaining: set[int] = set()
    for line in lines:
        change = remaining.add if line.startswith("+") else remaining.discard
        change(int(line[1:]))
    yield from remaining


def main(*folders: str) -> None:
    """Run the guard."""
    for pid in guard(sys.stdin):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
