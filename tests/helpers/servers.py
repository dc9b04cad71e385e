"""Real servers for the tests, each a process of its own on loopback: the embedded one, and Java's ZooKeeper.

Both are driven alike: start, stop, kill, pause, resume, restart. A restarted server keeps its port and its data.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distsync.testing.java_process import reserved_port
from helpers.timing import UNIT, eventually

LOOPBACK = "127.0.0.1"
JARS = Path("/usr/share/java")
START_LIMIT = 600 * UNIT
STOP_LIMIT = 200 * UNIT
REAPING_S = 86_400
"""Containers stay as long as the tests run: one that goes between two calls costs requests."""

TICK_MS = 500
"""Session time-outs from 2 to 20 ticks may be asked of ZooKeeper, 1 to 10 s."""


class ServerProcess:
    """A server on loopback with its data in ``folder``."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        """What to run; the server listens on ``self.port``, or on a port of its own choice if that is 0."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it answers; sets ``port``."""
        raise NotImplementedError

    @property
    def hosts(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self) -> None:
        """The server answers."""
        command = self.command()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            eventually(self._up, f"{self.name} server does not answer", START_LIMIT)
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}; its output:\n{self.output()}") from None

    def stop(self) -> None:
        """The server has ended in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """The server is dead, without a chance to clean up."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """The server does nothing; its sockets stay open."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until all its threads stand

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self, kill: bool = False) -> None:
        """The server answers again, on the same port, with what it had acknowledged."""
        self.kill() if kill else self.stop()
        self.start()

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; empty when nobody answers."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=20 * UNIT) as link:
                link.sendall(word.encode())
                return b"".join(iter(lambda: link.recv(65536), b"")).decode()
        except OSError:
            return ""

    def figures(self) -> dict[str, str]:
        """What ``mntr`` tells, by name."""
        return dict(line.split("\t", 1) for line in self.ask("mntr").splitlines() if "\t" in line)

    @property
    def version(self) -> tuple[int, ...]:
        """Of ZooKeeper: what it is, or whose behaviour it has."""
        told = self.ask("srvr").partition("version: ")[2].partition("-")[0]
        return tuple(map(int, told.split(".")))

    def output(self) -> str:
        """What the server printed since its last start."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} server exited with {self.process.returncode}")
        return self.ready()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class EmbeddedProcess(ServerProcess):
    """``python -m distsync serve``."""

    name = "embedded"

    def command(self) -> list[str]:
        where = ["--host", LOOPBACK, "--port", str(self.port), "--data-dir", str(self.folder / "data")]
        return [sys.executable, "-m", "distsync", "serve", *where, "--reaping-interval", str(REAPING_S)]

    def ready(self) -> bool:
        for line in self.output().splitlines():
            if line.startswith("listening on "):
                self.port = int(line.rpartition(":")[2])
                return True
        return False


class ZooKeeperProcess(ServerProcess):
    """Java's ZooKeeper, standalone. It does not wait for the disk: tests kill processes, not machines."""

    name = "zookeeper"

    @staticmethod
    def missing() -> str:
        """Why it cannot be started here; empty if it can."""
        if not shutil.which("java"):
            return "no java executable in PATH"
        if not os.environ.get("ZOOKEEPER_CLASSPATH") and not (JARS / "zookeeper.jar").exists():
            return "no ZooKeeper: install Debian's package zookeeper or set ZOOKEEPER_CLASSPATH"
        return ""

    def start(self) -> None:
        """Until it listens nobody else is given its port."""
        with keeping(self.port) as self.port:
            super().start()

    def command(self) -> list[str]:
        settings = self.folder / "zoo.cfg"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        properties = {
            "zookeeper.admin.enableServer": "false",
            "zookeeper.forceSync": "no",
            "zookeeper.extendedTypesEnabled": "true",
            "znode.container.checkIntervalMs": str(1000 * REAPING_S),
            "org.slf4j.simpleLogger.defaultLogLevel": "warn",
            "org.apache.logging.log4j.level": "warn",
        }
        flags = [f"-D{key}={value}" for key, value in properties.items()]
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *flags]
        return [*java, "-cp", self.classpath(), "org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)]

    def ready(self) -> bool:
        return self.ask("srvr").startswith("Zookeeper version")  # ruok says imok before the data is loaded

    def _settings(self) -> dict[str, object]:
        return {
            "dataDir": self.folder / "data",
            "clientPortAddress": LOOPBACK,
            "clientPort": self.port,
            "tickTime": TICK_MS,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }

    @staticmethod
    def classpath() -> str:
        debian = f"{JARS / 'zookeeper.jar'}:{JARS / 'slf4j-simple.jar'}"
        return os.environ.get("ZOOKEEPER_CLASSPATH") or debian


@contextmanager
def keeping(port: int = 0) -> Iterator[int]:
    """Reserve a port of loopback (0 for any) on which no process listens, and that the system assigns
    to no other.
    """
    with reserved_port(port) as kept:
        yield kept.getsockname()[1]


KINDS: dict[str, type[ServerProcess]] = {kind.name: kind for kind in (EmbeddedProcess, ZooKeeperProcess)}


def need_zookeeper() -> None:
    """Skips where there is no ZooKeeper; fails instead where there has to be one."""
    lacking = ZooKeeperProcess.missing()
    if lacking and (os.environ.get("DISTSYNC_TEST_NEED_ZOOKEEPER") or os.environ.get("CI")):
        pytest.fail(lacking, pytrace=False)
    if lacking:
        pytest.skip(lacking)
