"""``Ensemble``: a real ZooKeeper ensemble for tests, with observers and fault injection.

This file has what concerns all servers: their configuration, leader and partitions. One server is
in ensemble_server.py, the wires between servers in ensemble_network.py, and their processes in
java_process.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

from distsync._client.clocks import wait_clock
from distsync._client.ensemble_status import Role, Server
from distsync.errors import UsageError
from distsync.testing import java_process
from distsync.testing.connection_faults import end_session, session_id
from distsync.testing.ensemble_network import EnsembleNetwork, Pair
from distsync.testing.ensemble_server import SERVING, START_S, EnsembleServer
from distsync.testing.faulty_proxy import ProxyMode
from distsync.testing.java_process import LOOPBACK, EnsembleError, ProcessGuard

TICK_MS = 250
MAX_SESSION_MS = 120_000
"""Maximum session timeout; the minimum is 2 ticks."""

QUORUM_S = 60.0


class Ensemble:
    """A ZooKeeper ensemble for tests, made of Java processes on loopback.

    Nothing runs until ``start()`` is called or the ``with`` block begins. At the end of the block,
    the servers and everything that they created are removed.

    Clients connect to ``hosts``, which stays the same until the ensemble is closed. Faults of
    client connections are injected there, by the methods of each server. Faults between servers are
    injected on the wires between them, by ``partition()`` and ``isolate()``.

    Args:
        participants: Number of servers that vote; at least 1.
        observers: Number of servers that do not vote; 0 makes none.
        tick_ms: ZooKeeper's ``tickTime`` in milliseconds. A follower that is silent for 10 ticks is
            dropped by the leader.
        data_dir: Folder of the servers' data, which is kept. None creates a temporary folder, which
            ``close()`` removes.
        settings: Further lines of zoo.cfg, by key. None adds none.
        properties: Further Java system properties, by name. None adds none.

    Raises:
        UsageError: There is no participant, or the number of observers is negative.

    Note:
        The ensemble needs Java, and ZooKeeper from Debian's package ``zookeeper`` or from the
        ``ZOOKEEPER_CLASSPATH``.

        Clients get a session timeout of 2 ticks to 120 s.

    Example:
        >>> with Ensemble(participants=3, observers=2) as ensemble:          # doctest: +SKIP
        ...     client = distsync.connect(ensemble.hosts)
        ...     ensemble.leader().kill()
        ...     ensemble.wait_for_leader()
    """

    __module__ = "distsync.testing"

    def __init__(
        self,
        participants: int = 3,
        observers: int = 2,
        *,
        tick_ms: int = TICK_MS,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        if participants < 1 or observers < 0:
            raise UsageError("an ensemble has one participant or more, and observers or none")
        self._tick_ms, self._data_dir = tick_ms, data_dir
        self._votes, self._count = participants, participants + observers
        self._settings, self._properties = dict(settings or {}), dict(properties or {})
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._guardian: ProcessGuard | None = None
        self._wires: EnsembleNetwork | None = None
        self._servers: tuple[EnsembleServer, ...] = ()
        self._ports: dict[tuple[int, int], Pair] = {}

    # ---- servers

    @property
    def servers(self) -> tuple[EnsembleServer, ...]:
        """All servers: the participants first, then the observers.

        Raises:
            UsageError: The ensemble was not started.
        """
        if not self._servers:
            raise UsageError("the ensemble was not started: use start() or a with block")
        return self._servers

    @property
    def participants(self) -> tuple[EnsembleServer, ...]:
        """The servers that vote.

        Raises:
            UsageError: The ensemble was not started.
        """
        return self.servers[: self._votes]

    @property
    def observers(self) -> tuple[EnsembleServer, ...]:
        """The servers that do not vote.

        Raises:
            UsageError: The ensemble was not started.
        """
        return self.servers[self._votes :]

    @property
    def hosts(self) -> str:
        """Connect string for clients: the addresses of all servers, separated by commas.

        Raises:
            UsageError: The ensemble was not started.
        """
        return ",".join(server.hosts for server in self.servers)

    # ---- start and stop

    def start(self) -> None:
        """Start all servers that are not running, and wait until they serve clients.

        Raises:
            EnsembleError: Java or ZooKeeper is not installed, or a server does not serve in time.
                The error quotes or names the log of the server.
        """
        if not self._servers:
            self._prepare()
        for server in self.servers:
            if server.pid is None:
                server.launch()
        self.wait_until_serving()

    def stop(self) -> None:
        """Shut all servers down cleanly. Data, sessions and addresses are kept for the next start.

        Raises:
            UsageError: The ensemble was not started.
        """
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        """Kill all servers with SIGKILL. Data, sessions and addresses are kept for the next start.

        Raises:
            UsageError: The ensemble was not started.
        """
        for server in self.servers:
            server.kill()

    def rolling_restart(self, *, kill: bool = False) -> None:
        """Restart the servers one after the other, the leader last.

        Each server serves clients again before the next one is stopped.

        Args:
            kill: Whether to kill the servers instead of shutting them down cleanly.

        Raises:
            UsageError: The ensemble was not started.
            EnsembleError: A server does not serve in time.
        """
        first = self.leader()
        for server in sorted(self.servers, key=lambda each: each is first):
            server.restart(kill=kill)
            self.wait_until_serving()

    def close(self) -> None:
        """Kill all servers, and remove their processes, threads, sockets and temporary folder."""
        for server in self._servers:
            server.close()
        if self._wires is not None:
            self._wires.close()
        if self._guardian is not None:
            self._guardian.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        self._servers, self._wires, self._guardian, self._temporary = (), None, None, None

    def __enter__(self) -> Ensemble:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- roles

    def leader(self) -> EnsembleServer | None:
        """Return the server that says it is the leader.

        Returns:
            The leader, or None if there is none. If two servers say so, because one of them is cut
            off, the one with the higher epoch.

        Raises:
            UsageError: The ensemble was not started.
        """
        leading = [
            (status.epoch or 0, server.number)
            for server, status in zip(self.servers, self.status(), strict=True)
            if status.role in (Role.LEADER, Role.STANDALONE)
        ]
        return self.servers[max(leading)[1] - 1] if leading else None

    def followers(self) -> list[EnsembleServer]:
        """Return the servers that say they are followers.

        Returns:
            The followers, without the leader and the observers.

        Raises:
            UsageError: The ensemble was not started.
        """
        return [
            server for server, status in zip(self.servers, self.status(), strict=True) if status.role is Role.FOLLOWER
        ]

    def status(self) -> list[Server]:
        """Return the status that each server reports: its role, zxid, epoch and counter.

        Returns:
            One entry for each server, in the order of ``servers``. A server that is paused or not
            running has the role ``Role.UNREACHABLE``.

        Raises:
            UsageError: The ensemble was not started.
        """
        return [server.status() for server in self.servers]

    def wait_for_leader(self, timeout: float = QUORUM_S) -> EnsembleServer:
        """Wait until a server leads.

        Args:
            timeout: Maximum wait in seconds; 0 tries once.

        Returns:
            The leader.

        Raises:
            UsageError: The ensemble was not started.
            EnsembleError: No server leads in time.
        """
        until = wait_clock() + timeout
        while True:
            leader = self.leader()
            if leader is not None:
                return leader
            if wait_clock() > until:
                raise EnsembleError("no server leads", self.servers[0].log)

    def wait_until_serving(self, *servers: EnsembleServer, timeout: float = START_S) -> None:
        """Wait until servers serve clients.

        Args:
            *servers: The servers to wait for; none waits for all that are running and not paused.
            timeout: Maximum wait for each server, in seconds.

        Raises:
            UsageError: The ensemble was not started.
            EnsembleError: A server does not serve in time, or its process has ended.
        """
        for server in servers or [each for each in self.servers if each.running]:
            server.wait_until(lambda status: status.role in SERVING, timeout)

    # ---- faults

    def partition(self, *groups: Iterable[EnsembleServer], silent: bool = True) -> None:
        """Cut the connections between servers of different groups, until ``heal()``.

        This replaces an earlier partition. Clients still reach all servers.

        Args:
            *groups: The groups, each of servers that can reach each other. A server in none of the
                groups is alone.
            silent: Whether messages are held back without an error. Otherwise connections break,
                and new ones are refused.

        Raises:
            UsageError: The ensemble was not started.
        """
        group_of = {server.number: which for which, group in enumerate(groups) for server in group}
        mode = ProxyMode.HELD if silent else ProxyMode.REFUSED

        def mode_of(caller: int, called: int) -> ProxyMode:
            ours, theirs = group_of.get(caller, -caller), group_of.get(called, -called)
            return ProxyMode.PASSED if ours == theirs else mode

        self._laid.set(mode_of)

    def isolate(self, server: EnsembleServer, *, silent: bool = True) -> None:
        """Cut the connections between one server and all others, until ``heal()``.

        This replaces an earlier partition. Clients still reach the server.

        Args:
            server: The server to isolate.
            silent: Whether messages are held back without an error. Otherwise connections break,
                and new ones are refused.

        Raises:
            UsageError: The ensemble was not started.
        """
        self.partition([each for each in self.servers if each is not server], silent=silent)

    def expire(self, session: object) -> None:
        """End a session, as if it had timed out. Its ephemeral znodes are deleted.

        The client learns of it when it reconnects. If no server leads, this waits up to 60 s for
        one.

        Args:
            session: A client of distsync or kazoo, or the id of a session that was made over
                ``hosts``.

        Raises:
            UsageError: The ensemble was not started, the client has no session, or the session was
                not made over ``hosts``.
            EnsembleError: No server leads in time.
        """
        leader = self.wait_for_leader()
        end_session(leader.address, [server._faults for server in self.servers], session_id(session))

    def heal(self) -> None:
        """End all faults, pending ones too, and wait until all servers serve clients.

        Stopped servers are started, paused ones are resumed, and all servers reach each other.

        Raises:
            UsageError: The ensemble was not started.
            EnsembleError: A server does not serve in time.
        """
        self._laid.set(lambda caller, called: ProxyMode.PASSED)
        for server in self.servers:
            server.heal()
        self.wait_until_serving()

    # ---- configuration

    @property
    def _laid(self) -> EnsembleNetwork:
        if self._wires is None:
            raise UsageError("the ensemble was not started: use start() or a with block")
        return self._wires

    def _prepare(self) -> None:
        lacking = java_process.missing()
        if lacking:
            raise EnsembleError(lacking, "none yet")
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="distsync-")
        folder = Path(self._data_dir or self._temporary.name).absolute()  # type: ignore[union-attr]
        guardian = self._guardian = ProcessGuard(None if self._data_dir else folder)
        numbers = range(1, self._count + 1)
        self._servers = tuple(
            EnsembleServer(number, number > self._votes, folder / f"server-{number}", guardian) for number in numbers
        )
        self._lay_wires()
        for server in self._servers:
            server.prepare(self._lines(server), self._properties)

    def _lay_wires(self) -> None:
        wires = self._wires = EnsembleNetwork()
        for caller in self._servers:
            for called in self._servers:
                if caller is not called:
                    ends, back = (caller.number, called.number), (called.number, caller.number)
                    self._ports[ends] = wires.lay(
                        ends, called.quorum_port, called.election_port, partial(self._election_port, back)
                    )

    def _election_port(self, ends: tuple[int, int]) -> int:
        return self._ports[ends].election

    def _lines(self, server: EnsembleServer) -> dict[str, object]:
        """Return the lines of a server's zoo.cfg, by key."""
        lines: dict[str, object] = {
            "tickTime": self._tick_ms,
            "initLimit": 40,
            "syncLimit": 10,
            "maxSessionTimeout": MAX_SESSION_MS,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }
        if self._count > 1:
            lines["standaloneEnabled"] = "false"
            lines.update((f"server.{each.number}", self._known_as(server, each)) for each in self._servers)
        if server.observes:
            lines["peerType"] = "observer"
        return {**lines, **self._settings}

    def _known_as(self, server: EnsembleServer, other: EnsembleServer) -> str:
        """Return the ports by which ``server`` reaches ``other``: a wire's, or its own."""
        ports = self._ports.get((server.number, other.number), (other.quorum_port, other.election_port))
        return f"{LOOPBACK}:{ports[0]}:{ports[1]}:{'observer' if other.observes else 'participant'}"
