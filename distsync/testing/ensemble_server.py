"""``EnsembleServer``: one server of an ``Ensemble``, a Java process, and its faults."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distsync._client.clocks import wait_clock
from distsync._client.ensemble_status import Role, Server, ask
from distsync.errors import UsageError
from distsync.testing import java_process
from distsync.testing.connection_faults import FaultInjectable, say
from distsync.testing.faulty_proxy import Proxy
from distsync.testing.java_process import LOOPBACK, EnsembleError, ProcessGuard

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_S = 60.0
STOP_S = 10.0
"""Seconds after which a process that has not ended is killed."""

ANSWER_S = 2.0

SERVING = (Role.LEADER, Role.FOLLOWER, Role.OBSERVER, Role.STANDALONE)

PROPERTIES: Mapping[str, object] = {
    "zookeeper.admin.enableServer": "false",
    "zookeeper.forceSync": "no",  # tests kill processes, not machines
    "zookeeper.extendedTypesEnabled": "true",
    "zookeeper.nio.numSelectorThreads": 1,
    "zookeeper.nio.numWorkerThreads": 2,
    "zookeeper.commitProcessor.numWorkerThreads": 1,
    "zookeeper.preAllocSize": 4096,  # kB
    "zookeeper.cnxTimeout": 2000,  # ms to connect to an election port
    "zookeeper.fastleader.maxNotificationInterval": 1000,  # ms; the default is a minute
    "org.slf4j.simpleLogger.defaultLogLevel": "warn",  # Debian's jars
    "org.apache.logging.log4j.level": "warn",  # those of scripts/curator_jars.py
    "org.slf4j.simpleLogger.showDateTime": "true",
}


class EnsembleServer(FaultInjectable):
    """A server of an ``Ensemble``, which creates it.

    Clients connect to ``hosts``, where the faults of connections are injected. ``address`` leads to
    the server itself, without faults.

    Args:
        number: Number of the server in its ensemble; the first is 1.
        observes: Whether the server is an observer, which does not vote.
        folder: Folder of its configuration, data and log.
        guardian: Process that ends the server when this process ends.
    """

    __module__ = "distsync.testing"

    def __init__(self, number: int, observes: bool, folder: Path, guardian: ProcessGuard) -> None:
        self.number = number
        self.observes = observes
        self.folder = folder
        self.log = folder / "server.log"
        self._guardian = guardian
        self._reserved_ports = [java_process.reserved_port() for _ in range(3)]
        self.client_port, self.quorum_port, self.election_port = (
            each.getsockname()[1] for each in self._reserved_ports
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = self._is_full = False
        self._words: list[str] = []

    def __repr__(self) -> str:
        kind = "observer" if self.observes else "participant"
        return f"<EnsembleServer {self.number} ({kind}) at {LOOPBACK}:{self.client_port}>"

    def prepare(self, settings: Mapping[str, object], properties: Mapping[str, object]) -> None:
        """Write the configuration, and create the proxy for clients.

        Args:
            settings: Further lines of zoo.cfg, by key.
            properties: Further Java system properties, by name.
        """
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        mine = {"dataDir": data, "clientPortAddress": LOOPBACK, "clientPort": self.client_port}
        lines = (f"{key}={value}\n" for key, value in {**mine, **settings}.items())
        config = self.folder / "zoo.cfg"
        config.write_text("".join(lines))
        self._words = java_process.command({**PROPERTIES, **properties}, MAIN, str(config))
        self._proxy = self._proxy or Proxy(f"{LOOPBACK}:{self.client_port}")

    # ---- start and stop

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server itself, without the faults of connections."""
        return LOOPBACK, self.client_port

    @property
    def running(self) -> bool:
        """Whether the server has a process that is not paused."""
        return self._process is not None and self._process.poll() is None and not self._paused

    @property
    def pid(self) -> int | None:
        """Id of the server's process. None if it was not started, or was stopped or killed."""
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start the server's process, without waiting until it answers.

        Raises:
            UsageError: The server is running.
        """
        if self._process is not None and self._process.poll() is None:
            raise UsageError(f"{self!r} is running")
        self._end(signal.SIGKILL)
        self._process = self._guardian.spawn(self._words, self.log)

    def start(self) -> None:
        """Start the server, and wait until it answers.

        It serves no client before it has found a leader.

        Raises:
            UsageError: The server is running.
            EnsembleError: The server does not answer in time, or its process has ended.
        """
        self.launch()
        self.wait_until(lambda server: server.role is not Role.UNREACHABLE, START_S)

    def stop(self) -> None:
        """Shut the server down cleanly. Its data and address are kept."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL. Its data and address are kept."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server, start it again, and wait until it answers.

        Args:
            kill: Whether to kill the server instead of shutting it down cleanly.

        Raises:
            EnsembleError: The server does not answer in time, or its process has ended.
        """
        self.kill() if kill else self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the server until ``resume()``. Its sockets stay open.

        Raises:
            UsageError: The server is not running.
        """
        process = self._running_process()
        self._paused = True
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until all its threads are stopped

    def resume(self) -> None:
        """Let a paused server continue. It does nothing if the server is not paused."""
        self._paused = False
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the server during a ``with`` block.

        Yields:
            None: The server is suspended.

        Raises:
            UsageError: The server is not running.
        """
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def fill_disk(self) -> None:
        """Make all writes to files fail, as on a full disk, until ``heal()``.

        Raises:
            UsageError: The server is not running.
        """
        pid = self._running_process().pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
        self._is_full = True

    def heal(self) -> None:
        """End all faults of this server, pending ones too. A stopped server is started.

        Faults on the wires between servers remain; ``Ensemble.heal`` ends them.

        Raises:
            EnsembleError: The server does not answer in time, or its process has ended.
        """
        self.resume()
        if self._is_full:
            self._clear_disk()
        if self._process is None or self._process.poll() is not None:
            self.start()
        self._faults.disarm()
        self._faults.heal()

    def _clear_disk(self) -> None:
        """Kill the server and delete its empty logs, with which ZooKeeper does not start."""
        self.kill()
        for log in self.folder.rglob("log.*"):
            if log.stat().st_size == 0:
                log.unlink()

    def close(self) -> None:
        """Kill the server, and remove everything of it but its folder."""
        self.kill()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        for reserved in self._reserved_ports:
            reserved.close()

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError(f"{self!r} does not run")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._paused = self._is_full = False
        self._guardian.after_fork_in_child(process.pid)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # ---- status

    def status(self) -> Server:
        """Return the status that the server reports: its role, zxid, epoch and counter.

        Returns:
            The status. A server that is paused or not running has the role ``Role.UNREACHABLE``.
        """
        if not self.running:
            return Server(*self.address, Role.UNREACHABLE, problem="it is paused, or does not run")
        return ask(*self.address, None, ANSWER_S)

    def ask(self, word: str) -> str:
        """Send a four-letter word to the server.

        Args:
            word: The word, for example ``"mntr"``.

        Returns:
            The server's answer.

        Raises:
            OSError: The server does not answer within 2 s.
        """
        return say(self.address, word.encode(), ANSWER_S).decode("utf-8", "replace")

    def serving(self) -> bool:
        """Return whether the server serves clients, as the leader or with a leader.

        Returns:
            True if the server says that it is a leader, follower, observer or standalone.
        """
        return self.status().role in SERVING

    def wait_until(self, condition: Callable[[Server], object], timeout: float) -> None:
        """Wait until the server's status meets a condition.

        Args:
            condition: Called with the status repeatedly; a true result ends the wait.
            timeout: Maximum wait in seconds; 0 tries once.

        Raises:
            EnsembleError: The condition is not met in time, or the server's process has ended.
        """
        until = wait_clock() + timeout
        while not condition(status := self.status()):
            process = self._process
            if process is None or process.poll() is not None:
                last_lines = self.log.read_text("utf-8", "replace").strip().splitlines()[-3:]
                raise EnsembleError(f"server {self.number} ended at once: {' / '.join(last_lines)}", self.log)
            if wait_clock() > until:
                raise EnsembleError(f"server {self.number} is still {status.role.value}", self.log)
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
